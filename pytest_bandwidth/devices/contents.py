"""Hash the contents of arrays of whole numbers: indices, lengths and masks decide which memory a kernel touches.

Floating-point numbers are left out: they decide the results, and hardly ever which memory is read. On a GPU the arrays
stay there: `cuda/code.py::device_sums`.
"""

from __future__ import annotations

import hashlib
import re
import time
from typing import Any

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_bytes

# Names of such types in NumPy, PyTorch and JAX, with quantized ones. Times are whole numbers, too.
_WHOLE = re.compile(r"q?u?int\d*|bool_?|u?long|short|byte|datetime64.*|timedelta64.*|(bytes|str)\d*", re.ASCII)
# The longest time for a host's array; larger arrays are not hashed.
MOST_SECONDS = 10.0
_PIECE_BYTES = 1 << 26


def holds_whole_numbers(array: Any) -> bool:
    """Return whether an array's elements are integers, booleans or texts, or hold some."""
    dtype = getattr(array, "dtype", None)
    if isinstance(dtype, np.dtype):
        return _has_whole(dtype)
    return _WHOLE.fullmatch(str(dtype).rsplit(".", 1)[-1]) is not None


def _has_whole(dtype: np.dtype[Any]) -> bool:
    if dtype.subdtype is not None:
        return _has_whole(dtype.subdtype[0])
    if dtype.names is not None:
        return any(_has_whole(dtype.fields[name][0]) for name in dtype.names if dtype.fields is not None)
    return _WHOLE.fullmatch(dtype.name) is not None


def host_contents(array: Any) -> str:
    """Identify the contents of an array in host memory. Raises UsageError where reading fails, or takes too long."""
    try:
        own = array if isinstance(array, np.ndarray) else np.asarray(array)
        return f"{array.dtype} {tuple(array.shape)} {bytes_digest(own)}"
    except (TypeError, ValueError, RuntimeError, MemoryError) as error:
        raise UsageError(f"a {type(array).__name__} cannot be read ({error})") from None


def bytes_digest(array: np.ndarray[Any, Any]) -> str:
    """Hash an array's elements in the order of memory; repeated ones once. Raises UsageError after MOST_SECONDS."""
    if array.dtype.hasobject:
        raise UsageError("an array of Python objects holds references, not numbers")
    once = array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]
    data = np.ascontiguousarray(once.T if once.flags.f_contiguous else once).reshape(-1).view(np.uint8).data
    found, deadline = hashlib.sha256(), time.monotonic() + MOST_SECONDS
    for start in range(0, len(data), _PIECE_BYTES):
        if time.monotonic() > deadline:
            raise UsageError(f"hashing {format_bytes(array.nbytes)} of indices takes longer than {MOST_SECONDS:g} s")
        found.update(data[start : start + _PIECE_BYTES])
    return found.hexdigest()
