"""Tell how much memory of the host can be had: by the system, and within the limits of the process's control groups."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class _Names:
    """Name the files of a group. reclaimed: of `memory.stat`, what is given up before a process is ended for memory."""

    limit: str
    used: str
    reclaimed: tuple[str, ...]


# Linux's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
_VERSION_2 = _Names("memory.max", "memory.current", ("active_file", "inactive_file", "slab_reclaimable"))
_VERSION_1 = _Names("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))


@dataclass(frozen=True, slots=True)
class _Group:
    """Hold one control group of memory: its limit, and how much of that is left."""

    limit: int
    left: int


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return memory that can be had without swapping, or being ended for it; None where the system does not tell."""
    of_system = _of_system(root)
    known = [*([] if of_system is None else [of_system]), *(group.left for group in _groups(root))]
    return max(0, min(known)) if known else None


def limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the least limit of the process's control groups; None where there is none."""
    return min((group.limit for group in _groups(root)), default=None)


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


def _groups(root: Path) -> Iterator[_Group]:
    """Yield the groups that have a limit, of those that the process is in, each in the one before it."""
    for names, folder in _folders(root):
        with suppress(OSError, ValueError):  # the outermost has no such files, and a limit may be `max`
            limit, used = (int((folder / name).read_text(encoding="ascii")) for name in (names.limit, names.used))
            yield _Group(limit, limit - used + _reclaimed(folder / "memory.stat", names.reclaimed))


def _folders(root: Path) -> Iterator[tuple[_Names, Path]]:
    """Yield the folders of the process's groups that are mounted, from its own to the outermost."""
    try:
        mounts, own = _lines(root / "proc/self/mountinfo"), _lines(root / "proc/self/cgroup")
    except OSError:
        return
    for mounted, mount_point, is_version_2 in _mounts(mounts):
        for line in own:
            _, _, rest = line.partition(":")
            controllers, _, path = rest.partition(":")
            if is_version_2 if controllers == "" else not is_version_2 and "memory" in controllers.split(","):
                names = _VERSION_2 if is_version_2 else _VERSION_1
                yield from ((names, root / mount_point.lstrip("/") / group) for group in _below(mounted, path))


def _mounts(lines: Sequence[str]) -> Iterator[tuple[str, str, bool]]:
    """Yield where groups that may limit memory are mounted: which group, where, and whether those are of version 2.

    Lines are those of proc_pid_mountinfo(5): … root, mount point, …, a hyphen, the type, the source, its options.
    """
    for line in lines:
        before, _, after = line.partition(" - ")
        match before.split(), after.split():
            case [_, _, _, mounted, mount_point, *_], ["cgroup2", *_]:
                yield mounted, mount_point, True
            case [_, _, _, mounted, mount_point, *_], ["cgroup", _, options] if "memory" in options.split(","):
                yield mounted, mount_point, False


def _below(mounted: str, path: str) -> Iterator[PurePosixPath]:
    """Yield the group of that path and those around it, from what is mounted; none of what lies outside of that."""
    with suppress(ValueError):
        group = PurePosixPath(path).relative_to(mounted)
        if ".." not in group.parts:
            yield from (group, *group.parents)


def _reclaimed(stat: Path, keys: Collection[str]) -> int:
    with suppress(OSError, ValueError):
        return sum(int(value) for key, value in (line.split() for line in _lines(stat)) if key in keys)
    return 0


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
