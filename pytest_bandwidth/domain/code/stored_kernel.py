"""Read the stored parts of a kernel (its PTX, its machine code, its launch), and describe their changes.

Machine code is the file that NVRTC made (a cubin), which only a GPU's driver opens.
"""

from __future__ import annotations

import re
from base64 import b64decode, b64encode
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import NamedTuple

Version = tuple[int, int]
_LINE = re.compile(r"\A\.version (\d{1,3})\.(\d{1,3})$", re.MULTILINE | re.ASCII)
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE | re.ASCII)
_ENTRY = re.compile(r"\.entry\s+([%$A-Za-z_][\w$]*)\s*(?:\(([^)]*)\))?", re.ASCII)
_PARAMETER = re.compile(r"\.param\b[^,\[]*?\.(?:[bsuf](8|16|32|64|128)|(f16x2))\b[^,\[]*(?:\[(\d+)\])?", re.ASCII)
# A variable without an initialiser: the host sets it, or kernels keep a value in it from launch to launch.
_UNSET = re.compile(
    r"^\s*(?:\.\w+\s+)*?\.(?:global|const)\b[^;={]*?([%$A-Za-z_][\w$]*)\s*(?:\[[^\]]*\]\s*)*;", re.M | re.A
)


def version_of(ptx: str) -> Version | None:
    """Return the PTX version in a module's first line; None where that line has no version."""
    found = _LINE.match(ptx)
    return None if found is None else (int(found[1]), int(found[2]))


def in_version(ptx: str, version: Version) -> str:
    """Return a module with another version in its first line."""
    return _LINE.sub(f".version {version[0]}.{version[1]}", ptx, count=1)


def newest_version(cuda: Version) -> Version:
    """Return the newest PTX version that a driver of a CUDA version accepts (PTX ISA, "Release Notes")."""
    major, minor = cuda
    if major == 12 and minor > 5:
        return 8, 5 if minor == 6 else minor - 1
    return major - 4, minor


def target_of(ptx: str) -> str | None:
    """Return the architecture that a module was compiled for, such as ``sm_90``; None where it names no target."""
    found = _TARGET.search(ptx)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class PtxEntry:
    """Hold a kernel's name, the bytes of each parameter, and the variables of its module without an initialiser."""

    name: str
    parameter_bytes: tuple[int, ...]
    unset_variables: tuple[str, ...]


