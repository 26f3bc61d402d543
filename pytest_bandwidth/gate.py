"""From the measurements of one test to its verdicts: first look, fresh processes for suspects, last word."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_bandwidth.domain import device_change
from pytest_bandwidth.domain.baseline import Baseline, Entry, Figure
from pytest_bandwidth.domain.counting import judge_counts
from pytest_bandwidth.domain.device_change import Known
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.figures import (
    FIGURES,
    LARGEST_SHARE,
    Figures,
    choose_figure,
    disbelief,
    figures_of_measurement,
)
from pytest_bandwidth.domain.floors import Floors, confirm_floor, is_by_floor, look_at_floors
from pytest_bandwidth.domain.fresh_evidence import evidence_of, wants_likes
from pytest_bandwidth.domain.judging import conduct_of, confirm_drop, look, not_comparable, without_share
from pytest_bandwidth.domain.measurement import Finding, Measurement
from pytest_bandwidth.domain.reference import Pool, Reference, pool_of, prior_spread, reference_of
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.domain.verdict import Status, Verdict

# By label, GB/s of the fastest probe beside which a fresh process shall measure where it can.
Paces = Mapping[str | None, float]
# Figures by label, from one fresh process each.
FreshRun = Callable[[Paces], Mapping[str | None, Figures]]
# GB/s of a matching probe that runs alone in a fresh process: (bytes read, bytes written) → GB/s, or BandwidthError.
ProbeAlone = Callable[[int, int], float]
# How the runs of all of a baseline's entries scatter, by figure.
Pools = Mapping[Figure, Pool]
# So many times the fresh processes that were asked for are tried where too few met the baseline's pace.
MOST_FRESH_FACTOR = 2


@dataclass(frozen=True, slots=True)
class Limits:
    """What one test is held to: marker before options; a baseline's own tolerance lies between.

    writes: which entries this run writes.
    """

    tolerance_of_marker: float | None
    tolerance_of_options: float
    floors: Floors
    judged_on: Figure | None
    confirm: int
    writes: Literal["none", "new", "all"] = "none"

    def written(self, entry: Entry | None) -> bool:
        """Whether this run writes the entry instead of judging by it."""
        return self.writes == "all" or (self.writes == "new" and entry is None)


@dataclass(frozen=True, slots=True)
class Judged:
    """A measurement, what the baseline knows of it, and the verdict."""

    measurement: Measurement
    entry: Entry | None
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class _Case:
    """One measurement with everything the rule needs to judge it."""

    measurement: Measurement
    figures: Figures
    reference: Reference | None
    tolerance: float
    known: Known | None


def pools_of(baseline: Baseline | None) -> Pools:
    """Goes over every entry: once for a run's baseline is enough."""
    return {} if baseline is None else {figure: pool_of(baseline.entries.values(), figure) for figure in FIGURES}


def judge_test(
    measurements: Mapping[str, Measurement],
    baseline: Baseline | None,
    limits: Limits,
    fresh_run: FreshRun,
    probe_alone: ProbeAlone,
    pools: Pools | None = None,
) -> dict[str, Judged]:
    """Verdicts by key. Suspects are measured again by `fresh_run`, `limits.confirm` times for all of them together.

    Up to as many times again where a device that changes its pace kept from the baseline's; see `fresh_evidence`.

    pools: of the baseline (`pools_of`), where they are known already.
    Raises UsageError for a floor that is a share of an unknown peak.
    """
    pools = pools_of(baseline) if pools is None else pools
    judged: dict[str, Judged] = {}
    suspects: dict[str, _Case] = {}
    for key, measurement in measurements.items():
        entry = baseline.find(key) if baseline else None
        case, verdict = _first_look(measurement, entry, baseline, pools, limits, probe_alone)
        judged[key] = Judged(case.measurement if case else measurement, entry, verdict)
        if verdict.status is Status.SUSPECT and case is not None:
            suspects[key] = case
    if not suspects:
        return judged
    by_floor = {key for key in suspects if is_by_floor(judged[key].verdict)}
    dropped = [case for key, case in suspects.items() if key not in by_floor]
    # A floor holds at any pace: to choose one would be to choose the verdict.
    fresh, trouble = _fresh_figures(fresh_run, limits.confirm, dropped, may_wait=not by_floor)
    for key, case in suspects.items():
        first = judged[key].verdict
        seen = _seen(case, fresh)
        verdict = _last_word(first, case, seen, limits, trouble)
        judged[key] = replace(judged[key], verdict=verdict)
    return judged


