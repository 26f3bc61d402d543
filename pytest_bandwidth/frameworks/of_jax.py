"""Know JAX's arrays: which have memory, and where."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks.extents import Extent


class Jax:
    """Know JAX's arrays."""

    name = "JAX"
    computes_later = True
    known_to_devices = True
    own_graphs = None

    def __init__(self, jax: Any) -> None:
        self._jax = jax

    def owns(self, value: object) -> bool:
        return isinstance(value, getattr(self._jax, "Array", ()))

    def extent(self, array: Any, path: str) -> Extent:
        if isinstance(array, self._jax.core.Tracer):
            raise UsageError(f"{path} is a tracer of a JAX transformation: measure the compiled function from outside")
        if array.is_deleted():
            raise UsageError(f"{path} is a JAX array whose buffer was deleted or donated: make it anew before the call")
        if len(array.devices()) > 1:
            raise UsageError(f"{path} lies on {len(array.devices())} devices, expected an array on one, or the bytes")
        nbytes = int(array.nbytes)
        try:
            address, space = int(array.unsafe_buffer_pointer()), str(next(iter(array.devices())))
        except (AttributeError, RuntimeError, TypeError, ValueError):  # random keys, say, have no buffer of their own
            address, space = 0, f"JAX array {id(array)}"
        return Extent(space, address, (nbytes,), (1,), 1)

    def is_on_host(self, array: Any) -> bool:
        return all(device.platform == "cpu" for device in array.devices())

    def stream(self, array: Any) -> Any:
        del array

    def is_made(self, array: Any) -> bool:
        return not isinstance(array, self._jax.core.Tracer) and not array.is_deleted()

    def wait(self, arrays: Sequence[Any]) -> None:
        self._jax.block_until_ready(arrays)

    def as_numpy(self, array: Any) -> Any:
        try:
            return np.from_dlpack(array)
        except (RuntimeError, TypeError, ValueError, BufferError, AttributeError):
            return None
