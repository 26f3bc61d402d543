"""Compose generic addresses: which bits say what. Deterministic, and the same for every run of the same launch.

Bits 63..40 number a region (one array, or one state space's window), the rest is the place in it. A region's first byte
is in the middle of its 2⁴⁰ bytes, so that an address somewhat before an array is still seen to belong to it, and is
aligned as cudaMalloc aligns (256 bytes and more).
"""

from __future__ import annotations

REGION_SHIFT = 40
ORIGIN = 1 << (REGION_SHIFT - 1)
MAX_REGION_BYTES = ORIGIN

SHARED_REGION = 1
LOCAL_REGION = 2
PARAM_REGION = 3
FIRST_VARIABLE_REGION = 0x10
FIRST_ARRAY_REGION = 0x100000


def region_base(region: int) -> int:
    """Return the generic address of a region's first byte."""
    return (region << REGION_SHIFT) + ORIGIN


SHARED_BASE = region_base(SHARED_REGION)
LOCAL_BASE = region_base(LOCAL_REGION)
PARAM_BASE = region_base(PARAM_REGION)
