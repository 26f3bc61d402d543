"""Describe the host from /proc and /sys: its processors and memory, this process's share of them, and other users."""

from __future__ import annotations

import hashlib
import os
import platform
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path, PurePosixPath

from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Fact
from pytest_bandwidth.domain.interpreter import clock

_SIZE = re.compile(r"(\d+)([KMG]?)")
_UNITS = {"": 1, "K": 2**10, "M": 2**20, "G": 2**30}
LARGEST_FILE_BYTES = 1 << 20


def identify(threads: int | None, root: Path = Path("/")) -> DeviceIdentity:
    """Identify this host. threads: how many the kernels run on, None without Numba. root: holds proc, sys and etc."""
    facts: dict[str, Fact] = {
        **{f"l{level}_bytes": size for level, size in cache_bytes(root).items()},
        "processors": os.cpu_count(),
        "smt": {"1": True, "0": False}.get(_text(root / "sys/devices/system/cpu/smt/active") or ""),
        "governor": _text(root / "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
        "numa_nodes": count_numa_nodes(root),
        "transparent_hugepages": huge_pages(root)[0],
        "operating_system": f"{platform.system()} {platform.release()}",
        "architecture": platform.machine(),
        "numpy": installed_version("numpy"),
        "numba": installed_version("numba"),
    }
    usable = str(len(usable_processors()))
    settings = {"threads": "numpy" if threads is None else str(threads), "processors_usable": usable}
    return DeviceIdentity("cpu", processor_name(root), memory_bytes(root), serial(root), settings, facts)


def processor_name(root: Path = Path("/")) -> str:
    """Return the processor's model, such as ``AMD EPYC 7763 64-Core Processor``."""
    for line in (_text(root / "proc/cpuinfo") or "").splitlines():
        key, _, value = line.partition(":")
        if key.strip() in ("model name", "Model", "cpu model", "Processor") and value.strip():
            return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown processor"


def memory_bytes(root: Path = Path("/"), name: str = "MemTotal") -> int | None:
    """Return the host's memory, or another number of bytes in /proc/meminfo; None where unknown."""
    found = re.search(rf"^{name}:\s*(\d+) kB", _text(root / "proc/meminfo") or "", re.MULTILINE)
    return int(found[1]) * 1024 if found else None


def serial(root: Path = Path("/")) -> str:
    """Return a host's id that does not reveal its name: a hash of the machine id, else of the host name."""
    identity = _text(root / "etc/machine-id") or platform.node()
    return "host-" + hashlib.sha256(f"pytest-bandwidth {identity}".encode()).hexdigest()[:12]


def cache_bytes(root: Path = Path("/")) -> dict[str, int | None]:
    """Return the bytes of processor 0's data or unified cache by level, 1 to 3, from sysfs; None where unknown.

    A host reports a whole socket's last level, even to a virtual machine that has a few of its cores.
    """
    sizes: dict[str, int | None] = dict.fromkeys("123")
    for index in sorted((root / "sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = (_text(index / name) for name in ("level", "type", "size"))
        match = _SIZE.fullmatch(size or "")
        if level in sizes and kind in ("Data", "Unified") and match:
            sizes[level] = int(match[1]) * _UNITS[match[2]]
    return sizes


def last_cache_bytes(root: Path = Path("/")) -> int | None:
    """Return the bytes of the last cache level of known size."""
    return next((size for _, size in sorted(cache_bytes(root).items(), reverse=True) if size), None)


def count_numa_nodes(root: Path = Path("/")) -> int | None:
    """Return how many memory nodes the host has; None where unknown."""
    nodes = [p for p in (root / "sys/devices/system/node").glob("node*") if p.name[4:].isdigit()]
    return len(nodes) or None


def huge_pages(root: Path = Path("/")) -> tuple[str | None, int | None]:
    """Return which memory gets huge pages (`always`, `madvise` or `never`), and their bytes; None where unknown."""
    folder = root / "sys/kernel/mm/transparent_hugepage"
    size = _text(folder / "hpage_pmd_size") or ""
    chosen = re.search(r"\[(\w+)\]", _text(folder / "enabled") or "")  # always [madvise] never
    return chosen[1] if chosen else None, int(size) if size.isascii() and size.isdigit() else None


def usable_processors() -> list[int]:
    """Return processors that this process may run on."""
    return sorted(os.sched_getaffinity(0))


def _text(path: Path) -> str | None:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.read(LARGEST_FILE_BYTES).strip() or None
    except OSError:
        return None


def installed_version(distribution: str) -> str | None:
    """Return a distribution's version; None where it is not installed."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


# A group's files for its limit and its use, and the entries of `memory.stat` that the system reclaims before it kills a
# process. Source: Linux's admin-guide/cgroup-v2.rst and cgroup-v1/memory.rst.
_Names = tuple[str, str, tuple[str, ...]]
_VERSION_2: _Names = ("memory.max", "memory.current", ("active_file", "inactive_file", "slab_reclaimable"))
_VERSION_1: _Names = ("memory.limit_in_bytes", "memory.usage_in_bytes", ("total_active_file", "total_inactive_file"))


def available_bytes(root: Path = Path("/")) -> int | None:
    """Return the memory that is available without swapping or an out-of-memory kill; None where unknown."""
    known = [left for _, left in _groups(root)]
    if (of_system := memory_bytes(root, "MemAvailable")) is not None:
        known.append(of_system)
    return max(0, min(known)) if known else None


def limit_bytes(root: Path = Path("/")) -> int | None:
    """Return the least limit of the process's control groups; None without a limit."""
    return min((limit for limit, _ in _groups(root)), default=None)


def _groups(root: Path) -> Iterator[tuple[int, int]]:
    """Yield the limits of the process's groups, from its own outwards, each with the bytes left."""
    for (limit_file, used_file, reclaimed), folder in _folders(root):
        with suppress(OSError, ValueError):  # the outermost has no such files, and a limit may be `max`
            limit, used = (int((folder / name).read_text(encoding="ascii")) for name in (limit_file, used_file))
            given_up = 0
            with suppress(OSError, ValueError):
                stat = [line.split() for line in _lines(folder / "memory.stat")]
                given_up = sum(int(value) for key, value in stat if key in reclaimed)
            yield limit, limit - used + given_up


def _folders(root: Path) -> Iterator[tuple[_Names, Path]]:
    """Yield the folders of the process's groups that are mounted, from its own to the outermost.

    A line of proc_pid_mountinfo(5) describes a mount: … root, mount point, …, a hyphen, type, source, options.
    """
    try:
        mounts, own = _lines(root / "proc/self/mountinfo"), _lines(root / "proc/self/cgroup")
    except OSError:
        return
    for mount in mounts:
        before, _, after = mount.partition(" - ")
        match before.split(), after.split():
            case [_, _, _, mounted, mount_point, *_], ["cgroup2", *_]:
                names = _VERSION_2
            case [_, _, _, mounted, mount_point, *_], ["cgroup", _, options] if "memory" in options.split(","):
                names = _VERSION_1
            case _:
                continue
        for line in own:
            controllers, _, path = line.partition(":")[2].partition(":")
            is_meant = controllers == "" if names is _VERSION_2 else "memory" in controllers.split(",")
            with suppress(ValueError):  # it lies outside of the mount
                group = PurePosixPath(path).relative_to(mounted)
                if is_meant and ".." not in group.parts:
                    yield from ((names, root / mount_point.lstrip("/") / one) for one in (group, *group.parents))


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="surrogateescape").splitlines()


# Less than this share of one processor is the background of any system.
LEAST_NAMED_SHARE = 0.05
MOST_NAMED = 3
HYPERVISOR = "hypervisor"
# Many hosts have thousands of processes; more than this are not worth the time to read them.
MOST_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Activity:
    """Hold the processor seconds used up to a moment: by each other process (name and id), and by the hypervisor."""

    at: float = 0.0
    by_process: Mapping[tuple[int, str], float] = field(default_factory=dict)
    stolen: float | None = None


class ActivityWatch:
    """Report other processes' use of the host since the last report."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._read()

    def restart(self) -> None:
        """Leave out all use up to now."""
        self._before = self._read()

    def conditions(self) -> Conditions:
        """Return the host's state; `others` as ``name (process id): 0.83 processors`` since the last call."""
        before, now = self._before, self._read()
        self._before = now
        shares = shares_between(before, now)
        load_average = None
        with suppress(OSError):
            load_average = os.getloadavg()[0]
        return Conditions(
            others=busiest(shares),
            others_processors=sum(shares.values()) if now.by_process else None,
            stolen_processors=None if now.stolen is None else shares.get(HYPERVISOR, 0.0),
            load_average=load_average,
        )

    def _read(self) -> Activity:
        proc = self._root / "proc"
        if not (proc / "stat").is_file():
            return Activity(clock.monotonic())
        ticks = os.sysconf("SC_CLK_TCK")
        by_process = {}
        own = {os.getpid(), *remembered()}
        entries = [entry.name for entry in os.scandir(proc) if entry.name.isdigit()][:MOST_PROCESSES]
        for name in entries:
            with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
                program, fields = process_stat(proc / name / "stat")
                seconds = (int(fields[11]) + int(fields[12])) / ticks
                if int(name) not in own:
                    by_process[(int(name), "".join(c for c in program if c.isprintable()))] = seconds
        at = clock.monotonic()
        stolen = None
        with suppress(OSError, ValueError, IndexError):
            # cpu user nice system idle iowait irq softirq steal … (man 5 proc_stat)
            stolen = int((proc / "stat").read_text(encoding="ascii").split("\n", 1)[0].split()[8]) / ticks
        return Activity(at, by_process, stolen)


def shares_between(before: Activity, after: Activity) -> dict[str, float]:
    """Return the processors used between two moments by each other process, and by the hypervisor."""
    elapsed = after.at - before.at
    if elapsed <= 0:
        return {}
    shares = {
        f"{name} ({pid})": (seconds - before.by_process.get((pid, name), seconds)) / elapsed
        for (pid, name), seconds in after.by_process.items()
    }
    if after.stolen is not None and before.stolen is not None:
        shares[HYPERVISOR] = (after.stolen - before.stolen) / elapsed
    return {who: share for who, share in shares.items() if share > 0}


def busiest(shares: Mapping[str, float]) -> tuple[str, ...]:
    """Return texts for the users with the largest shares, the largest first."""
    named = sorted(((share, who) for who, share in shares.items() if share >= LEAST_NAMED_SHARE), reverse=True)
    return tuple(f"{who}: {share:.2f} processors" for share, who in named[:MOST_NAMED])


def process_stat(stat: Path) -> tuple[str, list[str]]:
    """Return a process's name, and the fields behind it (man 5 proc_pid_stat). Raises OSError, ValueError."""
    text = stat.read_text(encoding="utf-8", errors="replace")
    # The name is in parentheses and may hold any character, so it ends at the last one.
    start, end = text.index("("), text.rindex(")")
    return text[start + 1 : end], text[end + 2 :].split()


# Processes that do not count as others: those that this one started, and one that alternates with it. A GPU's driver
# may report one as busy for a while after its end.
_ours: set[int] = set()


def remember(pid: int) -> None:
    """Count a process as ours from now on, also after its end."""
    _ours.add(pid)


def remembered() -> frozenset[int]:
    return frozenset(_ours)
