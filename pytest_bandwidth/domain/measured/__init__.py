"""Hold one workload's measurement: rounds, DRAM traffic, figures, and whether and why they are valid."""
