"""Name the bottleneck of an order of accesses by a model, on timed devices: what it asks of memory beyond its needs.

The traffic device counts instead.
"""

from __future__ import annotations

from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.measured.roofline import BOTTLENECK_FOUND, access_sentence
from pytest_bandwidth.domain.traffic import bytes_per_element
from pytest_bandwidth.suite.operations import Sizes
from pytest_bandwidth.suite.traffic_models import warp_sectors

# What a processor fetches at a time (x86-64 and most Arm servers).
LINE_BYTES = 64
# A permutation puts neighbours anywhere: as far apart as lanes of a large stride.
FAR_APART = 4096
# Which side of an operation is out of order, and the word for it.
_SIDES = {
    "strided_read": ("reads", "strided"),
    "strided_write": ("writes", "strided"),
    "misaligned": ("reads", "misaligned"),
    "gather": ("reads", "random"),
    "transpose": ("writes", "strided"),
}
# On the host a cache puts the others' lines together: a transpose's are completed by the rows that follow.
_SIDES_ON_THE_HOST = ("strided_read", "strided_write", "gather")


def bottleneck_finding(name: str, version: str, dtype: str, sizes: Sizes, device_kind: str) -> Finding | None:
    """Return the finding of an operation whose accesses ask for more than they need; None for all others.

    On a GPU by the sectors of a warp request, on the host by cache lines.
    """
    if name not in _SIDES or version == "tiled":
        return None
    verb, pattern = _SIDES[name]
    stride, offset = _order(name, sizes)
    sentence = None
    if device_kind == "cuda":
        factor = warp_sectors(dtype, stride=stride, offset=offset) / warp_sectors(dtype)
        sentence = access_sentence(verb, pattern, factor)
    elif device_kind == "cpu" and name in _SIDES_ON_THE_HOST:
        factor = min(stride, LINE_BYTES // bytes_per_element(dtype))
        sentence = access_sentence(verb, pattern, factor, "bytes")
    return None if sentence is None else Finding(BOTTLENECK_FOUND, sentence)


def _order(name: str, sizes: Sizes) -> tuple[int, int]:
    """Return stride and offset, in elements, of what the lanes of a warp access."""
    if name == "misaligned":
        return 1, sizes["offset"]
    if name == "transpose":
        return sizes["rows"], 0
    return sizes.get("stride", FAR_APART), 0
