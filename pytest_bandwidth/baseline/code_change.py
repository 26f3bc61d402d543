"""Show how a kernel's code differs from what it is judged by: a baseline's, whose PTX lies beside it, a revision's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.file_list import file_list_of
from pytest_bandwidth.domain.code.ptx_diff import access_changes, ptx_diff
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.text import listed

# So many files that changed are named.
MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class CodeChange:
    """Hold how PTX changed, as far as it did and can be told.

    diff: for people; accesses: what became of loads and stores, in words; unknown: why neither is there. files: which
    files changed, in words, where these identify the code.
    """

    diff: str = ""
    accesses: str | None = None
    unknown: str | None = None
    files: str | None = None


NO_CHANGE = CodeChange()


def code_change(
    measurement: Measurement,
    entry: Entry | None,
    old_ptx: PtxSource | None,
    old_files: Callable[[str], str] | None = None,
) -> CodeChange:
    """Compare the kernel's PTX, or the files that identify it, with what the entry names.

    old_ptx, old_files: give that; None where there is none.
    """
    if measurement.files is not None:
        return _files_change(measurement, entry, old_files)
    then = None if entry is None else entry.code.get("ptx")
    if old_ptx is None or then is None or measurement.ptx is None or measurement.code.ptx == then:
        return NO_CHANGE
    now = measurement.ptx
    return ptx_change(lambda: old_ptx(then), lambda: now)


def _files_change(measurement: Measurement, entry: Entry | None, old_files: Callable[[str], str] | None) -> CodeChange:
    then = None if entry is None else entry.code.get("function")
    if old_files is None or then is None or measurement.files is None or measurement.code.function == then:
        return NO_CHANGE
    try:
        changes = file_list_of(measurement.files).changes_since(file_list_of(old_files(then)))
    except (BandwidthError, ValueError) as error:
        return CodeChange(unknown=f"the code changed, which files did cannot be shown: {error}")
    return CodeChange(diff="\n".join(changes), files=listed(changes, MOST_NAMED))


def ptx_change(old: Callable[[], str], new: Callable[[], str]) -> CodeChange:
    """Compare the PTX of two kernels, each as a function that reads it, or raises BandwidthError."""
    try:
        then, now = old(), new()
    except BandwidthError as error:
        return CodeChange(unknown=f"the code changed, how cannot be shown: {error}")
    return CodeChange(ptx_diff(then, now), access_changes(then, now))
