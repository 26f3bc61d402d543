"""Stand in for thrust's argsort, which CuPy's wheels hold as machine code of GPUs: NumPy sorts on the host."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from types import ModuleType
from typing import Any

from emulated_card.importing import Watched


def install() -> None:
    Watched("cupy.cuda.thrust", run=_replace)


def _replace(module: ModuleType) -> None:
    # A function of another file in a module of CuPy's would make all functions of CuPy's unknown.
    module.argsort = partial(argsort)  # type: ignore[attr-defined]


def argsort(dtype: Any, indices: int, data: int, keys: int, shape: Sequence[int]) -> None:
    """Write the order of each last row of `data` to `indices`; both are addresses on the card."""
    import numpy as np
    from cupy_backends.cuda.api import runtime

    del keys  # room that the real one needs
    values = np.empty(tuple(shape), dtype)
    runtime.memcpy(values.ctypes.data, data, values.nbytes, runtime.memcpyDeviceToHost)
    order = np.argsort(values, axis=-1, kind="stable").astype(np.intp)
    runtime.memcpy(indices, order.ctypes.data, order.nbytes, runtime.memcpyHostToDevice)
