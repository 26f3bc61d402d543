"""Judge by another device's baseline: its figures say nothing here, and its code says all that it says there."""

from __future__ import annotations

from dataclasses import replace

from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.code.launch_shape import shape_of
from pytest_bandwidth.domain.judging.by_code.same_code import SAME_CODE
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.verdict import Status, Verdict

# The code of NO_BASELINE where the entry holds code alone, and nothing has settled yet what the new code is worth.
CODE_ALONE = "code-alone"


def has_code(baseline: Baseline) -> bool:
    """Return whether a baseline keeps what other devices can judge by: a kernel's PTX."""
    return any("ptx" in entry.code for entry in baseline.entries.values())


def code_alone(baseline: Baseline) -> Baseline:
    """Return what a baseline says on another device: code, launch, tolerances. Machine code and figures stay out."""
    name = "another device" if baseline.device is None else baseline.device.name
    entries = {key: _code_of(entry) for key, entry in baseline.entries.items() if entry.code}
    return replace(baseline, device=None, entries=entries, code_of=name)


def _code_of(entry: Entry) -> Entry:
    code, shape = {name: value for name, value in entry.code.items() if name != "sass"}, shape_of(entry.resources)
    return Entry(
        entry.key,
        tolerance=entry.tolerance,
        bytes_read=entry.bytes_read,
        bytes_written=entry.bytes_written,
        xfail=entry.xfail,
        note=entry.note,
        resources={} if shape is None else shape.recorded(),
        code=code,
        line=entry.line,
    )


def unchanged_but_for_target(first: Verdict) -> Verdict:
    """Return the verdict on PTX that is the entry's, compiled for another architecture. first: of `look_at_code`."""
    reason = "the code is that of the baseline's device, compiled for this one's architecture"
    return replace(first, status=Status.UNCHANGED, code=SAME_CODE, reason=reason)


def look_at_code(measurement: Measurement, entry: Entry, device: str) -> Verdict:
    """Return UNCHANGED where PTX and launch are the entry's; else NO_BASELINE, for old code beside new to settle.

    device: whose baseline it is.
    """
    then = identity_of_plain(entry.code)
    if measurement.code.is_same(then, by="ptx"):
        reason = f"code and launch are those of the baseline of {device}, whose figures say nothing here"
        return Verdict(Status.UNCHANGED, SAME_CODE, reason)
    changes = "; ".join(measurement.code.changes_since(then)) or "the code is not known on both sides"
    reason = f"the baseline is of {device}, whose figures say nothing here, and {changes}"
    return Verdict(Status.NO_BASELINE, CODE_ALONE, reason)
