"""Judge by another device's baseline: its figures say nothing here, and its code says all that it says there."""

from __future__ import annotations

from dataclasses import replace

from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.launch_shape import shape_of


def has_code(baseline: Baseline) -> bool:
    """Return whether a baseline identifies code, which other devices can judge by."""
    return any(entry.code for entry in baseline.entries.values())


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
