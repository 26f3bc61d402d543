"""Find the arrays of NumPy, PyTorch, JAX, tinygrad and others in a call, and wait for what they still compute.

This package loads no framework: it uses only those that the process has imported by itself.
"""
