"""Model element-wise operations, reductions and chains of them.

copy, scale, add and triad are STREAM's four (McCalpin, https://www.cs.virginia.edu/stream/ref.html).
"""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count


def _elementwise(n: int, dtype: Any, arrays_read: int, arrays_written: int, flop_per_element: int) -> Traffic:
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(arrays_read * n * s, arrays_written * n * s, flop_per_element * n)


def read(n: int, dtype: Any) -> Traffic:
    """Read n elements: n·s bytes read. The ceiling of a kernel that only reads."""
    return _elementwise(n, dtype, 1, 0, 0)


def write(n: int, dtype: Any) -> Traffic:
    """Write n elements: n·s bytes written. The ceiling of a kernel that only writes."""
    return _elementwise(n, dtype, 0, 1, 0)


def copy(n: int, dtype: Any) -> Traffic:
    """Model b = a: 2n·s bytes."""
    return _elementwise(n, dtype, 1, 1, 0)


def scale(n: int, dtype: Any) -> Traffic:
    """Model b = scalar·a: 2n·s bytes, n FLOP (STREAM scale, BabelStream mul)."""
    return _elementwise(n, dtype, 1, 1, 1)


def add(n: int, dtype: Any) -> Traffic:
    """Model c = a + b: 3n·s bytes, n FLOP."""
    return _elementwise(n, dtype, 2, 1, 1)


def triad(n: int, dtype: Any) -> Traffic:
    """Model a = b + scalar·c: 3n·s bytes, 2n FLOP."""
    return _elementwise(n, dtype, 2, 1, 2)


def reduce_sum(n: int, dtype: Any, *, partials: int = 0, partial_dtype: Any = "float32") -> Traffic:
    """Model Σ a: n·s bytes read, n FLOP. The one result is not counted, as in STREAM.

    partials: partial sums that the launch leaves in memory, of `partial_dtype` (one a block, say), where they count.
    """
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(n * s, count("partials", partials) * bytes_per_element(partial_dtype), n)


def dot(n: int, dtype: Any, *, partials: int = 0, partial_dtype: Any = "float32") -> Traffic:
    """Model Σ a·b: 2n·s bytes read, 2n FLOP. For `partials` see `reduce_sum`."""
    once = reduce_sum(n, dtype, partials=partials, partial_dtype=partial_dtype)
    return Traffic(2 * once.bytes_read, once.bytes_written, 2 * once.flop)


def pointwise_chain(n: int, operations: int, dtype: Any, *, fused: bool) -> Traffic:
    """Return a chain of element-wise operations on n elements, one FLOP an element each.

    Unfused, each operation is a launch that reads and writes every element: 2n·s·operations bytes. Fused, the values
    stay in registers between the first read and the last write: 2n·s bytes.
    """
    operations = count("operations", operations, least=1)
    once = _elementwise(n, dtype, 1, 1, operations)
    launches = 1 if fused else operations
    return Traffic(launches * once.bytes_read, launches * once.bytes_written, once.flop)


def intensity_sweep(n: int, repeats: int, dtype: Any, *, fma: bool = True) -> Traffic:
    """Model one read and one write of n elements with `repeats` FMAs (2 FLOP each) or adds (1 FLOP) between.

    2n·s bytes; 2·repeats·n FLOP with fma, repeats·n without.
    """
    return _elementwise(n, dtype, 1, 1, count("repeats", repeats) * (2 if fma else 1))


def repeats_at_ridge(ridge_point: float, dtype: Any) -> float:
    """Return the operations per element at which `intensity_sweep` turns compute-bound: ridge_point·s.

    ridge_point: FLOP per byte, of the peak that counts an FMA as two. An FMA sweep does 2·repeats FLOP for 2·s bytes.
    An add sweep does half the FLOP and reaches half the rate, so that it crosses at the same count.
    """
    return ridge_point * bytes_per_element(dtype)
