"""Do on the host, with Numba, what the shipped CUDA kernels do."""
