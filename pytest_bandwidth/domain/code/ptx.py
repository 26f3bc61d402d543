"""Read what a stored kernel's PTX says of itself: its version, its target, its kernel's parameters."""

from __future__ import annotations

import re
from dataclasses import dataclass

Version = tuple[int, int]
_LINE = re.compile(r"\A\.version (\d{1,3})\.(\d{1,3})$", re.MULTILINE | re.ASCII)
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE | re.ASCII)
_ENTRY = re.compile(r"\.entry\s+([%$A-Za-z_][\w$]*)\s*(?:\(([^)]*)\))?", re.ASCII)
_PARAMETER = re.compile(r"\.param\b[^,\[]*?\.(?:[bsuf](8|16|32|64|128)|(f16x2))\b[^,\[]*(?:\[(\d+)\])?", re.ASCII)
# A variable that nothing initialises: the host sets it, or kernels keep something in it from launch to launch.
_UNSET = re.compile(
    r"^\s*(?:\.\w+\s+)*?\.(?:global|const)\b[^;={]*?([%$A-Za-z_][\w$]*)\s*(?:\[[^\]]*\]\s*)*;", re.M | re.A
)


def version_of(ptx: str) -> Version | None:
    """Return the version in a module's first line; None where that is another line."""
    found = _LINE.match(ptx)
    return None if found is None else (int(found[1]), int(found[2]))


def in_version(ptx: str, version: Version) -> str:
    """Return a module with another version in its first line."""
    return _LINE.sub(f".version {version[0]}.{version[1]}", ptx, count=1)


def newest_version(cuda: Version) -> Version:
    """Return the newest version that a driver of that version of CUDA takes (PTX ISA, "Release Notes")."""
    major, minor = cuda
    if major == 12 and minor > 5:
        return 8, 5 if minor == 6 else minor - 1
    return major - 4, minor


def target_of(ptx: str) -> str | None:
    """Return the architecture that a module was compiled for, as in ``sm_90``; None where it does not say."""
    found = _TARGET.search(ptx)
    return None if found is None else found[1]


@dataclass(frozen=True, slots=True)
class PtxEntry:
    """Hold a kernel's name, the bytes of each parameter, and the variables that its own code does not give a value."""

    name: str
    parameter_bytes: tuple[int, ...]
    unset_variables: tuple[str, ...]


def entry_of(ptx: str) -> PtxEntry | None:
    """Return the module's kernel; None where it has none, or more than one."""
    entries = list(_ENTRY.finditer(ptx))
    if len(entries) != 1:
        return None
    name, parameters = entries[0].groups()
    sizes = tuple(_bytes(*match.groups()) for match in _PARAMETER.finditer(parameters or ""))
    top = ptx[: entries[0].start()]
    return PtxEntry(name, sizes, tuple(_UNSET.findall(top)))


def why_not_interchangeable(old: str, new: str) -> str | None:
    """Return why the old kernel may not be launched in the new one's place, on its arguments; None where it may."""
    before, now = entry_of(old), entry_of(new)
    if before is None:
        return "its PTX holds no kernel, or several"
    if now is None:
        return "the new PTX holds no kernel, or several"
    if before.parameter_bytes != now.parameter_bytes:
        return f"it takes {_listed(before)}, the new one {_listed(now)}"
    if before.unset_variables:
        return f"it uses {', '.join(before.unset_variables)}, which the host or other kernels may set"
    return None


def _bytes(bits: str | None, packed: str | None, count: str | None) -> int:
    return (4 if packed else int(bits or 0) // 8) * int(count or 1)


def _listed(entry: PtxEntry) -> str:
    return f"parameters of {', '.join(map(str, entry.parameter_bytes)) or 'no'} bytes"
