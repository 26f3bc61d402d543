"""Read the GPU's state around the samples: clocks, temperature, power, slowdowns, and other processes that use it.

The real clock rate of its multiprocessors comes from their cycle counters.

NVML reports the host's process ids. A container numbers its processes differently, and they cannot find out their ids
outside. So the plugin finds its own entry as the only one that appears when it opens a context. Without such an entry,
no process counts as another.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pytest_bandwidth.devices.cuda.management import AMD_SLOWDOWNS, NVML_SLOWDOWNS, GpuReading, ManagedGpu
from pytest_bandwidth.devices.host import process_stat, remembered
from pytest_bandwidth.domain.device import (
    ECC,
    MEMORY_CLOCK,
    SAME_PROCESS_IDS,
    SLOWDOWN,
    SM_CLOCK,
    SM_CLOCK_LOW,
    Conditions,
)
from pytest_bandwidth.domain.measured.measurement import Finding

# NVML averages a process's share over up to a second, so older activity does not describe the present.
LOOK_BACK_SECONDS = 1.0


@dataclass(slots=True)
class Health:
    """Read conditions. Without a management library everything but the counted clock stays unknown.

    counted_clock: the SM clock counted in the samples so far, in MHz; wall: seconds since the epoch, as NVML stamps.
    """

    gpu: ManagedGpu | None
    ownership: Ownership
    counted_clock: Callable[[], float | None]
    wall: Callable[[], float] = time.time
    reading: GpuReading = field(default_factory=GpuReading)
    _looked_at: float = 0.0

    def __post_init__(self) -> None:
        self._looked_at = self.wall()

    def begin(self) -> GpuReading:
        """Begin a measurement: return the current reading. Processes that were busy before it do not count."""
        self._looked_at = self.wall()
        return self.read()

    def read(self) -> GpuReading:
        """Return the current reading, and keep it as `reading`."""
        if self.gpu is not None:
            self.reading = self.gpu.reading()
        return self.reading

    def conditions(self) -> Conditions:
        """Return the state now, and the processes busy since the last call, at most a second ago."""
        if self.gpu is None:
            return Conditions(sm_clock_mhz=self.counted_clock())
        found, now = self.read().conditions, self.wall()
        since, self._looked_at = max(self._looked_at, now - LOOK_BACK_SECONDS), now
        busy = active_others(self.gpu.activity(int(since * 1e6)), self.ownership)
        named = {pid: Path(self.gpu.process_name(pid) or "process").name for pid in busy}
        others = tuple(f"{named[pid]} (pid {pid}, {percent} %)" for pid, percent in busy.items())
        return replace(found, sm_clock_mhz=self.counted_clock() or found.sm_clock_mhz, others=others)

    def findings(
        self, before: GpuReading, reasons: Iterable[str], nominal_mhz: float | None, largest_mhz: float | None
    ) -> Iterator[Finding]:
        """Yield findings that explain the figures of a measurement that began with that reading.

        reasons: the driver's reasons for lower clocks, read around the samples. nominal_mhz: the SM clock's.
        largest_mhz: the maximum of the memory clock.
        """
        counted, reported = self.counted_clock(), self.reading.conditions.sm_clock_mhz
        seen = set(reasons)
        slowing = [reason for reason in (*NVML_SLOWDOWNS, *AMD_SLOWDOWNS) if reason in seen]
        # The hardware slows itself down. If the driver reports no slowdown, the clocks only differ in time: the counted
        # one is from the samples, the reported one from an instant after them.
        if slowing and counted and reported and counted < CLOCKS_AGREE * reported:
            yield Finding(
                SM_CLOCK,
                f"the SM clock counted was {counted:.0f} MHz while the driver reports {reported:.0f}: "
                "the GPU skips cycles (power brake, heat, or a power supply that is too weak)",
            )
        if counted and nominal_mhz and counted < THROTTLED_SHARE * nominal_mhz:
            yield Finding(
                SM_CLOCK_LOW,
                f"the SM clock was {counted:.0f} MHz over the samples, expected at least {THROTTLED_SHARE * 100:.0f} % "
                f"of its nominal {nominal_mhz:.0f}: figures are those of a slower GPU (locked clocks, a power limit or "
                "heat); `nvidia-smi -q -d CLOCK,PERFORMANCE` shows which",
            )
        memory = self.reading.conditions.memory_clock_mhz
        if memory and largest_mhz and memory < MEMORY_CLOCK_SHARE * largest_mhz:
            yield Finding(
                MEMORY_CLOCK,
                f"the memory clock was {memory:.0f} MHz after the samples, expected at least "
                f"{MEMORY_CLOCK_SHARE * 100:.0f} % of its maximum of {largest_mhz:.0f}: GB/s, the probe's too, are "
                "those of slower memory (a locked clock, a power state or heat); "
                "`nvidia-smi -q -d CLOCK,PERFORMANCE` shows which",
            )
        if slowing:
            yield Finding(
                SLOWDOWN,
                f"the driver reports {', '.join(slowing)} around the samples, expected no throttling: clocks were "
                "lowered, so GB/s are too low; check the GPU's cooling and power supply",
            )
        errors, earlier = self.reading.uncorrected_ecc_errors, before.uncorrected_ecc_errors
        if errors is not None and earlier is not None and (new := errors - earlier) > 0:
            text = f"the GPU's memory had {new} uncorrectable ECC error(s) while measuring: replace it"
            yield Finding(ECC, text)


# NVBench's share: a sample whose clock is so far below that of the samples before measures the power supply, not the
# kernel. NVBench compares with the nominal clock: a card with lower locked clocks loses every sample (nvbench#231).
THROTTLED_SHARE = 0.75
# The clock before is the median of so many samples. A clock that fell for good is the usual one after half as many.
USUAL_OF_SAMPLES = 15
# After such a sample the GPU has this long to recover.
RECOVERY_SECONDS = 0.05
# The common clock ticks in steps; an interval of so many steps is measured to 5 %.
STEPS_PER_INTERVAL = 20
LEAST_INTERVAL_NS = 10_000
# NVML reports the clock that the driver requested. Below this share of it, the counted cycles show skipped cycles.
CLOCKS_AGREE = 0.90
# GeForce cards compute in a state (P2) whose memory clock is a few per cent below the maximum: that is no finding.
MEMORY_CLOCK_SHARE = 0.90


def shortest_interval_ns(step_ns: int) -> int:
    """Return the shortest interval that a clock of this step measures to 5 %."""
    return max(LEAST_INTERVAL_NS, STEPS_PER_INTERVAL * step_ns)


def clock_from_stamps(before: Any, after: Any, shortest_ns: int) -> float | None:
    """Return MHz, the median over multiprocessors, from two (slots, 2) uint64 arrays of (nanoseconds, cycles).

    A slot counts where both stamps were taken (0 is not taken). None where no interval is as long as `shortest_ns`.
    Cycle counters are each multiprocessor's own, so only differences on the same one mean anything.
    """
    seen = (before[:, 0] > 0) & (after[:, 0] > before[:, 0]) & (after[:, 1] > before[:, 1])
    nanoseconds = (after[seen, 0] - before[seen, 0]).astype(np.float64)
    cycles = (after[seen, 1] - before[seen, 1]).astype(np.float64)
    long_enough = nanoseconds >= shortest_ns
    if not long_enough.any():
        return None
    return float(np.median(cycles[long_enough] / nanoseconds[long_enough]) * 1e3)


def throttled(clock_mhz: float | None, before_mhz: Sequence[float]) -> Finding | None:
    """Return why a sample does not count, if its clock fell; None if it did not, or is unknown.

    before_mhz: the clocks of the samples before it, including the warm-up's.
    """
    usual = before_mhz[-USUAL_OF_SAMPLES:]
    if clock_mhz is None or not usual or clock_mhz >= THROTTLED_SHARE * median(usual):
        return None
    return Finding("throttled", f"the SM clock fell below {THROTTLED_SHARE * 100:.0f} % of that of the samples before")


# A desktop's compositor always uses a few per cent of the GPU; below this no process counts as busy.
ACTIVE_PERCENT = 5

Uses = Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Hold the process ids (as NVML numbers them) that are ours; `known` is False where they could not be found.

    look: returns our current ids, because child processes come and go; None where it cannot.
    """

    own: frozenset[int] = frozenset()
    known: bool = True
    how: str = SAME_PROCESS_IDS
    look: Callable[[], frozenset[int]] | None = None


