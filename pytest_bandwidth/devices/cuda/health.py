"""Read the GPU's state around the samples: clocks, heat, power, what slows it down, and who else is busy on it.

The real clock rate of its multiprocessors is that of their cycle counters.

NVML reports the process ids of the host. Inside a container ours are numbered otherwise, and the kernel does not tell
a process its number outside. So our own entry is found by what it does: it appears when we open a context, or its
memory grows by what we just allocated. Where neither can be seen, none counts as another.
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

# NVML averages a process's share over up to a second, so older activity says nothing of now.
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
        """Begin a measurement: return what is read now. Processes busy before it do not count."""
        self._looked_at = self.wall()
        return self.read()

    def read(self) -> GpuReading:
        """Return what is read now; also kept as `reading`."""
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
        """Yield what explains the figures of a measurement that began with that reading.

        reasons: for which clocks were held down, by the driver's word around the samples. nominal_mhz: the SM clock's.
        largest_mhz: the maximum of the memory clock.
        """
        counted, reported = self.counted_clock(), self.reading.conditions.sm_clock_mhz
        seen = set(reasons)
        slowing = [reason for reason in (*NVML_SLOWDOWNS, *AMD_SLOWDOWNS) if reason in seen]
        # The hardware slows itself down. Where the driver does not say so, the two only tell of different moments: the
        # counted clock of the samples, the reported one of an instant after them.
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
                f"of its nominal {nominal_mhz:.0f}: figures are those of a slower GPU (clocks that were set, a power "
                "limit, heat); `nvidia-smi -q -d CLOCK,PERFORMANCE` shows which",
            )
        memory = self.reading.conditions.memory_clock_mhz
        if memory and largest_mhz and memory < MEMORY_CLOCK_SHARE * largest_mhz:
            yield Finding(
                MEMORY_CLOCK,
                f"the memory clock was {memory:.0f} MHz after the samples, expected at least "
                f"{MEMORY_CLOCK_SHARE * 100:.0f} % of its maximum of {largest_mhz:.0f}: GB/s, the probe's too, are "
                "those of slower memory (a clock that was set, a power state, heat); "
                "`nvidia-smi -q -d CLOCK,PERFORMANCE` shows which",
            )
        if slowing:
            yield Finding(
                SLOWDOWN,
                f"the driver reports {', '.join(slowing)} around the samples, expected none: clocks were held down, "
                "and figures with them; look at the GPU's cooling and power supply",
            )
        errors, earlier = self.reading.uncorrected_ecc_errors, before.uncorrected_ecc_errors
        if errors is not None and earlier is not None and (new := errors - earlier) > 0:
            text = f"the GPU's memory had {new} uncorrectable ECC error(s) while measuring: replace it"
            yield Finding(ECC, text)


# NVBench's share: a sample so far below the clock that the samples before it had tells of the power supply, not of the
# kernel. Beside the nominal clock, as there, a card with its clocks locked lower would lose every sample (nvbench#231).
THROTTLED_SHARE = 0.75
# By the median of so many samples. A clock that fell for good is the usual one after half as many.
USUAL_OF_SAMPLES = 15
# … and the GPU is given this long to recover before the next sample.
RECOVERY_SECONDS = 0.05
# The common clock ticks in steps; an interval of so many steps is known to 5 %.
STEPS_PER_INTERVAL = 20
LEAST_INTERVAL_NS = 10_000
# NVML's clock is what the driver asked for. If the counted one is this much lower, hardware is skipping cycles.
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
    """Return why a sample does not count, if its clock fell; None where it did not, or nothing is known.

    before_mhz: the clocks of the samples before it, those of the warm-up too.
    """
    usual = before_mhz[-USUAL_OF_SAMPLES:]
    if clock_mhz is None or not usual or clock_mhz >= THROTTLED_SHARE * median(usual):
        return None
    return Finding("throttled", f"the SM clock fell below {THROTTLED_SHARE * 100:.0f} % of that of the samples before")


# A desktop's compositor holds the GPU at a few per cent for ever; below this nobody counts as busy.
ACTIVE_PERCENT = 5
# What is allocated to recognise ourselves by: large beside the chunks that drivers and pools work in.
FINGERPRINT_BYTES = 96 * 2**20
FINGERPRINT_SLACK_BYTES = 8 * 2**20

Uses = Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Say which process ids (as NVML numbers them) are ours; `known` is False where that could not be found out.

    look: finds our ids anew, where they can be: children come and go.
    """

    own: frozenset[int] = frozenset()
    known: bool = True
    how: str = SAME_PROCESS_IDS
    look: Callable[[], frozenset[int]] | None = None


def parents_of_all(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return parent by process id, of every process that /proc shows."""
    parents: dict[int, int] = {}
    for stat in proc.glob("[0-9]*/stat"):
        with suppress(OSError, ValueError, IndexError):  # it ended meanwhile
            parents[int(stat.parent.name)] = int(process_stat(stat)[1][1])
    return parents


def process_tree(pid: int, parents: Mapping[int, int], siblings_too: bool = False) -> frozenset[int]:
    """Return a process, all above it and all below it.

    With `siblings_too` all below its parent (pytest-xdist's workers).
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


def find_ownership(
    before: Uses | None,
    after: Uses | None,
    fingerprint: Callable[[], tuple[Uses | None, Uses | None]],
    environ: Mapping[str, str] = os.environ,
) -> Ownership:
    """Return our ids as NVML numbers them. before, after: the lists around the opening of our context.

    fingerprint: allocates FINGERPRINT_BYTES, gives the lists around that.
    """
    pid, found = os.getpid(), set(after or ()) - set(before or ())
    if after is not None and pid in after and (before is None or pid not in before or len(after) == 1):
        found = {pid}
    elif after and (before is None or len(found) != 1):
        plain, grown = fingerprint()
        found = {
            one
            for one, used in (grown or {}).items()
            if used is not None
            and plain is not None
            and abs(used - (plain.get(one) or 0) - FINGERPRINT_BYTES) <= FINGERPRINT_SLACK_BYTES
        }
    if len(found) != 1:
        return Ownership(known=False, how="own process not found in the list of processes")
    (own,) = found
    if own != pid:
        return Ownership(frozenset({own}), how=f"host process id {own} (another pid namespace)")
    workers = "PYTEST_XDIST_WORKER" in environ
    return Ownership(frozenset({pid}), look=lambda: process_tree(pid, parents_of_all(), workers))


def active_others(uses: Mapping[int, int] | None, ownership: Ownership) -> dict[int, int]:
    """Return processes that are busy and not ours, and how busy they are; none where ownership is not known."""
    if uses is None or not ownership.known:
        return {}
    busy = {pid: used for pid, used in uses.items() if used >= ACTIVE_PERCENT and pid not in ownership.own}
    ours = ownership.look() | remembered() if busy and ownership.look is not None else frozenset()
    return {pid: used for pid, used in busy.items() if pid not in ours}
