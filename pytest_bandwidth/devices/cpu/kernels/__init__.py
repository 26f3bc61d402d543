"""Twin the shipped CUDA kernels on the host, with Numba."""
