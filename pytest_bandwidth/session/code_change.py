"""Show how a kernel's code differs from the baseline's, whose PTX lies beside its file."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.ptx_diff import access_changes, ptx_diff
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.storage.baseline.code_files import needed_ptx


@dataclass(frozen=True, slots=True)
class CodeChange:
    """Hold how PTX changed, as far as it did and can be told.

    diff: for people; accesses: what became of loads and stores, in words; unknown: why neither is there.
    """

    diff: str = ""
    accesses: str | None = None
    unknown: str | None = None


NO_CHANGE = CodeChange()


def code_change(measurement: Measurement, entry: Entry | None, baseline: Path | None) -> CodeChange:
    """Compare the kernel's PTX with that which the entry names. baseline: the entry's file."""
    then = None if entry is None else entry.code.get("ptx")
    if baseline is None or then is None or measurement.ptx is None or measurement.code.ptx == then:
        return NO_CHANGE
    now = measurement.ptx
    return ptx_change(lambda: needed_ptx(baseline, then), lambda: now)


def ptx_change(old: Callable[[], str], new: Callable[[], str]) -> CodeChange:
    """Compare the PTX of two kernels, each as a function that reads it, or raises BaselineError."""
    try:
        then, now = old(), new()
    except BaselineError as error:
        return CodeChange(unknown=f"the code changed, how cannot be shown: {error}")
    return CodeChange(ptx_diff(then, now), access_changes(then, now))
