"""Find the peak of a GPU: the datasheet's, or else NVML's arithmetic; the user's comes before both (see `session.run`).

A peak that is not known stays unknown: a MIG slice or a vGPU does not get its parent's, and a card that no row names
gets arithmetic only where the arithmetic is known to hold.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_bandwidth.devices.datasheets import DATASHEETS
from pytest_bandwidth.devices.datasheets import Datasheet as Datasheet
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.roofline import interface_bytes_per_second

# A driver keeps up to a few per cent of the memory for itself and ECC, so sizes are compared with this slack.
MEMORY_SLACK = 0.06
# Compute-capability majors on which 2 × maximum memory clock × bus width ÷ 8 gives the datasheet's figure.
# 10 (B200) is out: the bus width that NVML reports for it changed between drivers.
ARITHMETIC_HOLDS_FOR = frozenset({6, 7, 8, 9, 12})
_ALIASES = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}


@dataclass(frozen=True, slots=True)
class MemoryArithmetic:
    """Hold what NVML says of the memory interface. `major` is the compute capability's."""

    max_memory_clock_mhz: float
    bus_width_bits: int
    major: int
    integrated: bool = False


def arithmetic_peak(memory: MemoryArithmetic) -> Peak | None:
    """Compute 2 × maximum memory clock × bus width ÷ 8, in bytes/s; None where that is not known to hold.

    The factor 2: NVML reports a clock of which both edges carry a bit on each line, for HBM and every GDDR alike.
    It must be the *maximum* clock: the current one is low on an idle GPU.
    """
    if memory.integrated or memory.major not in ARITHMETIC_HOLDS_FOR:
        return None
    if memory.max_memory_clock_mhz <= 0 or memory.bus_width_bits <= 0:
        return None
    bytes_per_second = interface_bytes_per_second(2 * memory.max_memory_clock_mhz * 1e6, memory.bus_width_bits)
    return Peak(
        bytes_per_second,
        f"NVML: 2 × {memory.max_memory_clock_mhz:.0f} MHz × {memory.bus_width_bits} bit ÷ 8 (no datasheet on file)",
    )


def is_slice(identity: DeviceIdentity) -> bool:
    """Return whether the device is a part of a GPU (MIG) or a share of one (vGPU): no peak of the whole applies."""
    mig = identity.settings.get("mig", "disabled")
    return mig not in ("disabled", "unsupported") or identity.settings.get("virtual") == "vgpu"


def find_datasheet(identity: DeviceIdentity, table: Sequence[Datasheet] = DATASHEETS) -> Datasheet | None:
    """Return the device's row, by full name (NVIDIA) or gfx name (AMD), and by memory size where rows differ in it."""
    if is_slice(identity):
        return None
    gfx = identity.facts.get("gfx")
    for row in table:
        named = row.gfx == gfx if row.gfx is not None else re.fullmatch(row.name, identity.name, re.IGNORECASE)
        if named and _same_memory(row.memory_gib, identity.memory_bytes):
            return row
    return None


def _same_memory(expected_gib: float | None, found_bytes: int | None) -> bool:
    if expected_gib is None:
        return True
    return found_bytes is not None and abs(found_bytes / 2**30 / expected_gib - 1) <= MEMORY_SLACK


def choose_peak(
    identity: DeviceIdentity,
    table: Sequence[Datasheet] = DATASHEETS,
    nvml: MemoryArithmetic | None = None,
) -> Peak | None:
    """Return the device's peak with its source, from its datasheet or else by NVML's arithmetic; None where unknown."""
    row = find_datasheet(identity, table)
    if row is not None:
        return Peak(row.gbps * 1e9, row.source)
    if nvml is None or is_slice(identity):
        return None
    return arithmetic_peak(nvml)


def datasheet_flops(identity: DeviceIdentity, precision: str, table: Sequence[Datasheet] = DATASHEETS) -> float | None:
    """Return dense FLOP/s of a precision (``fp32``, ``fp16-tensor`` …, or a dtype's name); None where not on file."""
    row = find_datasheet(identity, table)
    if row is None:
        return None
    tflops = row.tflops.get(_ALIASES.get(precision, precision))
    return None if tflops is None else tflops * 1e12
