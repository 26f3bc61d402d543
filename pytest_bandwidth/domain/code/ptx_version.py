"""Read and lower the version of the PTX language that a module says it is in.

A compiler writes its own version, whatever the module uses. A driver refuses each version newer than its own.
"""

from __future__ import annotations

import re

Version = tuple[int, int]
_LINE = re.compile(r"\A\.version (\d{1,3})\.(\d{1,3})$", re.MULTILINE | re.ASCII)
_TARGET = re.compile(r"^\.target (\w+)", re.MULTILINE | re.ASCII)


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
