"""Model copies that differ in the order of their addresses only, and the sectors that such orders ask for."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count
from pytest_bandwidth.suite.traffic_models.stream import copy

# The unit in which NVIDIA GPUs since Pascal fetch from L2 and DRAM (CUDA C++ Best Practices Guide, "Coalesced
# Access to Global Memory"), and the threads that issue one request together.
SECTOR_BYTES = 32
WARP_LANES = 32


def strided(n: int, dtype: Any) -> Traffic:
    """Model out[i] = in[i·stride]: 2n·s useful bytes, whatever the stride.

    `warp_sectors` tells what is fetched for them.
    """
    return copy(n, dtype)


def misaligned(n: int, dtype: Any) -> Traffic:
    """Model out[i] = in[i + offset]: 2n·s useful bytes."""
    return copy(n, dtype)


def gather(n: int, dtype: Any, index_dtype: Any = "int32", *, distinct: int | None = None) -> Traffic:
    """Model out[i] = in[index[i]]: 2n·s useful bytes plus n indices.

    distinct: how many different elements the indices name, where that is known; then the bytes read are those, and
    n·s are requested. Without it the n elements are taken to be different.
    """
    n, s, index_bytes = count("n", n), bytes_per_element(dtype), bytes_per_element(index_dtype)
    if distinct is None:
        return Traffic(n * s + n * index_bytes, n * s)
    if count("distinct", distinct) > n:
        raise UsageError(f"distinct is {distinct}, expected at most the {n} elements that are gathered")
    return Traffic(distinct * s + n * index_bytes, n * s, 0, n * s + n * index_bytes, n * s)


def broadcast(n: int, dtype: Any) -> Traffic:
    """Model out[i] = in[0]: s bytes read, n·s written; n·s are asked for by the threads, one sector a warp."""
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(min(n, 1) * s, n * s, 0, n * s, n * s)


def transpose(rows: int, cols: int, dtype: Any) -> Traffic:
    """Model out[j, i] = in[i, j]: 2·rows·cols·s bytes. Naive and tiled differ in sectors, not in bytes."""
    return copy(count("rows", rows) * count("cols", cols), dtype)


def warp_sectors(dtype: Any, *, stride: int = 1, offset: int = 0, lanes: int = WARP_LANES) -> int:
    """Return the 32-byte sectors that one warp request touches when lane l accesses element offset + l·stride.

    stride, offset: elements, against an array that begins on a sector boundary. Coalesced float32: 4; with any odd
    offset: 5; stride 2: 8; stride ≥ 8: 32; stride 0 (broadcast): 1.
    """
    s, stride, offset = bytes_per_element(dtype), count("stride", stride), count("offset", offset)
    touched: set[int] = set()
    for lane in range(count("lanes", lanes)):
        first_byte = (offset + lane * stride) * s
        touched.update(range(first_byte // SECTOR_BYTES, (first_byte + s - 1) // SECTOR_BYTES + 1))
    return len(touched)
