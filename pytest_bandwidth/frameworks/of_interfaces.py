"""Know NumPy's arrays, and those of any library that tells where they lie by the array interface."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks.extents import Extent


class _InOrder:
    """Answer for libraries whose work is done when a call returns, or queued on the device's current stream."""

    computes_later = False
    known_to_devices = True
    own_graphs = None

    def stream(self, array: Any) -> Any:
        del array

    def is_made(self, array: Any) -> bool:
        del array
        return True

    def wait(self, arrays: Sequence[Any]) -> None:
        del arrays


class NumPy(_InOrder):
    """Know NumPy's arrays; its scalars are none."""

    name = "NumPy"

    def owns(self, value: object) -> bool:
        return isinstance(value, np.ndarray)

    def extent(self, array: Any, path: str) -> Extent:
        if array.dtype.hasobject:
            raise UsageError(f"{path} holds Python objects, whose bytes lie elsewhere: expected numbers, or the bytes")
        return Extent("host", array.ctypes.data, array.shape, array.strides, array.itemsize)

    def is_on_host(self, array: Any) -> bool:
        del array
        return True

    def as_numpy(self, array: Any) -> Any:
        return array


class DeviceArrays(_InOrder):
    """Know arrays of any library that tells where on a GPU they lie: CuPy's, Numba's."""

    def __init__(self, name: str) -> None:
        self.name = name

    def owns(self, value: object) -> bool:
        return hasattr(type(value), "__cuda_array_interface__")

    def extent(self, array: Any, path: str) -> Extent:
        del path
        return _of_interface("cuda", array.__cuda_array_interface__)

    def is_on_host(self, array: Any) -> bool:
        del array
        return False

    def as_numpy(self, array: Any) -> Any:
        del array


class HostArrays(_InOrder):
    """Know arrays of any library that tells where in host memory they lie."""

    def __init__(self, name: str) -> None:
        self.name = name

    def owns(self, value: object) -> bool:
        return hasattr(type(value), "__array_interface__") and not isinstance(value, np.generic)

    def extent(self, array: Any, path: str) -> Extent:
        del path
        return _of_interface("host", array.__array_interface__)

    def is_on_host(self, array: Any) -> bool:
        del array
        return True

    def as_numpy(self, array: Any) -> Any:
        return np.asarray(array)


def _of_interface(space: str, interface: Any) -> Extent:
    shape = tuple(map(int, interface["shape"]))
    size = np.dtype(interface["typestr"]).itemsize
    strides = interface.get("strides") or tuple(size * prod(shape[place + 1 :]) for place in range(len(shape)))
    address = (interface.get("data") or (0, False))[0]
    return Extent(space, int(address or 0), shape, tuple(map(int, strides)), size)
