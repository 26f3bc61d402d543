"""Read hardware counters of DRAM through the profiler that the user installed: its command line and its CSV."""
