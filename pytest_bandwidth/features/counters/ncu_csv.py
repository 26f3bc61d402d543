"""Parse what ncu writes with --csv: the wide table of ``--page raw`` and the long one of its other pages.

Around the table, and in it, stand lines of the profiler's own, which begin with ``==``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.counters.chips import TIME, Metrics
from pytest_bandwidth.features.counters.dram_traffic import DramTraffic, KernelDram, summed
from pytest_bandwidth.features.counters.errors import CountersFailed, CountUnfinished, NoKernelCounted
from pytest_bandwidth.features.counters.table import TableFault, checked_width, number_of, positions, rows_of, table_of

NOT_AVAILABLE = ("n/a", "(n/a)", "nan", "")
# What ncu says where the application itself ended with an error: a test that asserts on figures, which it has not here.
_OF_APPLICATION = re.compile(r"==ERROR== The application returned an error code")
_CRASHED = "The application crashed"
_LARGE = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_BYTES = {f"{prefix}byte": size for prefix, size in _LARGE.items()}
_SECTORS = {f"{prefix}sector": size for prefix, size in _LARGE.items()}
_SECONDS = {"second": 1.0, "msecond": 1e-3, "usecond": 1e-6, "nsecond": 1e-9, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SECONDS |= {"ns": 1e-9}
_LONG = ("Metric Name", "Metric Unit", "Metric Value")
# What ncu says, and the remedy.
_REMEDIES = (
    (
        "ERR_NVGPUCTRPERM",
        "the driver keeps its counters from users: load it with NVreg_RestrictProfilingToAdminUsers=0, or give the "
        "process CAP_SYS_ADMIN (in a container: --cap-add=SYS_ADMIN)",
    ),
    (
        "driver resource was unavailable",
        "another profiler holds the counters: end it, or pause DCGM (dcgmi profile --pause)",
    ),
    ("Failed to find metric", "this ncu does not know this GPU's counters: install a newer Nsight Compute"),
    ("not supported on", "ncu cannot profile on this GPU: install a newer Nsight Compute, or --bandwidth-counters=off"),
)


@dataclass(slots=True)
class _Kernel:
    name: str
    # Text and unit of each metric that was asked for.
    found: dict[str, tuple[str, str]] = field(default_factory=dict)


def parse(text: str, metrics: Metrics) -> DramTraffic:
    """Return what all kernels in the output moved.

    Raises CountersFailed, one line with the remedy: ncu's own error, no kernel, a value that is missing or no number,
    an unknown unit, no table.
    """
    with table_of("ncu", text, "Nsight Compute"):
        lines = text.splitlines()
        _refuse_errors(lines)
        header, rows = _table(lines)
        layout = _long if "Metric Name" in header else _wide
        kernels = layout(header, rows, metrics)
        if not kernels:
            raise _no_kernel()
        return _traffic(kernels, metrics)


def _refuse_errors(lines: Sequence[str]) -> None:
    """Raise CountersFailed for an error that ncu reports: some kernels may be missing then, whatever else it wrote."""
    said = [line for line in lines if line.startswith("==ERROR==") and not _OF_APPLICATION.match(line)]
    for sign, remedy in _REMEDIES:
        if any(sign in line for line in said):
            raise CountersFailed(f"ncu counted nothing: {remedy}")
    if any(_CRASHED in line for line in said):
        raise CountUnfinished(
            "the test crashed under ncu, so that kernels may be missing: run it by hand, in a process of its own"
        )
    if said:
        raise CountersFailed(f"ncu counted nothing, and says {shown(said[0].removeprefix('==ERROR==').strip(), 200)}")


def refuse_what_failed(log: str) -> None:
    """Raise CountersFailed for an error in what ncu says beside its table or report, or for no kernel in the range."""
    lines = log.splitlines()
    _refuse_errors(lines)
    if any("No kernels were profiled" in line for line in lines):
        raise _no_kernel()


def _table(lines: Sequence[str]) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows below it."""
    kept = [line for line in lines if not line.startswith("==")]
    for at, line in enumerate(kept):
        if line.lstrip().startswith('"ID"'):
            header, *rows = rows_of(kept[at:])
            for row in rows:
                checked_width(row, header)
            return header, rows
    if any("No kernels were profiled" in line for line in lines):
        raise _no_kernel()
    raise CountersFailed("ncu wrote no table: run the test under ncu by hand, and see what it says")


