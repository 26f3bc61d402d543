"""Run what NumPy cannot express without many passes as loops over lanes, compiled by Numba.

Lanes stand in arrays of shape (blocks, threads), threads padded to whole warps of 32; arrays that do not differ between
blocks, or between threads, have one row or one column and are broadcast by the caller.
`mask` tells which lanes take part.

Compiled with exactly the signatures that are needed, at the first call, and kept on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from numba import njit, types

WARP = 32
_TUPLE: Any = types.Tuple  # Numba types little of itself
U8, I32, I64, U64, BOOL = types.uint8, types.int32, types.int64, types.uint64, types.boolean


def given(kind: Any) -> Any:
    """Type a plane that is only read; NumPy's broadcasts are read-only, and any layout will do."""
    return types.Array(kind, 2, "A", readonly=True)


def plane(kind: Any) -> Any:
    return types.Array(kind, 2, "A")


def memory(kind: Any) -> Any:
    """Type memory that users own: its start may suit no element wider than theirs."""
    return types.Array(kind, 2, "A", aligned=False)


def seen(kind: Any) -> Any:
    """Type memory that users own and that is only read."""
    return types.Array(kind, 2, "A", readonly=True, aligned=False)


def row(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


def four(kind: Any) -> Any:
    return _TUPLE((kind, kind, kind, kind))


def cached(decorate: Any, signatures: Sequence[Any], function: Callable[..., Any], **options: Any) -> Any:
    """Apply Numba's decorator with its cache on disk; without it where no folder can be written to."""
    try:
        return decorate(list(signatures), cache=True, **options)(function)
    except RuntimeError as error:
        if "cannot cache" not in str(error):
            raise
        return decorate(list(signatures), **options)(function)


def compiled(*signatures: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function with exactly these signatures when it is first called."""

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def ready() -> Any:
            return cached(njit, signatures, function, error_model="numpy")

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return ready()(*arguments)

        return call

    return wrap
