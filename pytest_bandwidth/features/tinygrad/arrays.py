"""Know tinygrad's tensors, which are recipes until they are realized; make them on a backend, and size them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_bandwidth.devices.numpy_arrays import Array, RandomSource, checked_array_shape, resolve_dtype
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.features.tinygrad.backend import Backend
from pytest_bandwidth.frameworks.base import Framework
from pytest_bandwidth.frameworks.extents import Extent

# Its devices that compute, or only count, in the host's memory.
HOST_DEVICES = frozenset({"CPU", "PYTHON", "NULL", "LLVM", "CLANG"})


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


class Tensors:
    """Make and size tensors in one backend's memory."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._source = RandomSource()

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return random bits made on the host, copied over. Raises UsageError, OutOfMemory."""
        return self._copied(self._source.array(shape, dtype))

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Return zeros: a tensor of undefined content is not realized. Raises UsageError, OutOfMemory."""
        return self._copied(np.zeros(checked_array_shape(shape), resolve_dtype(dtype)))

    def nbytes(self, tensor: Any) -> int:
        """Return the bytes of a realized tensor in the backend's memory. Raises UsageError for anything else."""
        backend = self._backend.name
        if not isinstance(tensor, self._backend.tinygrad.Tensor):
            kind = f"{type(tensor).__module__.partition('.')[0]}.{type(tensor).__name__}"
            raise UsageError(
                f"a {kind} in reads= or writes= is not in the memory of tinygrad's {backend}, which this run measures: "
                "give a tensor there, or bytes as an int"
            )
        if tensor.device != backend:
            raise UsageError(
                f"a tensor in reads= or writes= is on {tensor.device}, this run measures tinygrad's {backend}: give a "
                "tensor there, or bytes as an int"
            )
        if not tensor.uop.is_realized or not tensor.uop.has_buffer_identity():
            raise UsageError(
                "a tensor in reads= or writes= is not realized or a view: give contiguous().realize() of it, or bytes "
                "as an int"
            )
        return int(tensor.nbytes())

    def _copied(self, array: Array) -> Any:
        """Return an array as a realized tensor that is no view."""
        if not array.size:
            raise UsageError(f"shape is {array.shape}, expected no size of 0: tinygrad realizes no empty tensor")
        tinygrad = self._backend.tinygrad
        try:
            # As one row: of an array without dimensions tinygrad would make a constant, on another backend first.
            row: Any = array.reshape(-1)
            if array.dtype.name == "bfloat16":  # NumPy has the type from elsewhere, tinygrad by itself
                return self._backend.tensor(row.tobytes(), tinygrad.dtypes.bfloat16).reshape(array.shape)
            return self._backend.tensor(row).reshape(array.shape)
        except MemoryError as error:
            raise OutOfMemory(f"{error}: use a smaller size") from None
        except (KeyError, TypeError, ValueError, RuntimeError) as error:
            said = (str(error).splitlines() or [""])[0]
            raise UsageError(
                f"tinygrad's {self._backend.name} made no tensor of dtype {array.dtype.name} ({said}): "
                "expected one that it has, such as 'float32'"
            ) from None
