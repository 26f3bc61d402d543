"""Read what a compiled kernel tells of itself, as Triton's does: its machine code, registers and spills."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_bandwidth.domain.measured.measurement import KernelResources

# Machine code, by the name of its format: NVIDIA's, AMD's.
_MACHINE_CODE = ("cubin", "hsaco")
# Triton counts spilled registers, of four bytes each.
REGISTER_BYTES = 4


def is_compiled(kernel: object) -> bool:
    """Return whether it tells its code by format in ``asm``, as a compiled kernel of Triton does."""
    return isinstance(getattr(kernel, "asm", None), Mapping)


def machine_code(kernel: Any) -> bytes | None:
    """Return a compiled kernel's machine code; None where it has none."""
    found = next((kernel.asm[name] for name in _MACHINE_CODE if kernel.asm.get(name)), None)
    return bytes(found) if isinstance(found, (bytes, bytearray)) else None


def compiled_resources(kernel: Any) -> KernelResources | None:
    """Return a compiled kernel's registers, spilled bytes and shared memory.

    None for anything else, and where it does not tell before it has been launched.
    """
    if not is_compiled(kernel):
        return None
    registers, spilled = (getattr(kernel, name, None) for name in ("n_regs", "n_spills"))
    if not isinstance(registers, int) or not isinstance(spilled, int):
        return None
    shared = getattr(getattr(kernel, "metadata", None), "shared", 0)
    return KernelResources(registers, spilled * REGISTER_BYTES, shared if isinstance(shared, int) else 0)
