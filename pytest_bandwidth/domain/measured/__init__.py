"""Hold what one workload was measured at: rounds, DRAM traffic, figures, and whether and why they are believed."""
