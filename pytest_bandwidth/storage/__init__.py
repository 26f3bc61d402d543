"""Read and write files: baselines, saved runs and histories, written whole and read defensively."""
