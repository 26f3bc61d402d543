"""Judge saved runs whose traffic was counted: figures are exact, so the newest run of each side stands for it."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.cli.compare.sides import (
    NOT_BEFORE,
    REFERENCE,
    Compared,
    SavedRun,
    code_between,
    measured_keys,
    nothing_valid,
)
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision
from pytest_bandwidth.judging.decide import decide_counts


def compare_counted(
    reference: Sequence[SavedRun], fresh: Sequence[SavedRun], tolerance: float | None
) -> list[Compared]:
    """Return every test of the new runs, its counts judged by the reference's. tolerance: None grants none."""
    return [
        Compared(
            *(key, None, None, None, None, _verdict(key, reference, fresh, tolerance or 0.0)),
            code_between(key, reference, fresh),
        )
        for key in measured_keys(fresh)
    ]


def _verdict(key: str, reference: Sequence[SavedRun], fresh: Sequence[SavedRun], tolerance: float) -> Decision:
    if not any(key in run.outcomes for run in reference):
        return NOT_BEFORE
    before, after = _newest(key, reference), _newest(key, fresh)
    if before is None or after is None:
        return nothing_valid(REFERENCE if before is None else "the new runs")
    setup = before.setup(key)
    entry = Entry(
        key,
        bytes_read=setup.bytes_read,
        bytes_written=setup.bytes_written,
        method=setup.method,
        settings=setup.settings,
        counts=dict(before.outcomes[key].counts),
    )
    seen = after.outcomes[key]
    same = code_between(key, [before], [after]) == "same"
    declared = Traffic(seen.bytes_read, seen.bytes_written)
    return decide_counts(seen.counts, after.setup(key), declared, entry, tolerance, is_same_code=same)


def _newest(key: str, runs: Sequence[SavedRun]) -> SavedRun | None:
    """Return the last run that counted the test."""
    for run in reversed(runs):
        outcome = run.outcomes.get(key)
        if outcome is not None and outcome.counts and outcome.is_valid:
            return run
    return None
