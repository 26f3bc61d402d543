"""Judge the measurements of one test: a first look, and a confirmation for suspects."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

from pytest_bandwidth.domain.baseline import Baseline, Entry, Metric
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.judging import device_change
from pytest_bandwidth.domain.judging.by_code import same_code
from pytest_bandwidth.domain.judging.by_code.by_commit import of_cleared
from pytest_bandwidth.domain.judging.by_code.last_word import UNSURE, Suspect, Way, after_first_look, settle, with_why
from pytest_bandwidth.domain.judging.by_code.other_device import CODE_ALONE, look_at_code
from pytest_bandwidth.domain.judging.by_code.same_code import is_same_code, may_have_changed
from pytest_bandwidth.domain.judging.confirmation import (
    Case,
    Confirmation,
    FreshRow,
    MeasureAgain,
    device_verdict,
    judge_by_fresh,
)
from pytest_bandwidth.domain.judging.counts import judge_counts, ungated
from pytest_bandwidth.domain.judging.drop import is_doubtful, look, not_comparable, setup_of, without_share
from pytest_bandwidth.domain.judging.floors import Floors, is_by_floor, look_at_floors
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.reference import Past, Pool, Reference, pool_of, prior_spread
from pytest_bandwidth.domain.measured.measurement import Finding, Measurement
from pytest_bandwidth.domain.measured.metrics import METRICS, Metrics, choose_metric, disbelief, metrics_of_measurement
from pytest_bandwidth.domain.measured.regime import regime_of
from pytest_bandwidth.domain.measured.rounds import LARGEST_SHARE
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.domain.verdict import Status, Verdict

_ALLOWED = (Status.WITHIN, Status.IMPROVED)

# GB/s of a matching probe that runs alone in a fresh process: (bytes read, bytes written) → GB/s, or BandwidthError.
ProbeAlone = Callable[[int, int], float]
# How the runs of all of a baseline's entries scatter, by figure.
Pools = Mapping[Metric, Pool]
# How tests scattered before, by figure and key.
PastRuns = Mapping[Metric, Mapping[str, Past]]


@dataclass(frozen=True, slots=True)
class Judged:
    """Hold a measurement, what the baseline knows of it, the verdict, and what its fresh processes saw.

    profile: the path of a profiler's report on it; None where none was taken.
    old_resources: what the compiler gave the old code that ran beside it; None where none did.
    old_sectors: what a block asked for by that code, `then`, and by the new one, `now`; None where it is not counted.
    """

    measurement: Measurement
    entry: Entry | None
    verdict: Verdict
    fresh: tuple[FreshRow, ...] = ()
    profile: str | None = None
    old_resources: Mapping[str, int] | None = None
    old_sectors: Mapping[str, int] | None = None


def pools_of(baseline: Baseline | None, past: PastRuns = MappingProxyType({})) -> Pools:
    """Pool every entry's runs by figure, which is enough once for a run's baseline. past: what a history adds."""
    if baseline is None:
        return {}
    entries = baseline.entries.values()
    return {figure: pool_of(entries, figure, past.get(figure, {})) for figure in METRICS}


def tolerance_of(marker: float | None, entry: Entry | None, baseline: Baseline | None, option: float) -> float:
    """Return the drop that matters: the marker's before the entry's own, the file's and the option's."""
    for tolerance in (marker, entry.tolerance if entry else None, baseline.tolerance if baseline else None):
        if tolerance is not None:
            return tolerance
    return option


def reference_in(pools: Pools, entry: Entry, figure: Metric, on_host: bool) -> Reference | None:
    """Return an entry's centre and spread, beside all of its file; None where it does not hold the figure."""
    return pools[figure].reference(entry, prior_spread(figure, on_host))


