"""Make NumPy arrays of random data for measurements, aligned to cache lines; size any library's arrays.

Random data are finite numbers with random mantissas, made from masks over random 64-bit words. No cuRAND: the CUDA
parts that the extras install have none.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from math import prod
from typing import Any

import numpy as np

from pytest_bandwidth.devices.arguments import bytes_in_memory
from pytest_bandwidth.devices.host import available_bytes, usable_processors
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.domain.text import kind_of, shown
from pytest_bandwidth.domain.units import format_bytes, whole_sizes

ALIGNMENT_BYTES = 64
# Random words are drawn once a block and varied from block to block, so that the draw costs little and no two blocks
# are alike; a block fits the second-level cache of most cores.
RANDOM_BLOCK_WORDS = 1 << 15
# To ask for the free memory reads some thirty files, which takes a millisecond: a smaller array is made at once.
LEAST_CHECKED_BYTES = 1 << 20
_DLPACK_CPU = frozenset({1, 3, 11})  # kDLCPU, kDLCUDAHost, kDLROCMHost (dlpack.h)

Array = np.ndarray[Any, np.dtype[Any]]
# Returns so many bytes from special memory, such as memory with red zones; None = use ordinary memory.
Allocate = Callable[[int], Array | None]


def empty_array(shape: int | Sequence[int], dtype: Any, allocate: Allocate | None = None) -> Array:
    """Return an array that begins on a 64-byte boundary; its content is undefined. Raises UsageError, OutOfMemory."""
    sizes, kind = checked_array_shape(shape), resolve_dtype(dtype)
    size = prod(sizes) * kind.itemsize
    return _aligned_bytes(size, f"an array of {sizes} {kind.name}", allocate).view(kind).reshape(sizes)


def _aligned_bytes(size: int, what: str, allocate: Allocate | None) -> Array:
    """Return so many bytes. Raises OutOfMemory where they do not fit, before the system kills this process for them."""
    available = available_bytes() if size >= LEAST_CHECKED_BYTES else None
    if available is not None and size > available:
        raise OutOfMemory(f"{what} needs {format_bytes(size)}, {format_bytes(available)} are free: use a smaller size")
    try:
        given = None if allocate is None else allocate(size)
        if given is not None:
            return given
        raw = np.empty(size + ALIGNMENT_BYTES, np.uint8)
    except MemoryError:
        raise OutOfMemory(f"{what} needs {format_bytes(size)}, more than the host allows: use a smaller size") from None
    start = -raw.ctypes.data % ALIGNMENT_BYTES
    return raw[start : start + size]


class RandomSource:
    """Make random arrays, different at every call.

    seed: None = floats differ in every process, and whole numbers are the same from the beginning of each test on.
    """

    def __init__(self, seed: int | None = None, allocate: Allocate | None = None) -> None:
        self._allocate = allocate
        self._generator = np.random.Generator(np.random.SFC64(seed))
        self._of_whole = None if seed is not None else np.random.Generator(np.random.SFC64(0))

    def begin_test(self) -> None:
        """Restart the whole numbers, where no seed was given."""
        if self._of_whole is not None:
            self._of_whole = np.random.Generator(np.random.SFC64(0))

    def array(self, shape: int | Sequence[int], dtype: Any) -> Array:
        """Make floats in [1, 2) with random mantissas or integers of random bits. Raises UsageError, OutOfMemory."""
        sizes, kind = checked_array_shape(shape), resolve_dtype(dtype)
        (keep, fixed), words = masks_for(kind), words_needed(sizes, kind)
        out = _aligned_bytes(words * WORD_BYTES, f"an array of {sizes} {kind.name}", self._allocate).view(np.uint64)
        whole = self._of_whole if kind.kind in WHOLE_KINDS else None
        _fill(out, np.uint64(keep), np.uint64(fixed), whole or self._generator)
        return out.view(np.uint8)[: prod(sizes) * kind.itemsize].view(kind).reshape(sizes)


def _fill(out: Array, keep: np.uint64, fixed: np.uint64, generator: np.random.Generator) -> None:
    """Write out = (random & keep) | fixed, block by block: each block is the first one under another random mask.

    Each processor fills its own part: a page lies in the memory of the processor that touches it first.
    """
    block = generator.integers(0, 2**64, min(out.size, RANDOM_BLOCK_WORDS), np.uint64) & keep | fixed
    variations = generator.integers(0, 2**64, -(-out.size // RANDOM_BLOCK_WORDS), np.uint64) & keep
    whole, rest = divmod(out.size, RANDOM_BLOCK_WORDS)
    blocks = out[: out.size - rest].reshape(whole, RANDOM_BLOCK_WORDS)

    def fill(part: slice) -> None:
        np.bitwise_xor(block, variations[:whole][part, None], out=blocks[part])

    count = min(len(usable_processors()), whole)
    if count > 1:
        with ThreadPoolExecutor(count) as pool:
            list(pool.map(fill, [slice(whole * i // count, whole * (i + 1) // count) for i in range(count)]))
    elif whole:
        fill(slice(whole))
    if rest:
        np.bitwise_xor(block[:rest], variations[-1], out=out[-rest:])


def host_nbytes(array: Any) -> int:
    """Return the bytes of an array in host memory: NumPy's, or any other with DLPack or the array interface.

    Raises UsageError for any other, and for arrays on another device.
    """
    if isinstance(array, np.ndarray):
        return bytes_in_memory(array)
    nbytes, why = None, "is not an array in host memory"
    if hasattr(type(array), "__dlpack_device__"):
        try:
            nbytes = getattr(array, "nbytes", None)
        except RuntimeError as error:  # PyTorch's sparse and nested tensors have none
            why = f"has no known size ({error})"
        if nbytes is not None:
            if int(array.__dlpack_device__()[0]) in _DLPACK_CPU:
                return int(nbytes)
            why = "is not in host memory"
    if nbytes is None and hasattr(type(array), "__array_interface__"):
        return np.asarray(array).nbytes
    raise UsageError(f"a {kind_of(array)} in reads= or writes= {why}: give a host array, or its bytes as an int")


WORD_BYTES = 8


# Sign and exponent are fixed, the mantissa is random: values in [1, 2), never zero, subnormal or infinite. Sums and
# products of many stay well conditioned.
_BITS = {
    "float16": (0x03FF, 0x3C00),  # IEEE binary16: 10 mantissa bits, exponent bias 15
    "float32": (0x007F_FFFF, 0x3F80_0000),  # binary32: 23, 127
    "float64": (0x000F_FFFF_FFFF_FFFF, 0x3FF0_0000_0000_0000),  # binary64: 52, 1023
    "bfloat16": (0x007F, 0x3F80),  # the upper half of a binary32
    "bool": (0x01, 0x00),
}
# Kinds of dtypes whose random numbers are the same in every run of a test: their contents identify a launch.
WHOLE_KINDS = "iub"


def resolve_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype; ``"bfloat16"`` through ml_dtypes. Raises UsageError for unknown names."""
    if isinstance(dtype, str) and dtype in ("bfloat16", "bf16"):
        try:
            bfloat16: np.dtype[Any] = np.dtype(importlib.import_module("ml_dtypes").bfloat16)
            return bfloat16
        except ImportError:
            raise UsageError("bfloat16 needs the package ml_dtypes: pip install ml_dtypes") from None
    try:
        found: np.dtype[Any] = np.dtype(dtype)
        return found
    except TypeError:
        raise UsageError(f"{dtype!r} is not a dtype, expected one such as 'float32', 'float16', 'bfloat16'") from None