def _first_look(
    measurement: Measurement,
    entry: Entry | None,
    baseline: Baseline | None,
    pools: Pools,
    limits: Limits,
    probe_alone: ProbeAlone,
) -> tuple[_Case | None, Verdict]:
    if measurement.invalid is not None:
        return None, Verdict(Status.INVALID, measurement.invalid.code, measurement.invalid.text)
    if measurement.device.kind == "traffic":  # the marker's floors are of time, which is not measured there
        return None, _count_verdict(measurement, entry, baseline, limits)
    if limits.floors.min_utilization is not None and measurement.peak is None:
        raise UsageError(
            f"min_utilization asks for a share of the peak, and the peak of {measurement.device.name} is unknown: "
            "use min_relative, or set bandwidth_peak in the ini file"
        )
    figures = figures_of_measurement(measurement)
    case = _case(measurement, figures, entry, baseline, pools, limits)
    floor = look_at_floors(figures, limits.floors)
    if floor is not None:
        return case, floor
    unseen = limits.floors.unseen(figures)
    if unseen is not None:
        return case, Verdict(Status.INVALID, "floor:unseen", f"nothing to hold {unseen} to: {disbelief(figures)}")
    if _share_is_lost(case):
        return case, without_share(figures)
    if limits.written(entry):
        return case, Verdict(Status.UPDATED, "written", "this run writes the entry")
    if entry is None:
        return case, _without_baseline(limits.floors, baseline)
    different = not_comparable(conduct_of(measurement), entry)
    if different is not None:
        return case, different
    if case.reference is None:
        return case, Verdict(Status.NO_BASELINE, "empty-entry", "the baseline's entry holds neither bandwidth nor runs")
    verdict = look(figures, case.reference, case.tolerance, limits.confirm)
    try:
        return case, _device_trouble(verdict, case, probe_alone) or _not_gained(verdict, case)
    except BandwidthError as error:  # without that evidence the kernel is judged as if the device were well
        told = Finding(device_change.PROBE_ALONE, f"{error}; judged as if the device were well")
        return replace(case, measurement=measurement.with_finding(told)), _not_gained(verdict, case)


def _share_is_lost(case: _Case) -> bool:
    """Whether the entry knows a share that can be believed, and this measurement's cannot."""
    reference = case.reference
    judged_on_share = reference is not None and reference.figure == "relative" and reference.value <= LARGEST_SHARE
    return judged_on_share and not case.figures.share_told


def _count_verdict(measurement: Measurement, entry: Entry | None, baseline: Baseline | None, limits: Limits) -> Verdict:
    """Counts are exact: nothing is confirmed, and no tolerance is granted but the marker's or the entry's own."""
    if limits.written(entry):
        return Verdict(Status.UPDATED, "written", "this run writes the entry")
    if entry is None:
        return _without_baseline(Floors(), baseline)
    different = not_comparable(conduct_of(measurement), entry)
    if different is not None:
        return different
    if not entry.counts:
        return Verdict(Status.NO_BASELINE, "empty-entry", "the baseline's entry holds no counts")
    tolerance = next((t for t in (limits.tolerance_of_marker, entry.tolerance) if t is not None), 0.0)
    lines = measurement.detail.get("lines", ())
    verdict = judge_counts(measurement.counts, entry.counts, measurement.traffic, lines, tolerance)
    known = entry.extra.get("pattern")
    if verdict.status is not Status.REGRESSED or not known:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; the baseline: {known}")


def _case(
    measurement: Measurement,
    figures: Figures,
    entry: Entry | None,
    baseline: Baseline | None,
    pools: Pools,
    limits: Limits,
) -> _Case:
    tolerance = next(
        t
        for t in (
            limits.tolerance_of_marker,
            entry.tolerance if entry else None,
            baseline.tolerance if baseline else None,
            limits.tolerance_of_options,
        )
        if t is not None
    )
    figure = choose_figure(limits.judged_on, entry, figures, measurement.regime)
    if entry is None:
        return _Case(measurement, figures, None, tolerance, None)
    gbps, relative = (_reference(entry, which, measurement, pools) for which in ("gbps", "relative"))
    known = device_change.known_of(entry, gbps, relative, tolerance)
    return _Case(measurement, figures, gbps if figure == "gbps" else relative, tolerance, known)


def _reference(entry: Entry, figure: Figure, measurement: Measurement, pools: Pools) -> Reference | None:
    others = pools[figure].without(pool_of([entry], figure))
    return reference_of(entry, figure, prior_spread(figure, measurement.device.on_host, others.spread))


