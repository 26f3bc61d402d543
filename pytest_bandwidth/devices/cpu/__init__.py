"""Measure the host's memory: NumPy arrays and Numba kernels, timed with the processor's clock."""
