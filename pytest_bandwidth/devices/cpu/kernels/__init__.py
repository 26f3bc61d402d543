"""Numba twins of the shipped CUDA kernels."""
