"""Tell which framework an array belongs to, among those that this process has loaded."""

from __future__ import annotations

import sys
from collections.abc import Callable

from pytest_bandwidth.features.tinygrad.arrays import Tinygrad
from pytest_bandwidth.frameworks.base import Framework
from pytest_bandwidth.frameworks.of_interfaces import DeviceArrays, HostArrays, NumPy
from pytest_bandwidth.frameworks.of_jax import Jax
from pytest_bandwidth.frameworks.of_torch import Torch

# By the name of the module that has to be loaded; those that a process never imports are never asked.
_OF_MODULES: dict[str, Callable[..., Framework]] = {"torch": Torch, "jax": Jax, "tinygrad": Tinygrad}
_NUMPY = NumPy()


def framework_of(value: object) -> Framework | None:
    """Return the framework whose array the value is; None for anything that is no array."""
    if _NUMPY.owns(value):
        return _NUMPY
    for name, make in _OF_MODULES.items():
        module = sys.modules.get(name)
        if module is not None and (framework := make(module)).owns(value):
            return framework
    library = type(value).__module__.partition(".")[0]
    return next((one for one in (DeviceArrays(library), HostArrays(library)) if one.owns(value)), None)
