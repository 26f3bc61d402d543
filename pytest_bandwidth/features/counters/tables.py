"""Parse the profilers' tables of counters defensively: rows of one width, numbers with units, and limits on all.

ncu with ``--csv --page raw`` writes a row for each kernel; its messages, which begin with ``==``, are around the table
and inside it. rocprofv3 writes a row for each dispatch and counter; its columns depend on the release.
"""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.counters.dram_traffic import (
    CountersFailed,
    CountUnfinished,
    DramTraffic,
    KernelDram,
    NoKernelCounted,
    summed,
)

MOST_CHARACTERS = 64 * 2**20
MOST_ROWS = 200_000
MOST_CELLS = 2_000
LARGEST = 2.0**62
# With thousands separators or without. ncu writes commas in every locale.
_NUMBER = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,20})(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?")
_FEWER = "measure fewer kernels at once"


class TableFault(CountersFailed):
    """Raised for a fault in a profiler's table; `table_of` adds the profiler's name and the remedy.

    remedy: "" where another release of the profiler may write a table that can be parsed.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(found)
        self.remedy = remedy


@contextmanager
def table_of(program: str, text: str, product: str) -> Iterator[None]:
    """Add the program's name and the remedy to a TableFault. product: the software that the program is part of.

    Raises CountersFailed in its place, and for a text that is too long.
    """
    try:
        if len(text) > MOST_CHARACTERS:
            raise TableFault(f"found {len(text)} characters, expected at most {MOST_CHARACTERS}", _FEWER)
        yield
    except TableFault as fault:
        remedy = fault.remedy or f"try another release of {product}, or --bandwidth-counters=off"
        raise CountersFailed(f"{program}'s table: {fault}; {remedy}") from None


def rows_of(lines: Iterable[str], needed: Iterable[str], optional: Iterable[str] = ()) -> list[dict[str, str]]:
    """Return the cells of every row below the header, by column.

    Raises TableFault for text that is not CSV or too long, rows of another width, and a column that is missing or
    repeated.
    """
    rows: list[list[str]] = []
    try:
        for row in csv.reader(lines, strict=True):
            if row:
                rows.append(row)
            if len(rows) > MOST_ROWS or len(row) > MOST_CELLS:
                raise TableFault(f"found more than {MOST_ROWS} rows or {MOST_CELLS} columns, expected fewer", _FEWER)
    except csv.Error as error:
        raise TableFault(f"found a line that is not CSV ({error}), expected the profiler's table") from None
    header = rows[0] if rows else []
    for row in rows:
        if len(row) != len(header):
            told = shown(",".join(row))
            raise TableFault(f"found a row of {len(row)} cells ({told}), expected the header's {len(header)}")
    for name in (*needed, *(name for name in optional if name in header)):
        if header.count(name) != 1:
            number = "no" if name not in header else "more than one"
            raise TableFault(f"found {number} column {name!r} in {shown(','.join(header))}, expected one")
    return [dict(zip(header, row, strict=True)) for row in rows[1:]]


def number_of(text: str, what: str) -> float:
    """Return a number that is not negative. Raises TableFault for anything else. what: its name in the message."""
    stripped = text.strip()
    value = float(stripped.replace(",", "")) if _NUMBER.fullmatch(stripped) else math.nan
    if not 0 <= value <= LARGEST:
        raise TableFault(f"found {what} {shown(text)}, expected a number that is not negative")
    return value


# ---- ncu's -----------------------------------------------------------------------------------------------------------

# The names of each chip, and that ncu counts them in one pass, are checked by CUPTI's host library without a GPU
# (tests/features/counters/test_metric_names.py).
TIME = "gpu__time_duration.sum"
L2_READ, L2_WRITTEN = "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"
# Volta is the first architecture with these metrics in Nsight Compute.
FIRST_CAPABILITY = (7, 0)
# Chips that use the host's memory: GV11B, GA10B, GB10B (two numbers), GB20B. They have no counters of DRAM.
WITHOUT_DRAM = frozenset({(7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
# Blackwell's GB20x, which rejects the names of all earlier chips.
NAMES_WITH_OP_FROM = (12, 0)
# GV100 would need two passes with the L2 metrics.
WITHOUT_L2 = frozenset({(7, 0)})
NOT_AVAILABLE = ("n/a", "(n/a)", "nan", "")
# ncu's message where the application failed: a test that asserts on figures fails, since nothing is timed under ncu.
_OF_APPLICATION = re.compile(r"==ERROR== The application returned an error code")
_CRASHED = "The application crashed"
_NO_KERNEL = (
    "ncu saw no kernel in the range: the workload launches none on this GPU, or launches it from a process or library "
    "that ncu does not follow"
)
# With --print-units base; the last two are of older and newer releases.
_BYTES, _SECTORS, _SECONDS = {"byte": 1.0}, {"sector": 1.0}, {"nsecond": 1e-9, "ns": 1e-9}
# Parts of ncu's messages, each with its remedy.
_REMEDIES = (
    (
        "ERR_NVGPUCTRPERM",
        "the driver keeps its counters from users: load it with NVreg_RestrictProfilingToAdminUsers=0, or give the "
        "process CAP_SYS_ADMIN (in a container: --cap-add=SYS_ADMIN)",
    ),
    (
        "driver resource was unavailable",
        "another profiler uses the counters: end it, or pause DCGM (dcgmi profile --pause)",
    ),
    ("Failed to find metric", "this ncu does not know this GPU's counters: install a newer Nsight Compute"),
    ("not supported on", "ncu cannot profile on this GPU: install a newer Nsight Compute, or --bandwidth-counters=off"),
)

# A kernel's name, and the text and unit of each requested metric.
_Kernel = tuple[str, Mapping[str, tuple[str, str]]]


@dataclass(frozen=True, slots=True)
class Metrics:
    """Hold the metrics' names for one chip. l2: sectors read and written; empty where they would need another pass."""

    read: str
    written: str
    l2: tuple[str, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names, as ncu's --metrics takes them."""
        return (self.read, self.written, TIME, *self.l2)


def metrics_of(capability: str) -> Metrics:
    """Return the names for a chip by its compute capability, such as ``9.0``. Raises CountersFailed."""
    try:
        major, minor = (int(part) for part in capability.split("."))
    except ValueError:
        raise CountersFailed(f"found compute capability {capability!r}, expected one such as 9.0") from None
    if (major, minor) < FIRST_CAPABILITY:
        raise CountersFailed(
            f"Nsight Compute counts from compute capability 7.0 on, this GPU has {capability}: --bandwidth-counters=off"
        )
    if (major, minor) in WITHOUT_DRAM:
        raise CountersFailed(
            f"this chip (compute capability {capability}) has no counters of DRAM: --bandwidth-counters=off"
        )
    op = "op_" if (major, minor) >= NAMES_WITH_OP_FROM else ""
    l2 = () if (major, minor) in WITHOUT_L2 else (L2_READ, L2_WRITTEN)
    return Metrics(f"dram__bytes_{op}read.sum", f"dram__bytes_{op}write.sum", l2)


def ncu_traffic(text: str, metrics: Metrics) -> DramTraffic:
    """Return the DRAM traffic of all kernels in the output.

    Raises CountersFailed, one line with the remedy, for ncu's own error, no kernel, a value that is missing or no
    number, an unknown unit, or no table.
    """
    with table_of("ncu", text, "Nsight Compute"):
        lines = text.splitlines()
        refuse_errors(lines)
        kernels = _kernels(lines, metrics)
        if not kernels:
            raise NoKernelCounted(_NO_KERNEL)
        moved = [
            KernelDram(kernel[0], *(round(_value(kernel, name, _BYTES)) for name in (metrics.read, metrics.written)))
            for kernel in kernels
        ]
        sums: list[float | None] = []
        for name, units in {TIME: _SECONDS, **dict.fromkeys(metrics.l2, _SECTORS)}.items():
            # These figures only explain the bytes: if a kernel lacks one, there is no sum of it.
            lacks = any(of.get(name, ("", ""))[0].strip().lower() in NOT_AVAILABLE for _, of in kernels)
            sums.append(None if lacks else sum(_value(kernel, name, units) for kernel in kernels))
        return summed(moved, "ncu", *sums)


def refuse_errors(lines: Sequence[str]) -> None:
    """Raise CountersFailed for an error that ncu reports, since kernels may be missing from its table then."""
    errors = [line for line in lines if line.startswith("==ERROR==") and not _OF_APPLICATION.match(line)]
    for sign, remedy in _REMEDIES:
        if any(sign in line for line in errors):
            raise CountersFailed(f"ncu counted nothing: {remedy}")
    if any(_CRASHED in line for line in errors):
        raise CountUnfinished(
            "the test crashed under ncu, so that kernels may be missing: run it by hand, in a process of its own"
        )
    if errors:
        raise CountersFailed(
            f"ncu counted nothing, and printed {shown(errors[0].removeprefix('==ERROR==').strip(), 200)}"
        )


def refuse_no_kernel(lines: Sequence[str]) -> None:
    """Raise NoKernelCounted where ncu reports that the range had no kernel."""
    if any("No kernels were profiled" in line for line in lines):
        raise NoKernelCounted(_NO_KERNEL)


def _kernels(lines: Sequence[str], metrics: Metrics) -> list[_Kernel]:
    """Return the kernels of the table: the row below its header has the units."""
    kept = [line for line in lines if not line.startswith("==")]
    start = next((at for at, line in enumerate(kept) if line.lstrip().startswith('"ID"')), None)
    if start is None:
        refuse_no_kernel(lines)
        raise CountersFailed("ncu wrote no table: run the test under ncu by hand, and read its output")
    rows = rows_of(kept[start:], ("ID", "Kernel Name"), metrics.names)
    if not rows:
        return []
    units, *of_kernels = rows
    if units["ID"].strip():
        raise TableFault(f"found {shown(','.join(units.values()))} below the header, expected a row of units")
    for row in of_kernels:
        number_of(row["ID"], "the kernel's ID")
    names = [name for name in metrics.names if name in units]
    return [(row["Kernel Name"], {name: (row[name], units[name]) for name in names}) for row in of_kernels]


def _value(kernel: _Kernel, name: str, units: Mapping[str, float]) -> float:
    who, found = kernel
    if name not in found:
        raise CountersFailed(f"ncu wrote no {name} for kernel {shown(who)}: this GPU or this ncu has none")
    text, unit = found[name]
    if text.strip().lower() in NOT_AVAILABLE:
        raise CountersFailed(
            f"{name} is n/a for kernel {shown(who)}: the counter cannot be read here (a MIG slice, a virtual "
            "GPU, or another profiler that uses it)"
        )
    if unit.strip() not in units:
        raise TableFault(f"found {name} in {shown(unit)}, expected one of {', '.join(units)}")
    return number_of(text, name) * units[unit.strip()]


# ---- rocprofv3's -----------------------------------------------------------------------------------------------------

ROCPROFV3_READ, ROCPROFV3_WRITTEN = "FETCH_SIZE", "WRITE_SIZE"
# ROCm's counter definitions divide the bytes by 1024.
KB = 1024
_NEEDED = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
_TIMES = ("Start_Timestamp", "End_Timestamp")


@dataclass(slots=True)
class _Dispatch:
    name: str
    counters: dict[str, float] = field(default_factory=dict)
    nanoseconds: float | None = None


def rocprofv3_traffic(text: str, between: str) -> DramTraffic:
    """Return the DRAM traffic of the kernels between the last two dispatches of the kernel called `between`.

    Raises CountersFailed, one line, for no table, fewer than two such dispatches, no kernel between them, or a counter
    that is missing or no number.
    """
    with table_of("rocprofv3", text, "ROCm's rocprofiler-sdk"):
        if not text.strip():
            raise CountersFailed(
                "rocprofv3 wrote an empty file: this ROCm may not know its counters FETCH_SIZE, WRITE_SIZE"
            )
        dispatches = _dispatches(rows_of(text.splitlines(), _NEEDED, _TIMES))
    # A name may be followed by its parameters, or by the ending of its descriptor.
    ends = [
        number
        for number, one in dispatches.items()
        if one.name.partition("(")[0].strip().removesuffix(".kd") == between
    ][-2:]
    if len(ends) < 2:
        raise CountersFailed(f"rocprofv3 wrote {len(ends)} dispatches of {between}, expected one on either side")
    work = [dispatches[number] for number in dispatches if ends[0] < number < ends[1]]
    if not work:
        raise NoKernelCounted("rocprofv3 saw no kernel of the workload: it launches none on this GPU")
    seconds = [one.nanoseconds for one in work]
    known = [value for value in seconds if value is not None]
    return summed(
        [KernelDram(one.name, _bytes(one, ROCPROFV3_READ), _bytes(one, ROCPROFV3_WRITTEN)) for one in work],
        "rocprofv3",
        sum(known) / 1e9 if len(known) == len(seconds) else None,
    )


def _dispatches(rows: Iterable[Mapping[str, str]]) -> dict[float, _Dispatch]:
    """Return the dispatches in their order, by number."""
    found: dict[float, _Dispatch] = {}
    for row in rows:
        number, counter = number_of(row["Dispatch_Id"], "Dispatch_Id"), row["Counter_Name"]
        one = found.setdefault(number, _Dispatch(row["Kernel_Name"]))
        if one.name != row["Kernel_Name"] or counter in one.counters:
            raise TableFault(f"found {shown(counter)} of dispatch {number:.0f} twice, expected it once")
        one.counters[counter] = number_of(row["Counter_Value"], counter)
        if row.keys() >= set(_TIMES):
            start, end = (number_of(row[name], name) for name in _TIMES)
            one.nanoseconds = max(0.0, end - start)
    return dict(sorted(found.items()))


def _bytes(one: _Dispatch, counter: str) -> int:
    if counter not in one.counters:
        raise CountersFailed(f"rocprofv3 wrote no {counter} for kernel {shown(one.name)}: this GPU or ROCm has none")
    return round(one.counters[counter] * KB)
