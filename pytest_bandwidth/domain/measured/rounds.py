"""Hold samples of a kernel and of its probe, and sum them up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

StopReason = Literal["precision", "max-time", "max-rounds", "counted", "no-samples"]
# A larger share tells nothing: the probe was hindered, or less moved than was declared. A host's plain write may read
# each line first and so move twice what it declares; a kernel that writes past the caches gains that factor, no more.
LARGEST_SHARE = 2.0
# Why a round was dropped: a thread of this process was ready to run and waited for a processor.
RUN_DELAY = "run-delay"
# Fewer rounds show nothing of their noise. Beside a process that never rests, a hundredth of them happens to be
# undisturbed; beside builds, three quarters are.
FEWEST_ROUNDS = 3
LEAST_UNDISTURBED_SHARE = 0.1
# Why a round on a GPU was dropped: something else had the card meanwhile. Contexts take turns there, by slices of a
# millisecond or so. A probe of the same card in the same state differs by a few per cent from sample to sample, so one
# that took longer by this factor, and by as much time, tells of such slices. Then a sample is held up that is longer
# than the fastest by half of what the probe lost at least, and by more than samples differ of themselves. Chosen on the
# emulated card (benchmarks/card_judging.py --neighbour), and not yet tried on hardware.
HELD_UP = "held-up"
HELD_UP_FACTOR = 1.25
HELD_UP_SECONDS = 50e-6
OWN_DIFFERENCE = 1.03
# From so many slices in a kernel's run on, by those in the probe's, its fastest may be held up as well.
MOST_SLICES = 0.5


def is_share_told(share: float | None) -> bool:
    """Return whether there is a share of the probe's bandwidth, and it can be believed (see `LARGEST_SHARE`)."""
    return share is not None and share <= LARGEST_SHARE


@dataclass(frozen=True, slots=True)
class Dropped:
    """Mark a sample that does not count, and why (`code` for programs)."""

    round: int
    seconds: float
    code: str
    reason: str


@dataclass(frozen=True, slots=True)
class Rounds:
    """Hold one process's samples: round i has a kernel's and a probe's, the kernel's first where `kernel_first[i]`.

    All tuples have the same length, except `probe_seconds`, which is empty where no probe ran.
    interleaved: seconds of further callables that were sampled in the same rounds, in the order they were given.
    run_delay: the share of all rounds, the dropped ones too, in which a thread waited for a processor; None where the
    system does not account for it. disturbed_count: whether some of those rounds count all the same.
    """

    kernel_seconds: tuple[float, ...] = ()
    probe_seconds: tuple[float, ...] = ()
    host_kernel_seconds: tuple[float, ...] = ()
    kernel_first: tuple[bool, ...] = ()
    interleaved: tuple[tuple[float, ...], ...] = ()
    probe_bytes: int = 0
    probe_name: str | None = None
    dropped: tuple[Dropped, ...] = ()
    stop: StopReason = "counted"
    warmup_seconds: float = 0.0
    warmup_runs: int = 0
    run_delay: float | None = None
    disturbed_count: bool = False
    wall_seconds: float = field(default=0.0, compare=False)

    @property
    def disturbed(self) -> int:
        """Return how many rounds were dropped because a thread waited, or something else had the GPU."""
        return sum(d.code in (RUN_DELAY, HELD_UP) for d in self.dropped)

    @property
    def too_disturbed(self) -> bool:
        """Return whether so many rounds were dropped as disturbed that the others are few or a lucky choice."""
        return too_few_undisturbed(len(self.kernel_seconds), self.disturbed)


def rounds_held_up(kernel_seconds: Sequence[float], probe_seconds: Sequence[float]) -> list[int]:
    """Return the places of the rounds on a GPU in which something else had it while kernel or probe were to run."""
    fastest = min(probe_seconds, default=math.inf)
    least = max(HELD_UP_FACTOR * fastest, fastest + HELD_UP_SECONDS)
    lost = [seconds - fastest for seconds in probe_seconds if seconds >= least]
    if not lost or fastest <= 0:
        return []
    alone = min(kernel_seconds)
    if len(lost) / len(probe_seconds) * alone / fastest > MOST_SLICES:
        return list(range(len(kernel_seconds)))
    # By one limit, or what is left of the one would be faster than what is left of the other.
    half = min(lost) / 2
    most = [max(OWN_DIFFERENCE * seconds, seconds + half) for seconds in (alone, fastest)]
    rounds = enumerate(zip(kernel_seconds, probe_seconds, strict=True))
    return [i for i, taken in rounds if any(seconds >= limit for seconds, limit in zip(taken, most, strict=True))]


def too_few_undisturbed(kept: int, disturbed: int) -> bool:
    """Say whether undisturbed rounds are too few, or too small a share, to stand for the workload."""
    return disturbed > 0 and (kept < FEWEST_ROUNDS or kept < LEAST_UNDISTURBED_SHARE * (kept + disturbed))
