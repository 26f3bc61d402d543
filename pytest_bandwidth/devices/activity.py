"""Find what else uses the processors: the load, time that a hypervisor took away, and busy processes."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pytest_bandwidth.domain.clock import clock
from pytest_bandwidth.domain.device import Conditions

# Less than this share of one processor is the background of any system.
WORTH_TELLING_SHARE = 0.05
MOST_TOLD = 3
HYPERVISOR = "hypervisor"
# man 5 proc_pid_comm: 15 bytes and a zero.
KERNEL_NAME_LENGTH = 15
LONGEST_NAME = 64
# Many hosts have thousands of processes; looking at more would cost more than it tells.
MOST_PROCESSES = 4096


@dataclass(frozen=True, slots=True)
class Activity:
    """Hold the processor seconds used up to a moment: by each other process (name and id), and by the hypervisor."""

    at: float = 0.0
    by_process: Mapping[tuple[int, str], float] = field(default_factory=dict)
    stolen: float | None = None


class ActivityWatch:
    """Tell what others did since it was last asked."""

    def __init__(self, root: Path = Path("/")) -> None:
        self._root = root
        self._before = self._read()

    def restart(self) -> None:
        """Leave out what was used so far."""
        self._before = self._read()

    def conditions(self) -> Conditions:
        """Return the host's state; `others` as ``name (process id): 0.83 processors`` since the last call."""
        before, now = self._before, self._read()
        self._before = now
        shares = shares_between(before, now)
        return Conditions(
            sm_clock_mhz=clock_mhz(self._root),
            others=told({_whole_name(self._root / "proc", who): share for who, share in shares.items()}),
            others_processors=sum(shares.values()) if now.by_process else None,
            stolen_processors=None if now.stolen is None else shares.get(HYPERVISOR, 0.0),
            load_average=_load_average(),
        )

    def _read(self) -> Activity:
        proc = self._root / "proc"
        ticks = _ticks_per_second()
        if ticks is None or not (proc / "stat").is_file():
            return Activity(clock.monotonic())
        by_process = {}
        own = {os.getpid(), *remembered()}
        entries = [entry.name for entry in os.scandir(proc) if entry.name.isdigit()][:MOST_PROCESSES]
        for name in entries:
            seconds = _process_seconds(proc / name / "stat", ticks)
            if seconds is not None and int(name) not in own:
                by_process[(int(name), seconds[0])] = seconds[1]
        return Activity(clock.monotonic(), by_process, _stolen_seconds(proc / "stat", ticks))


def shares_between(before: Activity, after: Activity) -> dict[str, float]:
    """Return processors used meanwhile, by whom: each other process, and the hypervisor."""
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


def told(shares: Mapping[str, float]) -> tuple[str, ...]:
    """Name the busiest that are worth telling, busiest first."""
    busiest = sorted(((share, who) for who, share in shares.items() if share >= WORTH_TELLING_SHARE), reverse=True)
    return tuple(f"{who}: {share:.2f} processors" for share, who in busiest[:MOST_TOLD])


def _whole_name(proc: Path, who: str) -> str:
    """Return ``name (process id)`` with the program's whole name: the kernel keeps 15 characters of it."""
    name, _, number = who.rpartition(" (")
    if len(name) < KERNEL_NAME_LENGTH:
        return who
    try:
        command = (proc / number.rstrip(")") / "cmdline").read_bytes()[:4096]
    except OSError:
        return who
    whole = Path(command.split(b"\0", 1)[0].decode(errors="replace")).name
    printable = "".join(c for c in whole if c.isprintable())[:LONGEST_NAME]
    return f"{printable} ({number}" if printable.startswith(name) else who


def clock_mhz(root: Path = Path("/")) -> float | None:
    """Return the mean clock of the processors where the system scales it and tells; a virtual machine does not."""
    clocks = []
    for path in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_cur_freq"):
        try:
            clocks.append(int(path.read_text(encoding="ascii")) / 1000)
        except (OSError, ValueError):
            continue
    return sum(clocks) / len(clocks) if clocks else None


def _process_seconds(stat: Path, ticks: int) -> tuple[str, float] | None:
    try:
        text = stat.read_text(encoding="utf-8", errors="replace")
        # The name is in parentheses and may hold any character, so it ends at the last one (man 5 proc_pid_stat).
        name = text[text.index("(") + 1 : text.rindex(")")]
        fields = text[text.rindex(")") + 2 :].split()
        return "".join(c for c in name if c.isprintable()), (int(fields[11]) + int(fields[12])) / ticks
    except (OSError, ValueError, IndexError):
        return None  # it ended meanwhile


def _stolen_seconds(stat: Path, ticks: int) -> float | None:
    try:
        # cpu user nice system idle iowait irq softirq steal … (man 5 proc_stat)
        return int(stat.read_text(encoding="ascii").split("\n", 1)[0].split()[8]) / ticks
    except (OSError, ValueError, IndexError):
        return None


def _ticks_per_second() -> int | None:
    try:
        return os.sysconf("SC_CLK_TCK")
    except (AttributeError, ValueError, OSError):
        return None


def _load_average() -> float | None:
    try:
        return os.getloadavg()[0]
    except (AttributeError, OSError):
        return None


# The processes that are no others: those that this one started, and one that takes turns with it. A GPU's driver still
# names one as busy for a while after it ended.
_ours: set[int] = set()


def remember(pid: int) -> None:
    """Count a process as ours from now on, when it has ended as well."""
    _ours.add(pid)


def remembered() -> frozenset[int]:
    return frozenset(_ours)
