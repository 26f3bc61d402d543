"""Compute how many warps of a launch an SM holds at once, from what the compiler gave its kernel.

Limits are from NVIDIA's CUDA C++ Programming Guide, "Technical Specifications per Compute Capability". The units of
allocation, and that a quarter of an SM has a quarter of its registers, are from the toolkit's `cuda_occupancy.h`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from pytest_bandwidth.domain.measured.measurement import KernelResources

_WARP, _QUARTERS, _REGISTERS_OF_QUARTER, _REGISTER_UNIT = 32, 4, 16 * 1024, 256


class _Limits(NamedTuple):
    """Hold what an SM has. unit, reserved: of a block's shared memory, bytes that it is a multiple of, and CUDA's."""

    warps: int
    blocks: int
    shared_kib: int
    unit: int = 128
    reserved: int = 1024


_LIMITS = {
    "sm_75": _Limits(32, 16, 64, unit=256, reserved=0),
    "sm_80": _Limits(64, 32, 164),
    "sm_86": _Limits(48, 16, 100),
    "sm_87": _Limits(48, 16, 164),
    "sm_89": _Limits(48, 24, 100),
    "sm_90": _Limits(64, 32, 228),
    "sm_100": _Limits(64, 32, 228),
    "sm_103": _Limits(64, 32, 228),
    "sm_110": _Limits(48, 24, 228),
    "sm_120": _Limits(48, 24, 100),
    "sm_121": _Limits(48, 24, 100),
}


@dataclass(frozen=True, slots=True)
class Occupancy:
    """Hold how many warps an SM holds at once, which share of its most that is, and what allows no more."""

    warps: int
    share: float
    limited_by: str


def occupancy_of(arch: str, resources: KernelResources, threads: int, dynamic_shared_bytes: int) -> Occupancy | None:
    """Return the occupancy of a launch with so many threads a block; None for an architecture of unknown limits."""
    limits = _LIMITS.get(arch.rstrip("af"))
    if limits is None:
        return None
    warps = math.ceil(threads / _WARP)
    registers = _whole(max(resources.registers, 1) * _WARP, _REGISTER_UNIT)
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
