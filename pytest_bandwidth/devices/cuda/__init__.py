"""Measure a GPU: CuPy arrays and raw kernels, timed with events, watched through NVML."""