def judge_test(
    measurements: Mapping[str, Measurement],
    baseline: Baseline | None,
    limits: Limits,
    measure_again: MeasureAgain,
    probe_alone: ProbeAlone,
    pools: Pools | None = None,
    ways: Sequence[Way] = (),
) -> dict[str, Judged]:
    """Judge by key. Suspects and doubtful drops that no way settles are measured again, `limits.confirm` times for all.

    Fewer times where the rest could change nothing; see `Confirmation`.

    pools: of the baseline (`pools_of`), where they are known already. ways: to settle suspects of changed or unknown
    code, the best first.
    Raises UsageError for a floor that is a share of an unknown peak.
    """
    pools = pools_of(baseline) if pools is None else pools
    judged: dict[str, Judged] = {}
    suspects: dict[str, Case] = {}
    for key, measurement in measurements.items():
        entry = baseline.find(key) if baseline else None
        case, verdict = _first_look(measurement, entry, baseline, pools, limits, probe_alone)
        judged[key] = Judged(case.measurement if case else measurement, entry, verdict)
        if case is not None and (
            _needs_processes(verdict, case, limits) or _is_unsettled(verdict, case, entry, limits)
        ):
            suspects[key] = case
    by_floor = {key for key in suspects if is_by_floor(judged[key].verdict)}
    unlike = {key: Suspect(case, entry, judged[key].verdict) for key, case, entry in _of_other_code(suspects, judged)}
    last = settle(unlike, ways)
    for key, verdict in last.verdicts.items():
        judged[key] = replace(judged[key], verdict=after_first_look(judged[key].verdict, verdict))
    suspects = {k: c for k, c in suspects.items() if k not in last.verdicts}
    for key, case in list(suspects.items()):
        first, cleared = judged[key].verdict, last.cleared.get(key)
        if _needs_processes(first, case, limits) or (cleared is not None and first.status in UNSURE):
            continue
        said = with_why(first, last.why_not.get(key)) if cleared is None else after_first_look(first, cleared)
        judged[key] = replace(judged[key], verdict=said)
        del suspects[key]
    if not suspects:
        return judged
    dropped = [case for key, case in suspects.items() if key not in by_floor]
    fresh, trouble = measure_again(Confirmation(limits.confirm, dropped, floors=bool(by_floor)))
    for key, case in suspects.items():
        verdict = judge_by_fresh(judged[key].verdict, case, fresh, limits.confirm, limits.floors, trouble)
        entry = judged[key].entry
        if key in last.cleared:
            verdict = of_cleared(unlike[key], last.cleared[key], verdict if limits.confirm else None)
            if trouble is not None and not verdict.status.warns:
                verdict = with_why(verdict, f"whether the device lost it is not known: {trouble}")
            judged[key] = replace(judged[key], verdict=after_first_look(judged[key].verdict, verdict))
            continue
        if entry is not None and key not in by_floor and is_same_code(case.measurement, entry):
            verdict = same_code.in_fresh_processes(verdict, case.measurement, entry)
        # What was allowed at first stays so, unless it is a regression after all.
        if judged[key].verdict.status is Status.SUSPECT or verdict.status is Status.REGRESSED:
            judged[key] = replace(judged[key], verdict=with_why(verdict, last.why_not.get(key)))
    return judged


def _of_other_code(suspects: Mapping[str, Case], judged: Mapping[str, Judged]) -> Iterator[tuple[str, Case, Entry]]:
    """Give the suspects that no floor decides and whose code is not known to be the baseline's."""
    for key, case in suspects.items():
        entry = judged[key].entry
        if entry is not None and not is_by_floor(judged[key].verdict) and not is_same_code(case.measurement, entry):
            yield key, case, entry


def _needs_processes(verdict: Verdict, case: Case, limits: Limits) -> bool:
    """Return whether fresh processes look at a measurement that nothing better settles."""
    return verdict.status is Status.SUSPECT or _is_doubtful(verdict, case, limits)


