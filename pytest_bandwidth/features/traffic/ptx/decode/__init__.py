"""Decode parsed PTX into kernels whose steps name registers by index: `kernel.decode`, and what it needs."""
