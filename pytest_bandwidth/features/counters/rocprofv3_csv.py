"""Parse what rocprofv3 writes of counters: a row for each dispatch and counter, in whatever columns its release has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.counters.dram_traffic import (
    CountersFailed,
    DramTraffic,
    KernelDram,
    NoKernelCounted,
    summed,
)
from pytest_bandwidth.features.counters.table import TableFault, checked_width, number_of, positions, rows_of, table_of

READ, WRITTEN = "FETCH_SIZE", "WRITE_SIZE"
# ROCm's counter definitions divide the bytes by 1024.
KB = 1024
_NEEDED = ("Dispatch_Id", "Kernel_Name", "Counter_Name", "Counter_Value")
_TIMES = ("Start_Timestamp", "End_Timestamp")


@dataclass(slots=True)
class _Dispatch:
    name: str
    counters: dict[str, float] = field(default_factory=dict)
    nanoseconds: float | None = None


def parse(text: str, between: str) -> DramTraffic:
    """Return what the kernels moved that were dispatched between the last two of the kernel called `between`.

    Raises CountersFailed, one line: no table, no such two, no kernel between them, a counter that is missing or no
    number.
    """
    with table_of("rocprofv3", text, "ROCm's rocprofiler-sdk"):
        rows = rows_of(text.splitlines())
        if not rows:
            raise CountersFailed(
                "rocprofv3 wrote an empty file: this ROCm may not know its counters FETCH_SIZE, WRITE_SIZE"
            )
        dispatches = _dispatches(rows[0], rows[1:])
    ends = [number for number, one in dispatches.items() if _plain_name(one.name) == between][-2:]
    if len(ends) < 2:
        raise CountersFailed(f"rocprofv3 wrote {len(ends)} dispatches of {between}, expected one on either side")
    work = [dispatches[number] for number in dispatches if ends[0] < number < ends[1]]
    if not work:
        raise NoKernelCounted("rocprofv3 saw no kernel of the workload: it launches none on this GPU")
    seconds = [one.nanoseconds for one in work]
    known = [value for value in seconds if value is not None]
    return summed(
        [KernelDram(one.name, _bytes(one, READ), _bytes(one, WRITTEN)) for one in work],
        "rocprofv3",
        sum(known) / 1e9 if len(known) == len(seconds) else None,
    )


def _dispatches(header: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[float, _Dispatch]:
    """Return the dispatches in their order, by number."""
    at = positions(header, _NEEDED)
    times = positions(header, _TIMES) if set(_TIMES) <= set(header) else None
    found: dict[float, _Dispatch] = {}
    for row in rows:
        checked_width(row, header)
        number = number_of(row[at["Dispatch_Id"]], "Dispatch_Id")
        one = found.setdefault(number, _Dispatch(row[at["Kernel_Name"]]))
        counter = row[at["Counter_Name"]]
        if one.name != row[at["Kernel_Name"]] or counter in one.counters:
            raise TableFault(f"found {shown(counter)} of dispatch {number:.0f} twice, expected it once")
        one.counters[counter] = number_of(row[at["Counter_Value"]], counter)
        if times is not None:
            start, end = (number_of(row[times[name]], name) for name in _TIMES)
            one.nanoseconds = max(0.0, end - start)
    return dict(sorted(found.items()))


def _bytes(one: _Dispatch, counter: str) -> int:
    if counter not in one.counters:
        raise CountersFailed(f"rocprofv3 wrote no {counter} for kernel {shown(one.name)}: this GPU or ROCm has none")
    return round(one.counters[counter] * KB)


def _plain_name(name: str) -> str:
    """Return a kernel's name without its parameters, and without the ending of its descriptor."""
    return name.partition("(")[0].strip().removesuffix(".kd")
