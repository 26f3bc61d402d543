"""Compile CUDA C++ with NVRTC, in processes that can be ended: `compile`, and what it needs."""
