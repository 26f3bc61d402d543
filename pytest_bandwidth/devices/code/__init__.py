"""Identify code: kernels by PTX and cubin, launches by their arguments, Numba functions by their bytecode."""
