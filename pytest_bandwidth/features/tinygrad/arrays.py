"""Know tinygrad's tensors, which are recipes until they are realized."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.tinygrad.backend import COUNTS_ALONE, ON_HOST
from pytest_bandwidth.frameworks.base import Extent, Framework

# Those of its backends that compute, or only count, in the host's memory.
HOST_DEVICES = ON_HOST | {COUNTS_ALONE}


class Tinygrad(Framework):
    """Know tinygrad's tensors."""

    name = "tinygrad"
    computes_later = True
    known_to_devices = False
    is_lazy = True
    own_device = "--bandwidth-device=tinygrad:BACKEND with its backend"

    def __init__(self, tinygrad: Any) -> None:
        self._tinygrad = tinygrad

    def owns(self, value: object) -> bool:
        return isinstance(value, getattr(self._tinygrad, "Tensor", ()))

    def extent(self, array: Any, path: str) -> Extent:
        if not self.is_made(array):
            raise UsageError(f"{path} is not realized: each run would make it anew; call {path}.realize() before")
        if isinstance(array.device, tuple):
            raise UsageError(f"{path} lies on {len(array.device)} devices, expected a tensor on one, or the bytes")
        if not array.uop.has_buffer_identity():
            raise UsageError(
                f"{path} is a view, of which tinygrad does not tell where it lies: expected contiguous().realize() of "
                "it, or the bytes"
            )
        return Extent(("tinygrad", id(array.uop.base)), 0, (int(array.nbytes()),), (1,), 1)

    def is_on_host(self, array: Any) -> bool:
        devices = array.device if isinstance(array.device, tuple) else (array.device,)
        return all(str(device).partition(":")[0] in HOST_DEVICES for device in devices)

    def is_made(self, array: Any) -> bool:
        return bool(array.uop.is_realized)

    def wait(self, arrays: Sequence[Any]) -> None:
        self._tinygrad.Tensor.realize(*arrays)
        for device in {one for a in arrays for one in (a.device if isinstance(a.device, tuple) else (a.device,))}:
            self._tinygrad.Device[device].synchronize()

    def kernels_run(self) -> int | None:
        return int(self._tinygrad.GlobalCounters.kernel_count)
