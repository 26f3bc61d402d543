"""Read the multiprocessors' real clock rate from their cycle counters, and see whether it is throttled."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median
from typing import Any

import numpy as np

from pytest_bandwidth.domain.device import MEMORY_CLOCK, SM_CLOCK, SM_CLOCK_LOW
from pytest_bandwidth.domain.measured.measurement import Finding

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


def nominal_clock_mhz(default_mhz: float | None, largest_mhz: float | None) -> float | None:
    """Return the clock that counts as unthrottled: the default application clock where there is one, else the maximum.

    Cards that cannot hold their maximum under load (a T4: 1590 MHz at most, 585 by default) have such a default.
    """
    return default_mhz or largest_mhz or None


def throttled(clock_mhz: float | None, before_mhz: Sequence[float]) -> Finding | None:
    """Return why a sample does not count, if its clock fell; None where it did not, or nothing is known.

    before_mhz: the clocks of the samples before it, those of the warm-up too.
    """
    usual = before_mhz[-USUAL_OF_SAMPLES:]
    if clock_mhz is None or not usual or clock_mhz >= THROTTLED_SHARE * median(usual):
        return None
    return Finding("throttled", f"the SM clock fell below {THROTTLED_SHARE * 100:.0f} % of that of the samples before")


def sm_clock_low(counted_mhz: float | None, nominal_mhz: float | None) -> Finding | None:
    """Report a clock that stays well below the nominal one, and with it whatever is not bound by memory."""
    if not counted_mhz or not nominal_mhz or counted_mhz >= THROTTLED_SHARE * nominal_mhz:
        return None
    return Finding(
        SM_CLOCK_LOW,
        f"the SM clock was {counted_mhz:.0f} MHz over the samples, expected at least {THROTTLED_SHARE * 100:.0f} % of "
        f"its nominal {nominal_mhz:.0f}: figures are those of a slower GPU (clocks that were set, a power limit, "
        "heat); `nvidia-smi -q -d CLOCK,PERFORMANCE` shows which",
    )


def clocks_disagree(counted_mhz: float | None, reported_mhz: float | None, *, slowed: bool) -> Finding | None:
    """Report a counted clock lower than the driver says: the hardware slows itself down. The reverse is idling.

    slowed: whether the driver says that heat or power holds the GPU back. Else the two only tell of different moments:
    the counted clock of the samples, the reported one of an instant after them.
    """
    if not slowed or not counted_mhz or not reported_mhz or counted_mhz >= CLOCKS_AGREE * reported_mhz:
        return None
    return Finding(
        SM_CLOCK,
        f"the SM clock counted was {counted_mhz:.0f} MHz while the driver reports {reported_mhz:.0f}: "
        "the GPU skips cycles (power brake, heat, or a power supply that is too weak)",
    )


def memory_clock_low(found_mhz: float | None, largest_mhz: float | None) -> Finding | None:
    """Report a memory clock well below its maximum, and with it all that memory can reach."""
    if not found_mhz or not largest_mhz or found_mhz >= MEMORY_CLOCK_SHARE * largest_mhz:
        return None
    return Finding(
        MEMORY_CLOCK,
        f"the memory clock was {found_mhz:.0f} MHz after the samples, expected at least "
        f"{MEMORY_CLOCK_SHARE * 100:.0f} % of its maximum of {largest_mhz:.0f}: GB/s, the probe's too, are those of "
        "slower memory (a clock that was set, a power state, heat); `nvidia-smi -q -d CLOCK,PERFORMANCE` shows which",
    )
