"""Find the arrays of NumPy, PyTorch, JAX, tinygrad and others in a call, and wait for what they still compute.

No framework is loaded here: only those that the process has imported by itself are asked.
"""
