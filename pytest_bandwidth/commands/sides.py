"""Two sides of saved runs: what the reference's processes showed of each test, and what the new ones show.

The rule is `domain.judging`'s. The new processes are not picked because one of them looked slow, so all m of them
count at once: REGRESSED where c − median(L) exceeds the bound of the level 99.9 % for m fresh processes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median

from pytest_bandwidth.domain import judging
from pytest_bandwidth.domain.baseline import Entry, Figure, Run
from pytest_bandwidth.domain.judging import Conduct, Figures, Reference
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.domain.verdict import Status, Verdict


@dataclass(frozen=True, slots=True)
class SavedRun:
    """One file's rows by key, and the settings of its device."""

    path: str
    outcomes: Mapping[str, Outcome]
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Compared:
    """One test on both sides: GB/s and the probe's GB/s (medians, None where nothing valid was measured)."""

    key: str
    gbps_before: float | None
    gbps_after: float | None
    probe_before: float | None
    probe_after: float | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Side:
    """The valid processes of one test on one side, oldest first."""

    rows: tuple[Outcome, ...]
    conducts: tuple[Conduct, ...]

    @property
    def runs(self) -> tuple[Run, ...]:
        return tuple(Run(gbps=o.gbps or 0.0, probe_gbps=o.probe_gbps, relative=o.relative) for o in self.rows)

    @property
    def gbps(self) -> float | None:
        return median(run.gbps for run in self.runs) if self.rows else None

    @property
    def probe_gbps(self) -> float | None:
        probes = [o.probe_gbps for o in self.rows if o.probe_gbps]
        return median(probes) if probes else None


def compare_sides(
    reference: Sequence[SavedRun], fresh: Sequence[SavedRun], tolerance: float | None, default: float, on_host: bool
) -> list[Compared]:
    """Every test of the new runs judged by the reference's runs, in the order of the newest file.

    tolerance: for all tests; None takes what the newest file's verdict used, else `default`.
    """
    entries = {key: _entry(key, _side(reference, key)) for run in reference for key in run.outcomes}
    pools = {figure: judging.pooled_spread([e for e in entries.values() if e], figure) for figure in _FIGURES}
    keys = dict.fromkeys(key for run in reversed(fresh) for key in run.outcomes)
    compared = []
    for key in keys:
        before, after = _side(reference, key), _side(fresh, key)
        allowed = tolerance or _tolerance_of(after) or default
        verdict = _verdict(entries.get(key), key in entries, before, after, allowed, pools, on_host)
        compared.append(Compared(key, before.gbps, after.gbps, before.probe_gbps, after.probe_gbps, verdict))
    return compared


_FIGURES: tuple[Figure, ...] = ("relative", "gbps")


def absent(reference: Sequence[SavedRun], fresh: Sequence[SavedRun]) -> list[str]:
    """Keys that the reference measured and none of the new runs."""
    there = {key for run in fresh for key in run.outcomes}
    return [key for key in dict.fromkeys(key for run in reference for key in run.outcomes) if key not in there]


