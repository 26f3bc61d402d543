"""Tell what the arrays of whole numbers hold that a measurement reads: other indices are another measurement."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.contents import holds_whole_numbers
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode, digest
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError
from pytest_bandwidth.frameworks.arrays import arrays_in, framework_of
from pytest_bandwidth.frameworks.base import Extent, span_of


@dataclass(frozen=True, slots=True)
class Inputs:
    """Hold a hash of what those arrays hold, None where there are none; or why that is unknown."""

    digest: str | None = None
    unknown: str | None = None

    def of(self, code: MeasuredCode) -> MeasuredCode:
        """Return the code with its inputs; without its launch where they are unknown, so that it is no code's same."""
        if self.unknown is None:
            return replace(code, identity=replace(code.identity, inputs=self.digest))
        if code.identity == CodeIdentity():
            return code
        identity = replace(code.identity, launch=None, arguments=None)
        return replace(code, identity=identity, unknown=f"what its index arrays hold is not known ({self.unknown})")


NO_INPUTS = Inputs()


def whole_arrays(given: Iterable[object], workload: Workload) -> list[Any]:
    """Return the arrays of whole numbers among what the work is given and reads, but for those it only writes."""
    among = (array for one in (*given, *workload.reads) for _, array in arrays_in(one, "", passing_over=True))
    found: dict[object, Any] = {}
    for array in among:
        if holds_whole_numbers(array):
            extent = _extent(array)
            found.setdefault(id(array) if extent is None else extent, array)
    reads, writes = map(_extents, (workload.reads, workload.writes))
    return [array for extent, array in found.items() if not (extent in writes and not _meets(extent, reads))]


def inputs_of(arrays: Sequence[Any], contents: Callable[[Any], str]) -> Inputs:
    """Hash what arrays hold. contents: tells it of one."""
    try:
        return Inputs(digest(*map(contents, arrays)) if arrays else None)
    except (UsageError, OutOfMemory) as error:
        return Inputs(unknown=" ".join(str(error).split()))


def _extents(arrays: Iterable[Any]) -> list[object]:
    return [extent for array in arrays if (extent := _extent(array)) is not None]


def _extent(array: Any) -> Extent | None:
    """Return where an array lies; None where it does not tell."""
    framework = framework_of(array)
    try:
        return None if framework is None else framework.extent(array, "")
    except UsageError:
        return None


def _meets(extent: object, others: Iterable[object]) -> bool:
    """Return whether an extent may share memory with any of the others."""
    if not isinstance(extent, Extent):
        return False
    start, end = span_of(extent)
    spans = [span_of(other) for other in others if isinstance(other, Extent) and other.space == extent.space]
    return any(start < other_end and other_start < end for other_start, other_end in spans)
