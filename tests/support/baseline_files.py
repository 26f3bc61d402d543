"""Write baselines as an update does, for tests that read them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_bandwidth.baseline.runs import NOTHING, Recorded, path_of, run_lines, setup_of
from pytest_bandwidth.baseline.schema import FRACTION, render_device, render_entry
from pytest_bandwidth.domain.baseline import Baseline, settled


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file and, where entries have any, its runs; an entry's anchor is a run of an update before them."""
    first, second = [], []
    for entry in map(settled, baseline.entries.values()):
        if entry.anchor is None:
            second.append((None, entry, NOTHING))
        else:
            before = replace(entry, runs=(entry.anchor,))
            first.append((None, before, NOTHING))
            after = replace(entry, runs=(*before.runs, *entry.runs))
            second.append((before, after, Recorded(setup=setup_of(entry))))
    lines = (*run_lines(first), *run_lines(second))
    peak = baseline.device.peak_gbps if baseline.device else None
    entries = (render_entry(settled(entry, peak)) for entry in baseline.entries.values())
    device = "" if baseline.device is None else render_device(baseline.device)
    tolerance = "" if baseline.tolerance is None else f"tolerance: {FRACTION.write(baseline.tolerance)}\n"
    path.write_text(f"schema: 2\n{device}{tolerance}tests:\n{''.join(entries)}", encoding="utf-8")
    path_of(path).write_text("".join(f"{text}\n" for text in lines), encoding="utf-8")