def judge_processes(reference: Reference, values: Sequence[float], tolerance: float) -> Verdict:
    """The verdict of some fresh processes' figures, none of them chosen for what it showed.

    REGRESSED, INSUFFICIENT, IMPROVED or WITHIN. Raises ValueError for no figure or one that is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError(f"found the figures {list(values)!r}, expected positive ones")
    bound = reference.bound(judging.REGRESSED_LEVEL, tolerance, len(values))
    drop = reference.centre - median(map(math.log, values))
    verdict = Verdict(
        Status.WITHIN,
        "within",
        "",
        figure=reference.figure,
        observed=math.exp(reference.centre - drop),
        reference=reference.value,
        tolerance=tolerance,
        drop=-math.expm1(-drop),
        allowed_drop=-math.expm1(-bound),
        visible_drop=-math.expm1(-bound),
        spread=reference.spread,
        degrees=reference.degrees,
        baseline_runs=reference.runs,
        confirmations=tuple(values),
    )
    side = "below" if drop >= 0 else "above"
    moved = f"{format_percent(abs(math.expm1(-drop)), 1)} {side} the reference"
    reason = f"{moved}, {format_percent(verdict.allowed_drop or 0, 1)} allowed"
    if drop > bound:
        return replace(verdict, status=Status.REGRESSED, code="drop", reason=reason)
    if bound > -math.log1p(-tolerance) * (1 + 1e-12):
        return _insufficient(verdict, reference, len(values))
    if -drop > bound:
        return replace(verdict, status=Status.IMPROVED, code="gain", reason=moved)
    return replace(verdict, reason=reason)


def _insufficient(verdict: Verdict, reference: Reference, processes: int) -> Verdict:
    tolerance = verdict.tolerance or 0.0
    advised = judging.runs_needed(reference, tolerance, processes)
    remedy = (
        f"{advised} reference runs would do"
        if advised
        else f"no number of reference runs up to 20 would do for {processes} new: give more on both sides"
    )
    return replace(
        verdict,
        status=Status.INSUFFICIENT,
        code="noise",
        runs_advised=advised,
        reason=f"drops under {format_percent(verdict.visible_drop or 0, 1)} cannot be told from noise "
        f"(tolerance {format_percent(tolerance, 1)}, {reference.runs} reference and {processes} new); {remedy}",
    )


def _side(runs: Sequence[SavedRun], key: str) -> _Side:
    rows, conducts = [], []
    for run in runs:
        outcome = run.outcomes.get(key)
        if outcome is None or outcome.status == Status.INVALID.value or not outcome.gbps or outcome.gbps <= 0:
            continue
        rows.append(outcome)
        conducts.append(Conduct(outcome.bytes_read, outcome.bytes_written, outcome.method, run.settings))
    return _Side(tuple(rows), tuple(conducts))


def _entry(key: str, side: _Side) -> Entry | None:
    """The baseline entry that an update with these processes would have written; None without a valid one."""
    if not side.rows:
        return None
    newest, conduct = side.rows[-1], side.conducts[-1]
    figures = Figures(newest.gbps or 0.0, newest.relative, newest.probe_gbps)
    return Entry(
        key,
        gbps=side.gbps,
        judged_on=judging.choose_figure(None, None, figures, newest.regime),
        bytes_read=conduct.bytes_read,
        bytes_written=conduct.bytes_written,
        method=conduct.method,
        settings=conduct.settings,
        runs=side.runs,
    )


def _tolerance_of(side: _Side) -> float | None:
    found = side.rows[-1].verdict.get("tolerance") if side.rows else None
    return found if isinstance(found, float) and 0 < found < 1 else None


def _verdict(
    entry: Entry | None,
    known: bool,
    before: _Side,
    after: _Side,
    tolerance: float,
    pools: Mapping[Figure, float],
    on_host: bool,
) -> Verdict:
    if not known:
        return Verdict(Status.NO_BASELINE, "no-entry", "the reference has no such test")
    if entry is None or not after.rows:
        where = "the reference" if entry is None else "the new runs"
        return Verdict(Status.INVALID, "nothing-valid", f"{where} measured nothing valid")
    for conduct in (*before.conducts, *after.conducts):
        different = judging.not_comparable(conduct, entry)
        if different is not None:
            return different
    newest = after.rows[-1]
    figures = [Figures(o.gbps or 0.0, _relative(o), o.probe_gbps) for o in after.rows]
    figure = judging.choose_figure(None, entry, figures[-1], newest.regime)
    if figure == "relative" and any(not f.relative for f in figures):
        figure = "gbps"
    reference = judging.reference_of(entry, figure, judging.prior_spread(figure, on_host, pools[figure]))
    values = [value for f in figures if (value := f.of(figure)) is not None]
    if reference is None:
        return Verdict(Status.INVALID, "nothing-valid", "the reference measured nothing valid")
    return judge_processes(reference, values, tolerance)


def _relative(outcome: Outcome) -> float | None:
    if outcome.relative is not None:
        return outcome.relative
    return outcome.gbps / outcome.probe_gbps if outcome.gbps and outcome.probe_gbps else None
