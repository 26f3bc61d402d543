"""Compare two sides of saved runs: what the reference's processes showed of each test, what the new ones show.

The rule is that of stored figures (`domain.judging.stored`). The new processes were not chosen for what they showed, so
all of them count at once. Of counts, which are exact, the newest run of each side stands for it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Literal

from pytest_bandwidth.domain.baseline import Entry, Metric, Run
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, metrics_of_run
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.decide import decide_counts, decide_processes, mismatch_of
from pytest_bandwidth.judging.evidence import MeasurementSetup
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.outcomes.outcome import Outcome

# What messages call the runs that others are compared with.
REFERENCE = "the reference"
NOT_BEFORE = Decision(Status.UNDECIDED, Rule.NO_ENTRY, facts={"path": REFERENCE})


@dataclass(frozen=True, slots=True)
class SavedRun:
    """Hold one file's rows by key, and the settings of its device."""

    outcomes: Mapping[str, Outcome]
    settings: Mapping[str, str]

    def setup(self, key: str) -> MeasurementSetup:
        """Return how a test was measured in this run."""
        outcome = self.outcomes[key]
        return MeasurementSetup(outcome.bytes_read, outcome.bytes_written, outcome.method, self.settings)


@dataclass(frozen=True, slots=True)
class Compared:
    """Hold one test on both sides: GB/s and the probe's GB/s (medians, None where nothing valid was measured)."""

    key: str
    gbps_before: float | None
    gbps_after: float | None
    probe_before: float | None
    probe_after: float | None
    decision: Decision
    code: Literal["same", "changed"] | None = None


@dataclass(frozen=True, slots=True)
class _Process:
    """Hold one process's valid measurement of a test: its figures are positive."""

    run: Run
    setup: MeasurementSetup
    regime: str | None
    tolerance: float | None

    @property
    def figures(self) -> Metrics:
        return metrics_of_run(self.run)


