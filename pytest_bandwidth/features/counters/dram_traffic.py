"""Hold and show the bytes that a workload moved between DRAM and the last cache, by hardware counters, caches cold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.units import counted, format_bytes, format_gbps
from pytest_bandwidth.outcomes.outcome import Outcome, mapping, mappings, number, text, whole
from pytest_bandwidth.reports.columns import Column, SmallTable
from pytest_bandwidth.reports.text_safe import one_line

KERNELS_LISTED = 20
_VERBS = ("read", "written")
# The key in a measurement's `detail`.
DRAM = "dram"
# Codes of findings: DRAM moved other bytes than declared; it moved too many, in a test that fails for another reason;
# why no bytes were counted.
DIFFERS, RISEN, UNCOUNTED = "dram-differs", "dram-risen", "dram-uncounted"
# Code of the finding why there is no profiler report, or why it may lack kernels.
UNPROFILED = "unprofiled"


class CountersFailed(BandwidthError):
    """Raised where hardware counters cannot be read, for a reason outside the test."""


class NoKernelCounted(CountersFailed):
    """Raised where the profiler works, but recorded no kernel of the workload."""


class CountUnfinished(CountersFailed):
    """Raised where the profiler works, but the workload crashed or failed before its end: kernels may be missing."""


@dataclass(frozen=True, slots=True)
class KernelDram:
    """Hold the bytes that DRAM moved for one kernel of a workload."""

    name: str
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class DramTraffic:
    """Hold the bytes that DRAM moved for all kernels of one run of a workload.

    counted_by: the profiler. kernels: the first `KERNELS_LISTED` of them; kernel_count: the number of all kernels.
    seconds: the sum of the kernels' times by the profiler. l2_sectors_read, l2_sectors_written: requests to the L2
    cache, in sectors of 32 bytes. The last three are None where they were not counted.
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
        """Return the bytes moved ÷ declared; None for no declared bytes."""
        return self.bytes_moved / declared_bytes if declared_bytes else None


def detail_of(measurement: Measurement, moved: DramTraffic) -> Measurement:
    """Return the measurement with its DRAM traffic, and the ratio of that to the declared bytes."""
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


# ---- shown out of a result's `detail` --------------------------------------------------------------------------------


def _bytes(outcome: Outcome) -> tuple[int, int] | None:
    """Return the bytes read and written; None where they were not counted."""
    dram = mapping(outcome.detail, DRAM)
    read, written = whole(dram.get("bytes_read")), whole(dram.get("bytes_written"))
    return None if read is None or written is None else (read, written)


def _moved(outcome: Outcome) -> float | None:
    found = _bytes(outcome)
    return None if found is None else float(sum(found))


def _in_short(outcome: Outcome) -> str | None:
    moved, ratio = _moved(outcome), number(mapping(outcome.detail, DRAM), "ratio")
    if moved is None:
        return None
    return format_bytes(moved) if ratio is None else f"{format_bytes(moved)} ({ratio:.2f}×)"


def _in_full(outcome: Outcome) -> str | None:
    """Format the DRAM traffic, and the L2 sectors where they were counted.

    ``read 268 MB, wrote 134 MB: 1.00× of the declared, 1850 GB/s, L2 sectors 8,388,608 read, 4,194,304 written (1
    kernel, ncu)``
    """
    found, dram = _bytes(outcome), mapping(outcome.detail, DRAM)
    if found is None:
        return None
    ratio, gbps = number(dram, "ratio"), number(dram, "gbps")
    figures = [f"{ratio:.2f}× of the declared"] if ratio is not None else []
    figures += [format_gbps(gbps)] if gbps is not None else []
    sectors = [(number(dram, f"l2_sectors_{verb}"), verb) for verb in _VERBS]
    l2 = ", ".join(f"{count:,.0f} {verb}" for count, verb in sectors if count is not None)
    figures += [f"L2 sectors {l2}"] if l2 else []
    kernels = counted(int(number(dram, "kernel_count") or 0), "kernel")
    moved = f"read {format_bytes(found[0])}, wrote {format_bytes(found[1])}"
    return f"{moved}: {', '.join(figures)} ({kernels}, {text(dram, 'counted_by')})"


def _kernels(outcome: Outcome) -> SmallTable | None:
    """List the kernels with their bytes, if there are several."""
    found = mappings(mapping(outcome.detail, DRAM), "kernels")[:KERNELS_LISTED]
    rows = [
        (one_line(text(kernel, "name"), 60), *(format_bytes(number(kernel, f"bytes_{verb}") or 0) for verb in _VERBS))
        for kernel in found
    ]
    return SmallTable("DRAM, by kernel", ("kernel", *_VERBS), rows) if len(rows) > 1 else None


def _data(key: str, name: str) -> Column:
    def value(outcome: Outcome) -> int | float | None:
        found = mapping(outcome.detail, DRAM)
        known = whole(found.get(name))
        return number(found, name) if known is None else known

    return Column(key, key, value, outputs=("csv",))


COLUMNS = (
    _data("dram_read", "bytes_read"),
    _data("dram_written", "bytes_written"),
    _data("dram_ratio", "ratio"),
    _data("dram_gb_s", "gbps"),
    _data("l2_sectors_read", "l2_sectors_read"),
    _data("l2_sectors_written", "l2_sectors_written"),
    Column(
        "dram",
        "DRAM",
        _in_short,
        hint="bytes that DRAM moved, by hardware counters, and ÷ the declared",
        outputs=("html",),
        sort=_moved,
    ),
    Column("dram_in_full", "DRAM", _in_full, outputs=("details", "notes")),
    Column("dram_kernels", "DRAM, by kernel", _kernels, outputs=("details",)),
)
