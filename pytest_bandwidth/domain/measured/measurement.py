"""Hold the measurement of one workload on a device: all samples of it and of its probe, and the figures from them.

Several callables that were measured in the same rounds are compared by paired ratios, with an interval.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from pytest_bandwidth.domain.code.identity import UNKNOWN_CODE, CodeIdentity
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.explanation import EXPLAINED
from pytest_bandwidth.domain.traffic import Traffic

StopReason = Literal["precision", "max-time", "max-rounds", "counted", "no-samples"]
# A larger share is not credible: the probe was hindered, or less was moved than declared. A host's plain write may read
# each line first and so move twice the declared bytes. A kernel that bypasses the caches gains at most that factor.
LARGEST_SHARE = 2.0
# Why a round was dropped: a thread of this process was ready to run and waited for a processor.
RUN_DELAY = "run-delay"
# Fewer rounds do not show their noise. Next to a process that never rests, one round in a hundred is undisturbed by
# chance; next to builds, three in four are.
FEWEST_ROUNDS = 3
LEAST_UNDISTURBED_SHARE = 0.1
# Why a round on a GPU was dropped: something else used the GPU meanwhile. Contexts take turns by slices of about a
# millisecond. A probe's samples differ by a few per cent, so a sample that is longer by this factor, and by this time,
# shows such slices. Then a sample counts as held up if it exceeds the fastest by half of the probe's smallest loss, and
# by more than samples usually differ. Chosen on the emulated card (benchmarks/card_judging.py --neighbour), and not yet
# tried on hardware.
HELD_UP = "held-up"
HELD_UP_FACTOR = 1.25
HELD_UP_SECONDS = 50e-6
OWN_DIFFERENCE = 1.03
# With more slices in a kernel's run, estimated by those in the probe's, even its fastest sample may be held up.
MOST_SLICES = 0.5


def is_credible_share(share: float | None) -> bool:
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
    run_delay: the share of all rounds, including dropped ones, in which a thread waited for a processor; None where the
    system does not report it. disturbed_count: whether some of those rounds are kept.
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
        """Return how many rounds were dropped because a thread waited, or something else used the GPU."""
        return sum(d.code in (RUN_DELAY, HELD_UP) for d in self.dropped)

    @property
    def too_disturbed(self) -> bool:
        """Return whether so many rounds were dropped as disturbed that the others are too few, or kept by chance."""
        return too_few_undisturbed(len(self.kernel_seconds), self.disturbed)


def rounds_held_up(kernel_seconds: Sequence[float], probe_seconds: Sequence[float]) -> list[int]:
    """Return the indices of the rounds in which something else used the GPU during the kernel or its probe."""
    fastest = min(probe_seconds, default=math.inf)
    least = max(HELD_UP_FACTOR * fastest, fastest + HELD_UP_SECONDS)
    lost = [seconds - fastest for seconds in probe_seconds if seconds >= least]
    if not lost or fastest <= 0:
        return []
    alone = min(kernel_seconds)
    if len(lost) / len(probe_seconds) * alone / fastest > MOST_SLICES:
        return list(range(len(kernel_seconds)))
    # One limit for both: otherwise the kept samples of one would be faster than those of the other.
    half = min(lost) / 2
    most = [max(OWN_DIFFERENCE * seconds, seconds + half) for seconds in (alone, fastest)]
    rounds = enumerate(zip(kernel_seconds, probe_seconds, strict=True))
    return [i for i, taken in rounds if any(seconds >= limit for seconds, limit in zip(taken, most, strict=True))]


def too_few_undisturbed(kept: int, disturbed: int) -> bool:
    """Return whether undisturbed rounds are too few, or too small a share, to represent the workload."""
    return disturbed > 0 and (kept < FEWEST_ROUNDS or kept < LEAST_UNDISTURBED_SHARE * (kept + disturbed))


NOTE, DETAIL, WRONG = "note", "detail", "wrong"
# Code of a finding: the kernel reads another element type than the array has.
MISREAD_ARRAY = "argument-type"
# Code of a finding: an array lies transposed in memory.
FORTRAN_ORDER = "fortran-order"
# Code of a finding: why a kernel's code could not be identified.
CODE_UNKNOWN = "code-unknown"
# Code of a finding: why the change of a kernel's code cannot be shown.
CODE_DIFF = "code-diff"
# Code of a finding: a baseline's entry expects a failure, and the test passes.
XPASS = "xpass"
# Code of a finding: a launch was to be measured from a graph, which the device does not support.
NO_GRAPHS = "no-graphs"
# Code of a finding: why a kernel was not executed. Its resources were measured.
NOT_EXECUTED = "not-executed"
# Findings whose codes begin so: the work was not done, or its result is wrong.
OF_WORK = "work:"
# Code of a finding: a declared array that no kernel touched.
UNTOUCHED = "untouched-array"
# The method of a workload whose code was only identified: nothing was timed or counted.
UNMEASURED = "unmeasured"
# The suffix of a method without a flush of caches before each sample.
WARM = "+warm"
# In `detail`: a hash of the inputs, which decide counts together with code and launch.
INPUTS = "inputs"
# In `detail`: the seconds of an empty kernel's launch. Every sample contains them. None if they are unknown.
FLOOR_SECONDS = "floor_seconds"


def is_warm(method: str) -> bool:
    """Return whether caches were not flushed before a sample, so that GB/s may exceed the memory's peak."""
    return method.endswith(WARM)


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Hold a compiled kernel's resources: registers and local bytes a thread, static shared bytes a block.

    local_bytes: spilled registers, and local variables that lie in memory.
    occupancy_limit: the resource that limits the blocks on an SM; None where it is unknown.
    grid, block, dynamic_shared_bytes: how it was launched; None where it was only compiled.
    """

    registers: int
    local_bytes: int
    shared_bytes: int
    max_threads_per_block: int | None = None
    occupancy: float | None = None
    grid: tuple[int, ...] | None = None
    block: tuple[int, ...] | None = None
    dynamic_shared_bytes: int | None = None
    occupancy_limit: str | None = None


@dataclass(frozen=True, slots=True)
class Finding:
    """Hold a remark that is not a verdict: a code for programs, a sentence for people.

    level: the terminal shows a ``note`` in every run, a ``detail`` with -v. A finding that makes a measurement invalid
    on every machine is ``wrong``: the verdict is MISMATCH.
    """

    code: str
    text: str
    level: str = DETAIL


# A card's clock may exceed its datasheet's: an RTX 4090 runs at 2.85 GHz instead of 2.52.
LARGEST_FLOP_SHARE = 1.2


@dataclass(frozen=True, slots=True)
class Least:
    """Hold the least work of a run: bytes or FLOP, their source, and the device's peak rate of them per second."""

    amount: int
    by: Literal["counted bytes", "explained bytes", "declared bytes", "FLOP"]
    rate: float

    @property
    def seconds(self) -> float:
        return self.amount / self.rate