@dataclass(frozen=True, slots=True)
class _Side:
    """Hold the valid processes of one test on one side, oldest first."""

    processes: tuple[_Process, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(process.run for process in self.processes)

    @property
    def gbps(self) -> float | None:
        return median(run.gbps for run in self.runs) if self.processes else None

    @property
    def probe_gbps(self) -> float | None:
        probes = [run.probe_gbps for run in self.runs if run.probe_gbps is not None]
        return median(probes) if probes else None


def compare_sides(
    reference: Sequence[SavedRun], fresh: Sequence[SavedRun], tolerance: float | None, default: float, on_host: bool
) -> list[Compared]:
    """Return every test of the new runs judged by the reference's runs, in the order of the newest file.

    tolerance: for all tests; None takes what the newest file's verdict used, else `default`.
    """
    entries = {key: _entry(key, _side(reference, key)) for key in measured_keys(reference)}
    compared = []
    for key in measured_keys(fresh):
        before, after = _side(reference, key), _side(fresh, key)
        allowed = tolerance or (after.processes[-1].tolerance if after.processes else None) or default
        decision = _decision(entries.get(key), key in entries, before, after, allowed, on_host)
        code = code_between(key, reference, fresh)
        compared.append(Compared(key, before.gbps, after.gbps, before.probe_gbps, after.probe_gbps, decision, code))
    return compared


def compare_counted(
    reference: Sequence[SavedRun], fresh: Sequence[SavedRun], tolerance: float | None
) -> list[Compared]:
    """Return every test of the new runs, its counts judged by the reference's. tolerance: None grants none."""
    return [
        Compared(
            *(key, None, None, None, None, _counted(key, reference, fresh, tolerance or 0.0)),
            code_between(key, reference, fresh),
        )
        for key in measured_keys(fresh)
    ]


def _counted(key: str, reference: Sequence[SavedRun], fresh: Sequence[SavedRun], tolerance: float) -> Decision:
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


def code_between(
    key: str, reference: Sequence[SavedRun], fresh: Sequence[SavedRun]
) -> Literal["same", "changed"] | None:
    """Tell whether all runs ran the same code, or the newest of each side surely other; None where it is not known."""
    sides = [[run.outcomes[key] for run in runs if key in run.outcomes] for runs in (reference, fresh)]
    if not all(sides):
        return None
    then, *others = (identity_of_plain(outcome.code_identity) for side in sides for outcome in side)
    by = "ptx" if sides[1][-1].counts else "sass"
    if all(one.is_same(then, by=by) for one in others):
        return "same"
    before, after = (identity_of_plain(side[-1].code_identity) for side in sides)
    return "changed" if after.standing(before, by=by) == "changed" else None


def measured_keys(runs: Sequence[SavedRun]) -> list[str]:
    """Return every test of some runs, in the order of the newest."""
    return list(dict.fromkeys(key for run in reversed(runs) for key in run.outcomes))


def absent(reference: Sequence[SavedRun], fresh: Sequence[SavedRun]) -> list[str]:
    """Return keys that the reference measured and none of the new runs."""
    there = set(measured_keys(fresh))
    return [key for key in measured_keys(reference) if key not in there]


def nothing_valid(where: str) -> Decision:
    """Return the verdict of a test of which one side holds no valid measurement."""
    return Decision(Status.UNDECIDED, Rule.NOTHING_VALID, facts={"text": where})


def _side(runs: Sequence[SavedRun], key: str) -> _Side:
    processes = (_process(run, key) for run in runs if key in run.outcomes)
    return _Side(tuple(process for process in processes if process is not None))


def _process(run: SavedRun, key: str) -> _Process | None:
    outcome = run.outcomes[key]
    gbps = _positive(outcome.gbps)
    if gbps is None or not outcome.is_valid:
        return None
    tolerance = outcome.verdict.get("tolerance")
    return _Process(
        Run(gbps, probe_gbps=_positive(outcome.probe_gbps), relative=_positive(outcome.relative)),
        run.setup(key),
        outcome.regime,
        tolerance if tolerance is not None and 0 < tolerance < 1 else None,
    )


def _positive(figure: float | None) -> float | None:
    return figure if figure is not None and figure > 0 else None


def _entry(key: str, side: _Side) -> Entry | None:
    """Return the baseline entry that an update with these processes would have written; None without a valid one."""
    if not side.processes:
        return None
    newest = side.processes[-1]
    return Entry(
        key,
        gbps=side.gbps,
        judged_on=choose_metric(None, None, newest.figures, newest.regime),
        bytes_read=newest.setup.bytes_read,
        bytes_written=newest.setup.bytes_written,
        method=newest.setup.method,
        settings=newest.setup.settings,
        runs=side.runs,
    )


def _decision(
    entry: Entry | None,
    known: bool,
    before: _Side,
    after: _Side,
    tolerance: float,
    on_host: bool,
) -> Decision:
    if not known:
        return NOT_BEFORE
    if entry is None or not after.processes:
        return nothing_valid(REFERENCE if entry is None else "the new runs")
    for process in (*before.processes, *after.processes):
        if (mismatch := mismatch_of(process.setup, entry)) is not None:
            return mismatch
    figure, values = _judged_values(entry, after)
    reference = reference_of(entry, figure, on_host)
    if reference is None:
        raise ValueError(f"the reference of {entry.key} holds no {figure}")
    return decide_processes(reference, values, tolerance)


def _judged_values(entry: Entry, after: _Side) -> tuple[Metric, list[float]]:
    """Return the figure that both sides hold in every process, and the new processes' values of it."""
    newest = after.processes[-1]
    if choose_metric(None, entry, newest.figures, newest.regime) == "relative":
        shares = [share for process in after.processes if (share := process.figures.relative) is not None]
        if len(shares) == len(after.processes):
            return "relative", shares
    return "gbps", [run.gbps for run in after.runs]