def _is_unsettled(verdict: Verdict, case: Case, entry: Entry | None, limits: Limits) -> bool:
    """Return whether old code is to say what stored figures cannot.

    Of code that changed they cannot say that it lost little: since then the machine may have got as much better.
    A layer norm that was made 5 % slower stood 0.2 % below five runs of the hour before, which differed by 0.9 %.
    """
    if verdict.code == CODE_ALONE:
        return True
    if not limits.unsure:
        return False
    return verdict.status in UNSURE or (verdict.status in _ALLOWED and may_have_changed(case.measurement, entry))


def _is_doubtful(verdict: Verdict, case: Case, limits: Limits) -> bool:
    return case.reference is not None and is_doubtful(verdict, case.reference, case.tolerance, limits.confirm)


def _first_look(
    measurement: Measurement,
    entry: Entry | None,
    baseline: Baseline | None,
    pools: Pools,
    limits: Limits,
    probe_alone: ProbeAlone,
) -> tuple[Case | None, Verdict]:
    if measurement.invalid is not None:
        return None, Verdict(Status.INVALID, measurement.invalid.code, measurement.invalid.text)
    if measurement.device.counts_only:  # the marker's floors are of time, which is not measured there
        return None, _count_verdict(measurement, entry, baseline, limits)
    if limits.floors.min_utilization is not None and measurement.peak is None:
        raise UsageError(
            f"min_utilization asks for a share of the peak, and the peak of {measurement.device.name} is unknown: "
            "use min_relative, or set bandwidth_peak in the ini file"
        )
    figures = metrics_of_measurement(measurement)
    case = _case(measurement, figures, entry, baseline, pools, limits)
    floor = _on_floors(figures, limits.floors) if limits.floors else None
    if floor is not None:
        return case, floor
    if _share_is_lost(case):
        return case, without_share(figures)
    if limits.written(entry):
        return case, Verdict(Status.UPDATED, "written", "this run writes the entry")
    if entry is None:
        return case, _without_baseline(limits.floors, baseline)
    different = not_comparable(setup_of(measurement), entry)
    if different is not None:
        return case, different
    if baseline is not None and baseline.code_of is not None:
        return case, look_at_code(measurement, entry, baseline.code_of)
    if case.reference is None:
        return case, Verdict(Status.NO_BASELINE, "empty-entry", "the baseline's entry holds neither bandwidth nor runs")
    verdict = look(figures, case.reference, case.tolerance, limits.confirm)
    try:
        verdict = _device_trouble(verdict, case, probe_alone) or _not_gained(verdict, case)
    except BandwidthError as error:  # without that evidence the kernel is judged as if the device were well
        told = Finding(device_change.PROBE_ALONE, f"{error}; judged as if the device were well")
        case, verdict = replace(case, measurement=measurement.with_finding(told)), _not_gained(verdict, case)
    if is_same_code(measurement, entry):
        verdict = same_code.at_first_look(verdict, measurement, entry)
    return case, verdict


def _on_floors(figures: Metrics, floors: Floors) -> Verdict | None:
    """Return SUSPECT where a floor is missed, INVALID where there is nothing to hold one to, None where all hold."""
    missed, unseen = look_at_floors(figures, floors), floors.unseen(figures)
    if missed is not None or unseen is None:
        return missed
    return Verdict(Status.INVALID, "floor:unseen", f"nothing to hold {unseen} to: {disbelief(figures)}")


def _share_is_lost(case: Case) -> bool:
    """Return whether the entry knows a share that can be believed, and this measurement's cannot."""
    reference = case.reference
    judged_on_share = reference is not None and reference.figure == "relative" and reference.value <= LARGEST_SHARE
    return judged_on_share and not case.figures.share_told