def masks_for(dtype: np.dtype[Any]) -> tuple[int, int]:
    """Return the bits to keep and those to set, 64 each, for one dtype: word = (random & keep) | set.

    Integers get all their bits. Raises UsageError for what holds no plain numbers.
    """
    if dtype.kind in "iu":
        return 2**64 - 1, 0
    size = dtype.itemsize // 2 if dtype.kind == "c" else dtype.itemsize
    name = f"float{8 * size}" if dtype.kind == "c" else dtype.name
    if name not in _BITS:
        raise UsageError(f"random() has no data for dtype {dtype.name}: expected float, complex, integer or bool")
    keep, fixed = _BITS[name]
    # Repeat one item's bits to fill a word.
    copies = sum(1 << (8 * size * k) for k in range(WORD_BYTES // size))
    return keep * copies, fixed * copies


def checked_array_shape(shape: int | Sequence[int]) -> tuple[int, ...]:
    """Return the shape as a tuple. Raises UsageError for negative or non-integer sizes, and for what is no shape."""
    sizes = whole_sizes(shape)
    if sizes is None:
        raise UsageError(f"shape={shown(shape)}, expected a whole number or a sequence of them, not negative")
    return sizes


def words_needed(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return how many 64-bit words hold an array."""
    return -(-prod(shape) * dtype.itemsize // WORD_BYTES)
