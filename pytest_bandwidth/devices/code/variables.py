"""Find a module's __constant__ and __device__ variables, and check the values that a test sets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from math import prod

import numpy as np

from pytest_bandwidth.devices.arguments import misread
from pytest_bandwidth.devices.base import KernelSource
from pytest_bandwidth.devices.code.cubin import MAGIC, UNREADABLE, read_elf
from pytest_bandwidth.domain.code.kernel_signature import type_of_variable
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import listed, shown

MOST_NAMES = 10
# In a cubin __constant__ variables have a section of their own; parameters lie in another.
_SECTIONS = (".nv.constant3", ".nv.global", ".nv.global.init")
_DECLARATION = re.compile(
    r"^[ \t]*(?:\.\w+[ \t]+)*?\.(?:global|const)\b(?:[ \t]+\.align[ \t]+\d+)?[ \t]+(?:\.v([24])[ \t]+)?"
    r"\.[a-z]+(\d+)[ \t]+([%$A-Za-z_][\w$]*)((?:\[\d+\])*)",
    re.MULTILINE | re.ASCII,
)


def variable_sizes(code: bytes) -> dict[str, int]:
    """Return the bytes of each variable in a cubin or in PTX, by its symbol."""
    if not code.startswith(MAGIC):
        return {
            name: int(vector or 1) * int(bits) // 8 * prod(map(int, re.findall(r"\d+", extents)))
            for vector, bits, name, extents in _DECLARATION.findall(code.decode("utf-8", "replace"))
        }
    try:
        elf = read_elf(code)
        held = {section.number for section in elf.sections if section.name in _SECTIONS}
        return {one.name: one.size for one in elf.symbols() if one.section in held and one.size}
    except UNREADABLE:
        return {}


def checked_contents(variable: object, value: object, sizes: Mapping[str, int], source: KernelSource) -> bytes:
    """Return the bytes to set a variable to. source: the kernel's.

    Raises UsageError for no array, no such variable, another size and, where the source names it, another type.
    """
    if not isinstance(value, np.ndarray | np.generic) or value.dtype.hasobject:
        raise UsageError(f"kernel.set: found {shown(value)} for {shown(variable)}, expected an array or a NumPy scalar")
    if not isinstance(variable, str) or variable not in sizes:
        names = listed(sorted(sizes), MOST_NAMES) or "none"
        raise UsageError(
            f"kernel.set: the kernel's module has no variable {shown(variable)}, it has {names}; "
            "compilers leave out those that no code uses"
        )
    if value.nbytes != sizes[variable]:
        expected = f"expected an array of {sizes[variable]} bytes"
        raise UsageError(f"kernel.set: found {value.nbytes} bytes ({value.dtype}) for {variable}, {expected}")
    kind = type_of_variable(source.text, variable)
    if misread(value.dtype, kind):
        raise UsageError(f"kernel.set: found {value.dtype} for {variable}, expected an array of its type, {kind}")
    return value.tobytes()


def variable_settings(digests: Mapping[str, str]) -> tuple[str, ...]:
    """Return what identifies a launch of a kernel whose variables were set, by the hashes of their contents."""
    return tuple(f"variable {name} {digests[name]}" for name in sorted(digests))