@dataclass(frozen=True, slots=True)
class Measurement:
    """Hold one workload's measurement on one device. Fields are in bytes and seconds, bandwidths in GB/s.

    method: how time was taken (``events+block``, ``events``, either with ``+graph``, ``clock``; ``+warm`` where caches
    were not flushed), or ``ptx`` where traffic was counted instead.
    peak: None where the device's peak is unknown; utilization is then a share of the probe's bandwidth.
    tensor_flops: FLOP/s of tensor cores, where the precision is only known from the arrays' type; else None.
    counted: the bytes that one run reads and writes, each once, by an execution of its kernel on the CPU. Bytes that it
    wrote and then reads count as written alone. None without an execution.
    flop_declared: whether the traffic's FLOP were given or modelled; False where 0 means that they are unknown.
    regime: memory-bound, compute-bound or overhead-bound; None where the evidence does not suffice.
    code: what identifies the code that ran. software: versions of the libraries that the process had loaded, by name.
    ptx: the kernel's PTX in its normal form. cubin: the file of machine code that the kernel was loaded from.
    files: the list of files that identifies the code, as text. value: the callable's last return value. These
    four are not part of a document.
    """

    label: str | None
    traffic: Traffic
    device: DeviceIdentity
    method: str
    rounds: Rounds
    peak: Peak | None = None
    precision: str | None = None
    peak_flops: float | None = None
    tensor_flops: float | None = None
    counted: Traffic | None = None
    resources: KernelResources | None = None
    conditions_before: Conditions = field(default_factory=Conditions)
    conditions_after: Conditions = field(default_factory=Conditions)
    findings: tuple[Finding, ...] = ()
    invalid: Finding | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    detail: Mapping[str, Any] = field(default_factory=dict)
    flop_declared: bool = True
    regime: str | None = None
    code: CodeIdentity = UNKNOWN_CODE
    software: Mapping[str, str] = field(default_factory=dict)
    ptx: str | None = field(default=None, compare=False, repr=False)
    cubin: bytes | None = field(default=None, compare=False, repr=False)
    files: str | None = field(default=None, compare=False, repr=False)
    value: Any = field(default=None, compare=False, repr=False)

    def with_finding(self, *findings: Finding | None) -> Measurement:
        """Return the same measurement with one more finding, or several; None is no finding."""
        return replace(self, findings=(*self.findings, *(one for one in findings if one is not None)))

    def refuted(self, finding: Finding) -> Measurement:
        """Return the measurement as wrong because of a finding; a wrong one keeps its earlier reason."""
        found = self.with_finding(finding)
        is_wrong = self.invalid is not None and self.invalid.level == WRONG
        return found if is_wrong else replace(found, invalid=replace(finding, level=WRONG))

    def with_detail(self, name: str, value: Any) -> Measurement:
        """Return the same measurement with one more value in its `detail`."""
        return replace(self, detail={**self.detail, name: value})

    @property
    def samples(self) -> tuple[float, ...]:
        """Return the seconds of each kept sample, in the order taken."""
        return self.rounds.kernel_seconds

    @property
    def seconds(self) -> float | None:
        """Return the median seconds of one run; None where nothing was timed."""
        return median(self.samples) if self.samples else None

    @property
    def host_seconds(self) -> float | None:
        """Return the median seconds from the call to the end of the device's work, by the host's clock."""
        seconds = self.rounds.host_kernel_seconds
        return median(seconds) if seconds else None

    @property
    def floor_seconds(self) -> float | None:
        """Return the seconds of an empty launch, which are part of each sample; None where they are unknown."""
        return self.detail.get(FLOOR_SECONDS)

    @property
    def bytes_moved(self) -> int:
        return self.traffic.bytes_moved

    @property
    def arithmetic_intensity(self) -> float | None:
        """Return FLOP ÷ bytes moved."""
        return self.traffic.arithmetic_intensity

    @property
    def gbps(self) -> float | None:
        """Return the achieved bandwidth: bytes moved ÷ median seconds, in GB/s."""
        seconds = self.seconds
        return self.traffic.bytes_moved / seconds / 1e9 if seconds else None

    @property
    def probe_gbps(self) -> float | None:
        """Return the attainable bandwidth: the probe's, in the same rounds, in GB/s."""
        rounds = self.rounds
        return rounds.probe_bytes / median(rounds.probe_seconds) / 1e9 if rounds.probe_seconds else None

    @property
    def relative(self) -> float | None:
        """Return the kernel's bandwidth ÷ the probe's, as the median over the rounds; None without a probe."""
        rounds = self.rounds
        if not rounds.probe_seconds or not rounds.probe_bytes or min(self.samples) <= 0:
            return None
        share = self.bytes_moved / rounds.probe_bytes
        return median(share * p / k for k, p in zip(self.samples, rounds.probe_seconds, strict=True))

    @property
    def utilization(self) -> float | None:
        """Return the share of the peak; of the probe's bandwidth where the peak is unknown (see `utilization_of`)."""
        if self.gbps is None:
            return None
        if self.peak is not None:
            return self.gbps * 1e9 / self.peak.bytes_per_second
        return self.gbps / self.probe_gbps if self.probe_gbps else None

    @property
    def utilization_of(self) -> Literal["peak", "probe"]:
        return "probe" if self.peak is None else "peak"

    @property
    def least_by_bytes(self) -> Least | None:
        """Return what one run needs by its bytes; None for an unknown peak bandwidth, or warm caches.

        Bytes are those counted, else explained, else declared. What a kernel writes beyond its declaration may stay in
        a cache, so it does not count. Explained bytes count only if they are fewer than the declared ones: an
        explanation counts a whole array even where an operator reads a few rows.
        """
        if self.peak is None or is_warm(self.method):
            return None
        rate, explained = self.peak.bytes_per_second, self.detail.get(EXPLAINED, {}).get("least_bytes")
        if self.counted is not None:
            written = min(self.counted.bytes_written, self.traffic.bytes_written)
            return Least(self.counted.bytes_read + written, "counted bytes", rate)
        if explained and explained < self.bytes_moved:
            return Least(explained, "explained bytes", rate)
        return Least(self.bytes_moved, "declared bytes", rate)

    @property
    def least_by_flop(self) -> Least | None:
        """Return what one run needs by its FLOP; None where they or the peak FLOP/s are unknown.

        Where the run was faster than the rate of its precision, tensor cores computed it.
        """
        flop, rate, seconds = self.traffic.flop, self.peak_flops, self.seconds
        if not flop or rate is None or not seconds:
            return None
        if self.tensor_flops is not None and flop > LARGEST_FLOP_SHARE * rate * seconds:
            rate = max(rate, self.tensor_flops)
        return Least(flop, "FLOP", rate)

    @property
    def least(self) -> Least | None:
        """Return the one of both that takes longer; None where nothing was timed, or the peak bandwidth is unknown."""
        by_bytes, by_flop = self.least_by_bytes, self.least_by_flop
        if by_bytes is None or not self.seconds:
            return None
        return by_bytes if by_flop is None else max(by_bytes, by_flop, key=lambda least: least.seconds)

    @property
    def sol(self) -> float | None:
        """Return the share of the speed of light: least possible ÷ median seconds; None as in `least`."""
        least, seconds = self.least, self.seconds
        return None if least is None or not seconds else least.seconds / seconds