def entry_of(ptx: str) -> PtxEntry | None:
    """Return the module's kernel; None where it has none, or more than one."""
    entries = list(_ENTRY.finditer(ptx))
    if len(entries) != 1:
        return None
    name, parameters = entries[0].groups()
    sizes = [
        (4 if packed else int(bits or 0) // 8) * int(count or 1)
        for bits, packed, count in _PARAMETER.findall(parameters or "")
    ]
    return PtxEntry(name, tuple(sizes), tuple(_UNSET.findall(ptx[: entries[0].start()])))


def why_not_interchangeable(old: str, new: str) -> str | None:
    """Return why the old kernel must not be launched with the new one's arguments; None where it may."""
    before, now = entry_of(old), entry_of(new)
    if before is None:
        return "its PTX holds no kernel, or several"
    if now is None:
        return "the new PTX holds no kernel, or several"
    if before.parameter_bytes != now.parameter_bytes:
        takes = [f"parameters of {', '.join(map(str, one.parameter_bytes)) or 'no'} bytes" for one in (before, now)]
        return f"it takes {takes[0]}, the new one {takes[1]}"
    if before.unset_variables:
        return f"it uses {', '.join(before.unset_variables)}, which the host or other kernels may set"
    return None


CONTEXT_LINES = 3
MOST_LINES = 400
# Characters of a line: a table of constants is written in one line.
LONGEST_LINE = 400
# With more lines on a side, lines that occur often are not aligned: that would take minutes.
ALIGNED_LINES = 3000
ONLY_REGISTERS = "the same instructions, in other registers"
_NUMBER = re.compile(r"(?<=[%$][A-Za-z])\d+|(?<=%[A-Za-z]{2})\d+|(?<=%[A-Za-z]{3})\d+")
_ACCESS = re.compile(r"\b(ld|st)\.(?:\w+\.)*?global\.(?:[\w:]+\.)*?(?:v([248])\.)?[bsuf](8|16|32|64|128)\b")
_KINDS = {"ld": "loads", "st": "stores"}


def ptx_diff(old: str, new: str) -> str:
    """Return the lines that differ, removed ones with ``-`` and added ones with ``+``, and some lines of context.

    The numbers of registers are not compared.
    """
    before, after = old.splitlines(), new.splitlines()
    old_lines, new_lines = ([_NUMBER.sub("", line) for line in lines] for lines in (before, after))
    matcher = SequenceMatcher(None, old_lines, new_lines, autojunk=max(len(before), len(after)) > ALIGNED_LINES)
    lines: list[str] = []
    for group in matcher.get_grouped_opcodes(CONTEXT_LINES):
        lines.append(f"@@ line {group[0][1] + 1} → {group[0][3] + 1} @@")
        for tag, start, end, new_start, new_end in group:
            if tag == "equal":
                lines += [f"  {line}" for line in after[new_start:new_end]]
            else:
                lines += [f"- {line}" for line in before[start:end]]
                lines += [f"+ {line}" for line in after[new_start:new_end]]
    if not lines and before != after:
        return ONLY_REGISTERS
    if len(lines) > MOST_LINES:
        lines = [*lines[:MOST_LINES], f"… {len(lines) - MOST_LINES} more lines"]
    return "\n".join(line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in lines)


def access_changes(old: str, new: str) -> str | None:
    """Describe which loads and stores of global memory, by width, the code has more or less often; else None."""
    before, after = _accesses(old), _accesses(new)
    changes = [
        f"{_KINDS[kind]} of {bits} bits {before[kind, bits]} → {after[kind, bits]}"
        for kind, bits in sorted({*before, *after})
        if before[kind, bits] != after[kind, bits]
    ]
    return f"in its code, {', '.join(changes)}" if changes else None


def _accesses(ptx: str) -> Counter[tuple[str, int]]:
    return Counter((kind, int(of or 1) * int(bits)) for kind, of, bits in _ACCESS.findall(ptx))


# In an entry's `code`, the hash of the file that the kernel was loaded from. It is not compared.
CUBIN = "cubin"
# The largest PTX or machine code that is stored.
LARGEST_BYTES = 8 * 2**20
# Returns the file that an entry's `code` identifies, None where no file was stored; or raises BandwidthError.
CubinSource = Callable[[Mapping[str, str]], bytes | None]


def text_of_cubin(cubin: bytes) -> str:
    """Return machine code as text for JSON."""
    return b64encode(cubin).decode()


def cubin_of_text(text: object) -> bytes | None:
    """Return machine code from its text; None for any other value, or where it is too large."""
    if not isinstance(text, str) or len(text) > 4 * LARGEST_BYTES // 3 + 4:
        return None
    try:
        return b64decode(text, validate=True)
    except ValueError:
        return None


_AXES = "xyz"
_SHARED = "dynamic_shared_bytes"


class LaunchShape(NamedTuple):
    """Hold a launch's grid (blocks), block (threads), and dynamic shared memory a block in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    def recorded(self) -> dict[str, int]:
        """Return the shape as whole numbers by name, without extents of 1 along y or z, or 0 bytes."""
        found: dict[str, int] = {}
        for name, extents in (("grid", self.grid), ("block", self.block)):
            found |= {f"{name}_{axis}": n for axis, n in zip(_AXES, extents, strict=True) if axis == "x" or n != 1}
        return found | ({_SHARED: self.shared_bytes} if self.shared_bytes else {})


def shape_of(recorded: Mapping[str, int]) -> LaunchShape | None:
    """Return the shape from `LaunchShape.recorded`; None where no shape was recorded."""
    if "grid_x" not in recorded or "block_x" not in recorded:
        return None
    grid, block = (tuple(recorded.get(f"{name}_{axis}", 1) for axis in _AXES) for name in ("grid", "block"))
    return LaunchShape((grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), recorded.get(_SHARED, 0))


def shape_changes(then: LaunchShape, now: LaunchShape) -> list[str]:
    """Describe the changes of a launch: grid 4,096 → 8,192."""
    changes = [
        f"{name} {_extents(before)} → {_extents(after)}"
        for name, before, after in (("grid", then.grid, now.grid), ("block", then.block, now.block))
        if before != after
    ]
    if then.shared_bytes != now.shared_bytes:
        changes.append(f"dynamic shared memory {then.shared_bytes:,} → {now.shared_bytes:,} B a block")
    return changes


def _extents(extents: tuple[int, int, int]) -> str:
    last = 3 if extents[2] != 1 else 2 if extents[1] != 1 else 1
    return " × ".join(f"{n:,}" for n in extents[:last])
