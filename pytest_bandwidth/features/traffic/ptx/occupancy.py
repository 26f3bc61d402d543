"""List the limits of an SM of each architecture, and compute how many warps of a launch it holds at once.

Limits are from NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". The units of
allocation, and the registers of a quarter of an SM, are from the toolkit's `cuda_occupancy.h`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx.lanes import WARP

_QUARTERS, _REGISTERS_OF_QUARTER, _REGISTER_UNIT = 4, 16 * 1024, 256
# The value for an architecture that is not listed.
_SHARED_KIB_OF_BLOCK = 227


class _Limits(NamedTuple):
    """Hold an SM's limits. unit, reserved: bytes of a block's shared memory: unit of allocation, and CUDA's part."""

    warps: int
    blocks: int
    shared_kib: int
    unit: int = 128
    reserved: int = 1024


_LIMITS = {
    75: _Limits(32, 16, 64, unit=256, reserved=0),
    80: _Limits(64, 32, 164),
    86: _Limits(48, 16, 100),
    87: _Limits(48, 16, 164),
    89: _Limits(48, 24, 100),
    90: _Limits(64, 32, 228),
    100: _Limits(64, 32, 228),
    103: _Limits(64, 32, 228),
    110: _Limits(48, 24, 228),
    120: _Limits(48, 24, 100),
    121: _Limits(48, 24, 100),
}


def number_of(arch: str) -> int:
    """Return an architecture's number: 90 for sm_90a."""
    return int(arch.removeprefix("sm_").rstrip("af"))


def most_shared_bytes(arch: str) -> int:
    """Return the most shared memory of a block, with the opt-in for dynamic memory."""
    limits = _LIMITS.get(number_of(arch))
    return _SHARED_KIB_OF_BLOCK * 1024 if limits is None else limits.shared_kib * 1024 - limits.reserved


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Hold the number of resident warps of an SM, their share of the maximum, and the resource that limits them."""

    warps: int
    share: float
    limited_by: str


def occupancy_of(arch: str, resources: KernelResources, threads: int, dynamic_shared_bytes: int) -> Occupancy | None:
    """Return the occupancy of a launch with so many threads a block; None for an architecture of unknown limits."""
    limits = _LIMITS.get(number_of(arch))
    if limits is None:
        return None
    warps = math.ceil(threads / WARP)
    registers = _whole(max(resources.registers, 1) * WARP, _REGISTER_UNIT)
    shared = _whole(resources.shared_bytes + dynamic_shared_bytes + limits.reserved, limits.unit)
    blocks = {
        "threads": limits.warps // warps,
        "blocks": limits.blocks,
        "registers": _QUARTERS * (_REGISTERS_OF_QUARTER // registers) // warps,
        "shared memory": limits.shared_kib * 1024 // shared if shared else limits.blocks,
    }
    limited_by = min(blocks, key=lambda name: blocks[name])
    resident = blocks[limited_by] * warps
    return Occupancy(resident, resident / limits.warps, limited_by)


def _whole(amount: int, unit: int) -> int:
    return math.ceil(amount / unit) * unit
