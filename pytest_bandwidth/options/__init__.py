"""Read and check what users set: options, ini file, marker."""
