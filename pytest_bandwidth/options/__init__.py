"""Read and check what users say: options, marker, hooks, and what a test hands the fixture."""