def _without_baseline(floors: Floors, baseline: Baseline | None) -> Verdict:
    if floors:
        return Verdict(Status.WITHIN, "floors", "every floor of the marker holds")
    if baseline is None:
        return Verdict(Status.NO_BASELINE, "no-baseline", "no baseline was given: measured only")
    return Verdict(Status.NO_BASELINE, "no-entry", f"no entry in {baseline.path}: --bandwidth-update-new writes it")


def _device_trouble(verdict: Verdict, case: _Case, probe_alone: ProbeAlone) -> Verdict | None:
    """DEVICE where GB/s dropped, the share of the probe did not, and a probe alone in a fresh process is down, too.

    Raises BandwidthError where that probe could not run.
    """
    known = case.known
    if known is None or not device_change.only_gbps_dropped(case.figures, known):
        return None  # whether a device that is up excuses a suspect, its fresh processes tell
    alone = probe_alone(case.measurement.traffic.bytes_read, case.measurement.traffic.bytes_written)
    return _device(verdict, device_change.blame_when_down(case.figures, alone, known))


def _device(verdict: Verdict, reason: str | None) -> Verdict | None:
    return None if reason is None else replace(verdict, status=Status.DEVICE, code="device", reason=reason)


def _not_gained(verdict: Verdict, case: _Case) -> Verdict:
    """A larger share of a slower probe is no improvement where GB/s are as before."""
    if verdict.status is not Status.IMPROVED or verdict.figure != "relative" or case.known is None:
        return verdict
    if device_change.gained_gbps(case.figures.gbps, case.known):
        return verdict
    reason = f"{format_percent(-(verdict.drop or 0.0), 1)} above the baseline's share of the probe, GB/s are as before"
    return replace(verdict, status=Status.WITHIN, code="share-gain", reason=reason)


def _fresh_figures(
    fresh_run: FreshRun, confirm: int, dropped: Sequence[_Case], *, may_wait: bool
) -> tuple[list[Mapping[str | None, Figures]], BandwidthError | None]:
    """What fresh processes saw, and what went wrong with the last; dropped: the suspects that no floor decides."""
    seen: list[Mapping[str | None, Figures]] = []
    while True:
        wanting = [case for case in dropped if _wants_likes(case, seen, confirm)]
        # A label that none of those asked for has shown will not turn up in more.
        hopeful = any(_seen(case, seen) for case in wanting)
        if len(seen) >= (MOST_FRESH_FACTOR if hopeful else 1) * confirm:
            return seen, None
        paces = {c.measurement.label: device_change.fastest_alike(c.known) for c in wanting if c.known and may_wait}
        try:
            seen.append(fresh_run(paces))
        except BandwidthError as error:
            return seen, error


def _last_word(
    first: Verdict, case: _Case, fresh: Sequence[Figures], limits: Limits, trouble: BandwidthError | None
) -> Verdict:
    if len(fresh) < limits.confirm:
        seen = f"{len(fresh)} fresh processes measured it, and validly; {limits.confirm} have to"
        return _not_confirmed(first, str(trouble) if trouble else seen)
    if is_by_floor(first):
        return confirm_floor(first, fresh[: limits.confirm], limits.floors)
    if case.reference is None:
        raise ValueError("a suspect without a reference")
    evidence = evidence_of(fresh, case.known, limits.confirm)
    values = evidence.values(case.reference.figure)
    if len(values) < evidence.needed:
        return _not_confirmed(first, f"a probe ran in {len(values)} of {len(evidence.processes)} fresh processes")
    verdict = confirm_drop(first, case.reference, values, case.tolerance)
    if verdict.status is Status.REGRESSED and verdict.figure == "relative" and case.known is not None:
        return _device(verdict, device_change.blame_when_up(evidence.processes, case.known)) or verdict
    return verdict


def _not_confirmed(first: Verdict, why: str) -> Verdict:
    reason = f"{first.reason}; not confirmed: {why}"
    return replace(first, status=Status.UNCONFIRMED, code="no-fresh-process", reason=reason)


def _seen(case: _Case, fresh: Sequence[Mapping[str | None, Figures]]) -> list[Figures]:
    return [run[case.measurement.label] for run in fresh if case.measurement.label in run]


def _wants_likes(case: _Case, fresh: Sequence[Mapping[str | None, Figures]], confirm: int) -> bool:
    return case.reference is not None and wants_likes(_seen(case, fresh), case.known, case.reference.figure, confirm)
