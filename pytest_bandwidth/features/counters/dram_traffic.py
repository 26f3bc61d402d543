"""Hold what hardware counters saw a workload move between DRAM and the last cache, in one run with cold caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement

KERNELS_LISTED = 20
# In a measurement's `detail`.
DRAM = "dram"
# Findings of these codes tell that DRAM moved other bytes than were declared; more than it may, where the test fails
# for another reason already; why none were counted.
DIFFERS, RISEN, UNCOUNTED = "dram-differs", "dram-risen", "dram-uncounted"
# A finding of this code tells why there is no report of a profiler, or none of all kernels.
UNPROFILED = "unprofiled"


class CountersFailed(BandwidthError):
    """Raised where hardware counters cannot be read, for a reason that is no fault of the test."""


class NoKernelCounted(CountersFailed):
    """Raised where the profiler counts, and the workload launched no kernel that it saw."""


class CountUnfinished(CountersFailed):
    """Raised where the profiler counts, and the workload crashed or failed before its end: some kernels are missing."""


@dataclass(frozen=True, slots=True)
class KernelDram:
    """Hold one kernel of a workload: the bytes that DRAM moved for it."""

    name: str
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class DramTraffic:
    """Hold the bytes that DRAM moved for all kernels of one run of a workload.

    counted_by: the profiler. kernels: those that it listed, the first `KERNELS_LISTED`; kernel_count: of them all.
    seconds: what the profiler says they took, one by one; l2_sectors_read, l2_sectors_written: of 32 bytes, asked of
    the L2 cache. Each None where it was not counted.
    """

    bytes_read: int
    bytes_written: int
    counted_by: str
    kernels: tuple[KernelDram, ...] = ()
    kernel_count: int = 0
    seconds: float | None = None
    l2_sectors_read: int | None = None
    l2_sectors_written: int | None = None

    @property
    def bytes_moved(self) -> int:
        return self.bytes_read + self.bytes_written

    def ratio_to(self, declared_bytes: int) -> float | None:
        """Return the bytes moved ÷ declared; None where none were declared."""
        return self.bytes_moved / declared_bytes if declared_bytes else None


def detail_of(measurement: Measurement, moved: DramTraffic) -> Measurement:
    """Return the measurement with what DRAM moved for it, and how that compares with what was declared."""
    seconds = measurement.seconds
    gbps = moved.bytes_moved / seconds / 1e9 if seconds else None
    ratio = moved.ratio_to(measurement.bytes_moved)
    return measurement.with_detail(DRAM, {**asdict(moved), "ratio": ratio, "gbps": gbps})


def summed(
    kernels: Sequence[KernelDram], counted_by: str, seconds: float | None = None, *l2_sectors: float | None
) -> DramTraffic:
    """Add up a workload's kernels."""
    return DramTraffic(
        sum(kernel.bytes_read for kernel in kernels),
        sum(kernel.bytes_written for kernel in kernels),
        counted_by,
        tuple(kernels[:KERNELS_LISTED]),
        len(kernels),
        seconds,
        *(None if count is None else round(count) for count in l2_sectors),
    )