CONFIDENCE = 0.99


@dataclass(frozen=True, slots=True)
class Ratio:
    """Hold the ratio of two bandwidths, and an interval that contains the median of the paired ratios.

    low, high: distribution-free interval from order statistics; None where there are too few rounds for one.
    All rounds are of one process: the interval does not include the noise from process to process.
    """

    value: float
    low: float | None
    high: float | None
    rounds: int
    confidence: float = CONFIDENCE

    def at_least(self, factor: float) -> bool:
        """Return whether the whole interval is at or above the factor; False where there is no interval."""
        return self.low is not None and self.low >= factor

    def __str__(self) -> str:
        if self.low is None or self.high is None:
            return f"{self.value:.3g}× ({self.rounds} rounds, too few for an interval)"
        return f"{self.value:.3g}× ({self.low:.3g} to {self.high:.3g}, {self.rounds} rounds)"


@dataclass(frozen=True, slots=True)
class Comparison:
    """Hold measurements by name, taken in the same rounds."""

    measurements: Mapping[str, Measurement]

    def __getitem__(self, name: str) -> Measurement:
        if name not in self.measurements:
            raise UsageError(f"compare: found {name!r}, expected one of {', '.join(self.measurements)}")
        return self.measurements[name]

    def ratio(self, name: str, over: str) -> Ratio:
        """Return the bandwidth of `name` ÷ bandwidth of `over`, paired round by round.

        Raises UsageError for unknown names, and where no round was left or a sample took no time.
        """
        mine, other = self[name], self[over]
        if mine.samples and min(mine.samples) <= 0:
            raise UsageError(f"nothing to compare: a sample of {name!r} took no time")
        share = mine.bytes_moved / other.bytes_moved
        pairs = [share * b / a for a, b in zip(mine.samples, other.samples, strict=True)]
        if not pairs and mine.device.counts_only:
            raise UsageError(f"nothing to compare: the device {mine.device.kind} times nothing")
        if not pairs:
            raise UsageError("no round was left to compare: every sample was dropped")
        low, high = interval_of_median(pairs, CONFIDENCE)
        return Ratio(median(pairs), low, high, len(pairs))


def interval_of_median(values: Sequence[float], confidence: float) -> tuple[float | None, float | None]:
    """Return the order statistics that hold the median with at least `confidence`; (None, None) if no two do.

    The number of values below the median is binomial(n, ½): Conover, Practical Nonparametric Statistics, §3.2.
    """
    ordered, n = sorted(values), len(values)
    outside = 0.0
    rank = -1
    for k in range(n // 2):
        outside += math.comb(n, k) / 2**n
        if 2 * outside > 1 - confidence:
            break
        rank = k
    return (None, None) if rank < 0 else (ordered[rank], ordered[n - 1 - rank])
