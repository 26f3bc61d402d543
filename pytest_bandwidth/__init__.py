"""Test GPU kernels for regressions of memory bandwidth, in pytest.

Importing this package is cheap: it loads no NumPy, YAML or device library.
"""

__version__ = "0.1.0"
