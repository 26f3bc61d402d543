"""Write a baseline's files as updates do, from its values."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from pytest_bandwidth.baseline.runs import NOTHING, Recorded, RunLines, path_of, setup_of
from pytest_bandwidth.baseline.writer import render
from pytest_bandwidth.domain.baseline import Baseline, settled


def write_baseline(path: Path, baseline: Baseline) -> None:
    """Write the file and, where entries have any, its runs; an entry's anchor is a run of an update before them."""
    first, second = RunLines(), RunLines()
    for entry in map(settled, baseline.entries.values()):
        if entry.anchor is None:
            second.add(None, entry, NOTHING)
        else:
            before = replace(entry, runs=(entry.anchor,))
            first.add(None, before, NOTHING)
            second.add(before, replace(entry, runs=(*before.runs, *entry.runs)), Recorded(setup=setup_of(entry)))
    path.write_text(render(baseline), encoding="utf-8")
    path_of(path).write_text("".join(f"{text}\n" for text in (*first.texts(), *second.texts())), encoding="utf-8")