def _no_kernel() -> NoKernelCounted:
    return NoKernelCounted(
        "ncu saw no kernel in the range: the workload launches none on this GPU, or launches it from a process or "
        "library that ncu does not follow"
    )


def _wide(header: Sequence[str], rows: Sequence[Sequence[str]], metrics: Metrics) -> list[_Kernel]:
    if not rows:
        return []
    at = positions(header, ("ID", "Kernel Name", *(name for name in metrics.names if name in header)))
    units, *of_kernels = rows
    if units[at["ID"]].strip():
        raise TableFault(f"found {shown(','.join(units))} below the header, expected a row of units")
    kernels = []
    for row in of_kernels:
        number_of(row[at["ID"]], "the kernel's ID")
        found = {name: (row[at[name]], units[at[name]]) for name in metrics.names if name in at}
        kernels.append(_Kernel(row[at["Kernel Name"]], found))
    return kernels


def _long(header: Sequence[str], rows: Sequence[Sequence[str]], metrics: Metrics) -> list[_Kernel]:
    at = positions(header, ("ID", "Kernel Name", *_LONG))
    # IDs count anew in each process.
    process = header.index("Process ID") if "Process ID" in header else None
    kernels: dict[tuple[str, str], _Kernel] = {}
    for row in rows:
        number_of(row[at["ID"]], "the kernel's ID")
        key = (row[at["ID"]], "" if process is None else row[process])
        kernel = kernels.setdefault(key, _Kernel(row[at["Kernel Name"]]))
        name = row[at["Metric Name"]]
        if kernel.name != row[at["Kernel Name"]] or name in kernel.found:
            raise TableFault(f"found {shown(name)} of kernel {shown(row[at['ID']])} twice, expected it once")
        if name in metrics.names:
            kernel.found[name] = row[at["Metric Value"]], row[at["Metric Unit"]]
    return list(kernels.values())


def _traffic(kernels: Sequence[_Kernel], metrics: Metrics) -> DramTraffic:
    moved = [
        KernelDram(kernel.name, *(_count(kernel, name, _BYTES) for name in (metrics.read, metrics.written)))
        for kernel in kernels
    ]
    seconds = _sum_of_known(kernels, TIME, lambda kernel: _value(kernel, TIME, _SECONDS))
    l2: list[float | None] = [None, None]
    if metrics.l2 is not None:
        l2 = [_sum_of_known(kernels, name, _counter_of(name)) for name in metrics.l2]
    sectors = [None if count is None else round(count) for count in l2]
    return summed(moved, "ncu", seconds, *sectors)


def _counter_of(name: str) -> Callable[[_Kernel], float]:
    return lambda kernel: _count(kernel, name, _SECTORS)


def _sum_of_known(kernels: Sequence[_Kernel], name: str, value: Callable[[_Kernel], float]) -> float | None:
    """Return the sum of what only explains the bytes; None where a kernel lacks it."""
    if any(kernel.found.get(name, ("", ""))[0].strip().lower() in NOT_AVAILABLE for kernel in kernels):
        return None
    return sum(value(kernel) for kernel in kernels)


def _count(kernel: _Kernel, name: str, units: Mapping[str, float]) -> int:
    return round(_value(kernel, name, units))


def _value(kernel: _Kernel, name: str, units: Mapping[str, float]) -> float:
    if name not in kernel.found:
        raise CountersFailed(f"ncu wrote no {name} for kernel {shown(kernel.name)}: this GPU or this ncu has none")
    text, unit = kernel.found[name]
    if text.strip().lower() in NOT_AVAILABLE:
        raise CountersFailed(
            f"{name} is n/a for kernel {shown(kernel.name)}: the counter cannot be read here (a MIG slice, a virtual "
            "GPU, or another profiler that holds it)"
        )
    if unit.strip() not in units:
        raise TableFault(f"found {name} in {shown(unit)}, expected one of {', '.join(units)}")
    return number_of(text, name) * units[unit.strip()]
