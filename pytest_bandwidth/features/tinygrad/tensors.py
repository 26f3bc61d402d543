"""Make tinygrad's tensors on a backend, and size those that are given."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from pytest_bandwidth.devices.numpy_arrays import Array, RandomSource
from pytest_bandwidth.devices.random_bits import checked_array_shape, resolve_dtype
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.features.tinygrad.backend import Backend


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