def parents_of_all(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return the parent's id by process id, for every process in /proc."""
    parents: dict[int, int] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            parents[int(stat.parent.name)] = int(process_stat(stat)[1][1])
    return parents


def process_tree(pid: int, parents: Mapping[int, int], siblings_too: bool = False) -> frozenset[int]:
    """Return the ids of a process, its ancestors and its descendants.

    siblings_too: also its parent's descendants (pytest-xdist's workers).
    """
    above: list[int] = []
    at = pid
    while at in parents and at not in above and at > 1:
        above.append(at)
        at = parents[at]
    root = parents.get(pid, pid) if siblings_too else pid
    tree = {root, pid} if root > 1 else {pid}
    while True:
        below = {child for child, parent in parents.items() if parent in tree} - tree
        if not below:
            return frozenset(tree | set(above))
        tree |= below


def find_ownership(before: Uses | None, after: Uses | None, environ: Mapping[str, str] = os.environ) -> Ownership:
    """Return our ids as NVML numbers them. before, after: the lists around the opening of our context."""
    pid, appeared = os.getpid(), set(after or ()) - set(before or ())
    if pid in (after or ()):
        workers = "PYTEST_XDIST_WORKER" in environ
        return Ownership(frozenset({pid}), look=lambda: process_tree(pid, parents_of_all(), workers))
    if before is None or len(appeared) != 1:
        return Ownership(known=False, how="own process not found in the list of processes")
    (own,) = appeared
    return Ownership(frozenset({own}), how=f"host process id {own} (another pid namespace)")


def active_others(uses: Mapping[int, int] | None, ownership: Ownership) -> dict[int, int]:
    """Return the busy processes that are not ours, and how busy they are; empty where ownership is unknown."""
    if uses is None or not ownership.known:
        return {}
    busy = {pid: used for pid, used in uses.items() if used >= ACTIVE_PERCENT and pid not in ownership.own}
    ours = ownership.look() | remembered() if busy and ownership.look is not None else frozenset()
    return {pid: used for pid, used in busy.items() if pid not in ours}
