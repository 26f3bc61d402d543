"""Test GPU kernels for regressions of memory bandwidth, in pytest.

Importing this package is cheap: it loads no NumPy, YAML or device library.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    if name == "Reference":  # what tests import: it needs nothing heavy, and most runs do not need it
        return import_module("pytest_bandwidth.fixture.watched").Reference
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
