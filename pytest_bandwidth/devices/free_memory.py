"""Tell how much memory of the host can be had: by the system, and within the limits of the process's control groups."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Names:
    """Name the files of one version of control groups, below what is mounted there."""

    mounted: str
    limit: str
    used: str
    # Of `memory.stat`: cached files that are given up first.
    reclaimed: str


# Documentation/admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst of Linux.
_VERSION_2 = _Names("sys/fs/cgroup", "memory.max", "memory.current", "inactive_file")
_VERSION_1 = _Names("sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return memory that can be had without swapping, or being ended for it; None where the system does not tell."""
    of_system = _of_system(root)
    return None if of_system is None else max(0, min([of_system, *_of_groups(root)]))


def _of_system(root: Path) -> int | None:
    try:
        for line in _lines(root / "proc/meminfo"):
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        return None
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return None


def _of_groups(root: Path) -> Iterator[int]:
    """Yield what each group that the process is in has left, as far as it has a limit."""
    for names, folder in _groups(root):
        try:
            limit, used = (int((folder / name).read_text(encoding="ascii")) for name in (names.limit, names.used))
            yield limit - used + _reclaimed(folder / "memory.stat", names.reclaimed)
        except (OSError, ValueError):  # there is none of this name, or its limit is `max`
            continue


def _groups(root: Path) -> Iterator[tuple[_Names, Path]]:
    """Yield the folders of the process's groups, each with those around it.

    In a container a group may be called as the host knows it, and what is mounted be the group itself.
    """
    try:
        lines = _lines(root / "proc/self/cgroup")
    except OSError:
        return
    for line in lines:
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if controllers and "memory" not in controllers.split(","):
            continue
        names = _VERSION_1 if controllers else _VERSION_2
        below = PurePosixPath(path.lstrip("/"))
        for group in (below, *below.parents):
            if ".." not in group.parts:  # a group outside of what this process sees
                yield names, root / names.mounted / group


def _reclaimed(stat: Path, key: str) -> int:
    try:
        return next((int(line.split()[1]) for line in _lines(stat) if line.startswith(f"{key} ")), 0)
    except (OSError, ValueError, IndexError):
        return 0


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="ascii", errors="replace").splitlines()
