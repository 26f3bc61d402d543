"""Memory-bandwidth regression tests for GPU kernels, in pytest.

Importing this package is cheap: it loads no NumPy, YAML or device library.
"""

__version__ = "0.1.0"
