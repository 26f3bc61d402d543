"""Hold what a device found out about one workload: every sample, and the figures that follow from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from pytest_bandwidth.domain.code.identity import UNKNOWN_CODE, CodeIdentity
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic

NOTE, DETAIL = "note", "detail"
# A finding of this code says that an array holds other numbers than the kernel reads.
MISREAD_ARRAY = "argument-type"
# A finding of this code says why a kernel's code could not be identified.
CODE_UNKNOWN = "code-unknown"
# A finding of this code says why it cannot be shown how a kernel's code changed.
CODE_DIFF = "code-diff"
# A finding of this code says that a baseline's entry expects a failure which is none.
XPASS = "xpass"
# A finding of this code says that a launch was to be measured from a graph, and the device has none.
NO_GRAPHS = "no-graphs"
# The method where a workload only told its code: nothing was timed or counted.
UNMEASURED = "unmeasured"
# In `detail`: a hash of what decides counts beside code and launch.
INPUTS = "inputs"


@dataclass(frozen=True, slots=True)
class KernelResources:
    """Hold what the compiler gave a kernel: registers and local bytes a thread, static shared bytes a block.

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


@dataclass(frozen=True, slots=True)
class Finding:
    """Tell something that is no verdict: a code for programs, a sentence for people.

    level: a ``note`` is shown by the terminal of every run, a ``detail`` with -v.
    """

    code: str
    text: str
    level: str = DETAIL


@dataclass(frozen=True, slots=True)
class Measurement:
    """Hold all that was seen of one workload on one device. Bytes and seconds inside, GB/s at the edges.

    method: how time was taken (``events+block``, ``events``, either with ``+graph``, ``clock``), or ``ptx`` where
    traffic was counted instead.
    peak: None where the device's peak is unknown; utilization is then a share of the probe's bandwidth.
    flop_declared: whether the traffic's FLOP were said or modelled; False where 0 only means that none was.
    regime: memory-bound, compute-bound or overhead-bound, as far as the evidence goes; None where it does not.
    code: what identifies the code that ran. software: versions of the libraries that the process had loaded, by name.
    ptx: the kernel's PTX in its normal form. cubin: the file of machine code that the kernel was loaded from.
    files: the list of files that identifies the code, as text. value: the callable's last return value. (None of the
    four is part of a document.)
    """

    label: str | None
    traffic: Traffic
    device: DeviceIdentity
    method: str
    rounds: Rounds
    peak: Peak | None = None
    precision: str | None = None
    peak_flops: float | None = None
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

    def with_finding(self, finding: Finding) -> Measurement:
        """Return the same measurement with one more finding."""
        return replace(self, findings=(*self.findings, finding))

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
        return self.rounds.seconds

    @property
    def host_seconds(self) -> float | None:
        """Return the median seconds from the call to the end of the device's work, as the host sees it."""
        return self.rounds.host_seconds

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
        return self.rounds.probe_gbps

    @property
    def relative(self) -> float | None:
        """Return the achieved ÷ the probe's bandwidth, median over the rounds."""
        return self.rounds.relative(self.traffic.bytes_moved)

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