def _count_verdict(measurement: Measurement, entry: Entry | None, baseline: Baseline | None, limits: Limits) -> Verdict:
    """Judge exact counts: nothing is confirmed, and no tolerance is granted but the marker's or the entry's own."""
    if limits.written(entry):
        return Verdict(Status.UPDATED, "written", "this run writes the entry")
    if entry is None:
        return _without_baseline(Floors(), baseline)
    same = is_same_code(measurement, entry)
    setup = setup_of(measurement)
    different = not_comparable(setup.by_any_compiler() if same else setup, entry)
    if different is not None:
        return different
    if not entry.counts:
        return Verdict(Status.NO_BASELINE, "empty-entry", "the baseline's entry holds no counts")
    tolerance = next((t for t in (limits.marker.tolerance, entry.tolerance) if t is not None), 0.0)
    lines = measurement.detail.get("lines", ())
    verdict = judge_counts(measurement.counts, entry.counts, measurement.traffic, lines, tolerance)
    verdict = same_code.of_counts(verdict, measurement, entry) if same else verdict
    verdict = ungated(verdict, measurement.counts, entry.counts)
    known = entry.extra.get("pattern")
    if verdict.status is not Status.REGRESSED or not known:
        return verdict
    return replace(verdict, reason=f"{verdict.reason}; the baseline: {known}")


def _case(
    measurement: Measurement,
    figures: Metrics,
    entry: Entry | None,
    baseline: Baseline | None,
    pools: Pools,
    limits: Limits,
) -> Case:
    tolerance = tolerance_of(limits.marker.tolerance, entry, baseline, limits.tolerance)
    settled = limits.marker.judged_on or (entry.judged_on if entry else None)
    figure = choose_metric(settled, entry, figures, None if settled else _regime(measurement))
    if entry is None:
        return Case(measurement, figures, None, tolerance, None)
    on_host = measurement.device.on_host
    gbps, relative = (reference_in(pools, entry, which, on_host) for which in ("gbps", "relative"))
    known = device_change.bounds_of(entry, gbps, relative, tolerance)
    return Case(measurement, figures, gbps if figure == "gbps" else relative, tolerance, known)


def _regime(measurement: Measurement) -> str | None:
    found = regime_of(measurement)
    return None if found is None else found.regime


def _without_baseline(floors: Floors, baseline: Baseline | None) -> Verdict:
    if floors:
        return Verdict(Status.WITHIN, "floors", "every floor of the marker holds")
    if baseline is None:
        return Verdict(Status.NO_BASELINE, "no-baseline", "no baseline was given: measured only")
    if baseline.code_of is not None:
        reason = f"no code of it in {baseline.path}, the baseline of {baseline.code_of}"
        return Verdict(Status.NO_BASELINE, "no-entry", f"{reason}: --bandwidth-update writes one for this device")
    return Verdict(Status.NO_BASELINE, "no-entry", f"no entry in {baseline.path}: --bandwidth-update-new writes it")


def _device_trouble(verdict: Verdict, case: Case, probe_alone: ProbeAlone) -> Verdict | None:
    """Return DEVICE where GB/s dropped, the share of the probe did not, and a probe alone in a process is down, too.

    Raises BandwidthError where that probe could not run.
    """
    known = case.known
    if known is None or not device_change.only_gbps_dropped(case.figures, known):
        return None  # whether a device that is up excuses a suspect, its fresh processes tell
    alone = probe_alone(case.measurement.traffic.bytes_read, case.measurement.traffic.bytes_written)
    return device_verdict(verdict, device_change.blame_when_down(case.figures, alone, known))


def _not_gained(verdict: Verdict, case: Case) -> Verdict:
    """Return a larger share of a slower probe is no improvement where GB/s are as before."""
    if verdict.status is not Status.IMPROVED or verdict.figure != "relative" or case.known is None:
        return verdict
    if device_change.gained_gbps(case.figures.gbps, case.known):
        return verdict
    reason = f"{format_percent(-(verdict.drop or 0.0), 1)} above the baseline's share of the probe, GB/s are as before"
    return replace(verdict, status=Status.WITHIN, code="share-gain", reason=reason)
