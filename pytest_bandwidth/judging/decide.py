"""Decide one of six verdicts from one measurement's evidence, by the table of docs/method.md.

Where the evidence does not suffice yet, `decide` returns which evidence it needs. No other module gives a verdict.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any, TypeVar

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import COMPILERS
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import UNTOUCHED, WRONG, Finding, Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics, middle_of
from pytest_bandwidth.domain.units import drop_of_log, log_of_drop
from pytest_bandwidth.domain.verdict import NO_NUMBERS, Decision, Numbers, Rule, Status
from pytest_bandwidth.judging.evidence import Ask, Evidence, OldCodeComparison, setup_of
from pytest_bandwidth.judging.limits import (
    OF_PEAK,
    RESOURCE_OF_LIMIT,
    Limits,
    MarkerOptions,
    figure_of,
    first_missed,
    first_unseen,
)
from pytest_bandwidth.judging.pairs import Interval, Looks, interval_of
from pytest_bandwidth.judging.stored import SLOW_SHARE, Reference, runs_needed

Decided = TypeVar("Decided", bound=Decision | Ask)
# A look needs two comparisons.
_FEWEST_DROPS = 2
# Where the two processes of a pair have different addresses, each may have one of two speeds until its end. Then four
# pairs often agree by chance (benchmarks/pairs_simulation.py).
_FEWEST_UNALIKE = 8
_NO_ENTRY = (Rule.NO_BASELINE, Rule.NO_ENTRY)


def decide(evidence: Evidence, limits: Limits) -> Decision | Ask:
    """Return the decision, or what evidence it needs.

    Raises UsageError for a floor that is a share of an unknown peak.
    """
    return with_resource_limits(_by_figures(evidence, limits), evidence.measurement, limits.marker)


def with_resource_limits(decided: Decided, measurement: Measurement, marker: MarkerOptions) -> Decided | Decision:
    """Return REGRESSED for a kernel of more registers or local memory than the marker allows.

    Return UNDECIDED where they are unknown on a GPU, or on a model of one, unless the decision is UNDECIDED for another
    reason. An update still writes its entry, and a failing decision stays.
    """
    bounds = marker.resource_limits
    if not bounds or (isinstance(decided, Decision) and decided.status.always_fails):
        return decided
    if measurement.resources is None:
        if not (measurement.device.on_gpu or measurement.device.counts_only):
            return decided  # a host has no registers of this kind
        if not isinstance(decided, Decision) or decided.status is Status.SAVED:
            return decided
        is_open = not decided.status.warns or decided.rule in _NO_ENTRY
        return Decision(Status.UNDECIDED, f"floor:{next(iter(bounds))}") if is_open else decided
    for name, limit in bounds.items():
        seen = getattr(measurement.resources, RESOURCE_OF_LIMIT[name])
        if seen > limit:
            return Decision(Status.REGRESSED, f"floor:{name}", Numbers(observed=seen, reference=limit))
    return decided


def _by_figures(evidence: Evidence, limits: Limits) -> Decision | Ask:
    measurement, invalid, entry = evidence.measurement, evidence.measurement.invalid, evidence.entry
    if invalid is not None and invalid.level == WRONG:
        return Decision(Status.MISMATCH, invalid.code, facts={"text": invalid.text})
    if measurement.device.counts_only:  # the marker's floors limit time, which is not measured there
        return _counted(evidence, limits) if invalid is None else _invalid(invalid)
    if invalid is None:
        if (missed := _floors(evidence, limits)) is not None:
            return missed
        if limits.writes_entry(entry):
            return Decision(Status.SAVED, Rule.WRITTEN)
    decided = _by_code(evidence, limits)
    if invalid is not None:
        passes = isinstance(decided, Decision) and decided.status in (Status.OK, Status.IMPROVED)
        if decided is None or (passes and limits.marker.floors):
            return _invalid(invalid, evidence.why_not if decided is None else ())
    if decided is not None:
        return decided
    if entry is not None:
        return _stored(evidence, limits)
    return Decision(Status.OK, Rule.FLOORS) if limits.marker.floors else _without_entry(evidence)


def _by_code(evidence: Evidence, limits: Limits) -> Decision | Ask | None:
    """Decide by the code: unchanged, or compared with old code that is measured now.

    None where stored figures have to decide.
    """
    measurement, entry = evidence.measurement, evidence.entry
    if limits.writes_entry(entry):
        return None
    if entry is not None and (mismatch := mismatch_of(setup_of(measurement), entry)) is not None:
        return mismatch
    if entry is not None and evidence.is_same_code:
        facts = {} if evidence.revision is None else {"revision": evidence.revision}
        if (invalid := measurement.invalid) is not None:
            why = f"its figures do not count: {invalid.text}"
            return Decision(Status.OK, Rule.CODE_UNCHANGED, NO_NUMBERS, facts, why_not=(why,))
        reference, observed, numbers = evidence.stored, evidence.observed, NO_NUMBERS
        if reference is not None and observed is not None:  # for people, and for the report on the device
            numbers = _numbers(reference, reference.drop(observed), evidence.tolerance, 1, observed=observed)
        return Decision(Status.OK, Rule.CODE_UNCHANGED, numbers, facts)
    if entry is None and evidence.revision is None:
        return None
    if evidence.compared is not None:
        return _noted(decide_comparison(evidence.compared, evidence.tolerance, limits.looks), evidence)
    if not evidence.old_code_tried:
        return Ask.OLD_CODE
    if evidence.revision is not None:
        return Decision(
            Status.UNDECIDED, Rule.NOT_THERE, facts={"revision": evidence.revision}, why_not=evidence.why_not
        )
    return None


def _invalid(invalid: Finding, why_not: tuple[str, ...] = ()) -> Decision:
    return Decision(Status.UNDECIDED, invalid.code, facts={"text": invalid.text}, why_not=why_not)


def mismatch_of(measured: Entry, entry: Entry) -> Decision | None:
    """Return MISMATCH by the first difference that forbids a comparison with the entry; None without one.

    Those are byte counts, timing method, and the device's settings.
    """

    def mismatch(rule: str, name: str, here: str | int | None, there: str | int) -> Decision:
        return Decision(Status.MISMATCH, rule, facts={"name": name, "here": here, "there": there})

    for name in ("bytes_read", "bytes_written"):
        now, then = getattr(measured, name), getattr(entry, name)
        if then is not None and then != now:
            return mismatch(Rule.BYTES, name, now, then)
    if entry.method is not None and entry.method != measured.method:
        return mismatch(Rule.METHOD, "method", measured.method, entry.method)
    for setting, before in entry.settings.items():
        here = measured.settings.get(setting)
        if here is not None and here != before:
            return mismatch(f"setting:{setting}", setting, here, before)
    return None


def decide_counts(measured: Entry, entry: Entry, tolerance: float, *, is_same_code: bool = False) -> Decision:
    """Decide exact counts: any rise of a cost by more than the tolerance is REGRESSED, without confirmation."""
    counts = measured.counts
    compiled = [
        (name, counts[name], entry.counts[name]) for name in COMPILED if name in counts and name in entry.counts
    ]
    if is_same_code and any(measured.settings.get(k) != entry.settings.get(k) for k in COMPILERS):
        # Another compiler makes other machine code of the same PTX: the kernel did not change.
        counts = {name: count for name, count in counts.items() if name not in COMPILED}
        entry = replace(entry, counts={k: count for k, count in entry.counts.items() if k not in COMPILED})
    # An option of the compiler may have made worse code of the same PTX.
    is_same_code = is_same_code and not any(is_worse(*one, tolerance) for one in compiled if one[0] in counts)
    if is_same_code:  # the same PTX is executed, whichever compiler it is from
        measured = replace(measured, settings={k: v for k, v in measured.settings.items() if k not in COMPILERS})
    if (mismatch := mismatch_of(measured, entry)) is not None:
        return mismatch
    if not entry.counts:
        return Decision(Status.UNDECIDED, Rule.EMPTY_ENTRY, facts={"lacks": "counts"})
    known, numbers = entry.counts, Numbers(tolerance=tolerance)
    facts: dict[str, Any] = {"same_code": is_same_code, "pattern": entry.extra.get("pattern")}
    # Counts of other names, by a plugin's device, are costs as well. Of each: its name, its old and its new value.
    plugged = [name for name in counts if name not in COUNT_NAMES]
    both = [(name, known[name], counts[name]) for name in (*JUDGED, *plugged) if name in known and name in counts]
    if worse := tuple(one for one in both if is_worse(one[0], one[2], one[1], tolerance)):
        return Decision(Status.REGRESSED, Rule.COUNTS, numbers, {**facts, "changes": worse})
    # A kernel that skips a part of its work lowers every count, which is no gain: it touches less than before and less
    # than declared. To stop touching undeclared bytes is a gain.
    work = {"distinct_bytes_read": measured.bytes_read or 0, "distinct_bytes_written": measured.bytes_written or 0}
    for name, then, now in both:
        if name in work and now < min(then, work[name]):
            return Decision(Status.MISMATCH, Rule.LESS_WORK, numbers, {"change": (name, then, now, work[name])})
    ungated = tuple(name for name in (*SECTORS, *plugged) if counts.get(name) and name not in known)
    uncounted = tuple(name for name in known if name not in counts and (name in JUDGED or name not in COUNT_NAMES))
    if ungated or uncounted:
        return Decision(Status.UNDECIDED, Rule.UNGATED, numbers, {"lacks": ungated, "uncounted": uncounted})
    if better := tuple(one for one in both if is_worse(one[0], one[1], one[2])):
        return Decision(Status.IMPROVED, Rule.COUNTS, numbers, {**facts, "changes": better})
    within = tuple(one for one in both if one[1] != one[2])
    rule = Rule.CODE_UNCHANGED if is_same_code and not within else Rule.COUNTS
    return Decision(Status.OK, rule, numbers, {**facts, "changes": within})


def decide_processes(reference: Reference, values: Sequence[float], tolerance: float) -> Decision:
    """Decide by the figures of processes, not selected by their figures, against a stored reference.

    Raises ValueError for no figure, or one that is not positive.
    """
    if not values or min(values) <= 0:
        raise ValueError(f"found the figures {list(values)!r}, expected positive ones")
    drop = median(map(reference.drop, values))
    return _by_gate(reference, drop, tolerance, len(values), _numbers(reference, drop, tolerance, len(values), values))


def decide_stored(
    reference: Reference, observed: float, fresh: Sequence[float], tolerance: float, confirm: int, ended: str | None
) -> Decision | Ask:
    """Decide one process's figure by a stored reference, and by new processes where it is slow.

    fresh: figures of new processes so far; ended: why there can be no more. With confirm=0 the first look decides.
    """
    first, processes = reference.drop(observed), max(confirm, 1)
    numbers = _numbers(reference, first, tolerance, processes, observed=observed)
    if confirm == 0 or first <= SLOW_SHARE * log_of_drop(tolerance):
        return _by_gate(reference, first, tolerance, processes, numbers, gaining=1)
    drops = [reference.drop(value) for value in fresh]
    past = sum(drop > reference.gate(tolerance, confirm) for drop in drops)
    # Once most of the requested processes agree, the others cannot change the decision.
    if max(past, len(drops) - past) <= confirm // 2 and len(drops) < confirm:
        if ended is None:
            return Ask.PROCESSES
        facts = {"why": ended, "processes": len(fresh), "wanted": confirm}
        return Decision(Status.UNDECIDED, Rule.NOT_RERUN, numbers, facts)
    seen = _numbers(reference, median(drops), tolerance, confirm, fresh)
    decided = _by_gate(reference, median(drops), tolerance, confirm, seen)
    if decided.status in (Status.REGRESSED, Status.UNDECIDED):
        return decided
    rule = Rule.NOT_REPRODUCED if first > log_of_drop(tolerance) else Rule.STORED
    return Decision(Status.OK, rule, seen, {"first_drop": drop_of_log(first)})


def _by_gate(
    reference: Reference, drop: float, tolerance: float, processes: int, numbers: Numbers, gaining: int | None = None
) -> Decision:
    """Decide by the log drop of so many processes from a stored reference; gaining: that of a gain, if different."""
    if drop > reference.gate(tolerance, processes):
        return Decision(Status.REGRESSED, Rule.STORED, numbers)
    if not reference.resolves(tolerance, processes):
        needed = runs_needed(reference, tolerance, processes) if reference.runs else None
        return Decision(Status.UNDECIDED, Rule.TOO_NOISY, numbers, {"by": Rule.STORED, "runs_needed": needed})
    improved = -drop > reference.gate(tolerance, gaining or processes)
    return Decision(Status.IMPROVED if improved else Status.OK, Rule.STORED, numbers)


def with_further_evidence(
    decision: Decision, status: Status, rule: str, text: str, about: str, remedy: str | None = None
) -> Decision:
    """Return the decision of a feature's evidence, unless the earlier one fails already or both are UNDECIDED.

    text: the reason; about: its subject, in two or three words. remedy: how to accept it, where an update does not.
    """
    if decision.status.always_fails or (decision.status.warns and status.warns):
        return decision
    facts = {"text": text, "about": about} | ({} if remedy is None else {"remedy": remedy})
    return Decision(status, rule, facts=facts)


def decide_comparison(compared: OldCodeComparison, tolerance: float, looks: Looks) -> Decision | Ask:
    """Decide by old code next to new, without stored figures: by the bounds of their mean log ratio."""
    number = len(compared.drops)
    if compared.lost_share and number:
        return Decision(Status.UNDECIDED, Rule.NO_PROBE, facts={"other": compared.other})
    last = number >= looks.most or compared.ended
    due = number in looks.after and (compared.alike or number >= _FEWEST_UNALIKE)
    if not last and not due:
        return Ask.OLD_CODE
    if number < _FEWEST_DROPS:
        facts: dict[str, Any] = {"compared": number, "uneven": compared.uneven, "other": compared.other}
        return Decision(Status.UNDECIDED, Rule.UNSTEADY, facts=facts)
    allowed, seen = log_of_drop(tolerance), interval_of(compared.drops)
    decided = _by_bounds(seen, allowed, last=last)
    if decided is None:
        return Ask.OLD_CODE
    rule = compared.rule if decided is not Status.UNDECIDED else Rule.TOO_NOISY
    facts = {name: getattr(compared, name) for name in ("other", "alternate", "uneven")}
    if compared.floor[0]:
        facts["floor_seconds"], facts["floor_share"] = compared.floor
    numbers = Numbers(
        figure=compared.figure,
        observed=median(compared.new),
        reference=median(compared.old),
        tolerance=tolerance,
        drop=drop_of_log(seen.mean),
        low=drop_of_log(seen.low),
        high=drop_of_log(seen.high),
        allowed_drop=tolerance,
        detects=drop_of_log(seen.detects(allowed, looks.most)),
        spread=seen.spread,
        degrees=seen.degrees,
        runs=seen.count,
        confirmations=compared.new,
    )
    return Decision(decided, rule, numbers, {"by": compared.rule, **facts})


def _counted(evidence: Evidence, limits: Limits) -> Decision:
    measurement, entry = evidence.measurement, evidence.entry
    if limits.writes_entry(entry):
        return Decision(Status.SAVED, Rule.WRITTEN)
    if entry is None:
        return _without_entry(evidence)
    return decide_measured_counts(measurement, entry, evidence.tolerance, is_same_code=evidence.is_same_code)


def decide_measured_counts(
    measurement: Measurement, entry: Entry, tolerance: float, *, is_same_code: bool = False
) -> Decision:
    """Decide as `decide_counts`; lower counts are no gain where no kernel touches a declared array any more."""
    decided = decide_counts(setup_of(measurement), entry, tolerance, is_same_code=is_same_code)
    left = next((finding.text for finding in measurement.findings if finding.code == UNTOUCHED), None)
    if left is None or decided.status is not Status.IMPROVED:
        return decided
    return Decision(Status.MISMATCH, Rule.LESS_WORK, decided.numbers, {"text": left})


def _without_entry(evidence: Evidence) -> Decision:
    baseline = evidence.baseline
    if baseline is None:
        return Decision(Status.UNDECIDED, Rule.NO_BASELINE)
    return Decision(Status.UNDECIDED, Rule.NO_ENTRY, facts={"path": baseline.path, "code_of": baseline.code_of})


def _floors(evidence: Evidence, limits: Limits) -> Decision | Ask | None:
    """Return REGRESSED for a floor missed here and in the median of new processes; None where all floors hold."""
    floors, figures, measurement = limits.marker.floors, evidence.figures, evidence.measurement
    if not floors or figures is None:
        return None
    if measurement.peak is None and (of_peak := next((name for name in floors if name in OF_PEAK), None)):
        raise UsageError(
            f"{of_peak} asks for a share of the peak, and the peak of {measurement.device.name} is unknown: "
            "use min_relative, or set bandwidth_peak in the ini file"
        )
    missed = first_missed(floors, figures)
    if missed is None:
        unseen = first_unseen(floors, figures)
        return None if unseen is None else Decision(Status.UNDECIDED, Rule.NO_PROBE, facts={"floor": unseen})
    name, limit, seen = missed
    fresh: Sequence[Metrics] = evidence.fresh if limits.confirm else ()
    if len(fresh) < limits.confirm:
        if evidence.fresh_ended is None:
            return Ask.PROCESSES
        numbers = Numbers(observed=seen, reference=limit)
        facts = {"floor": name, "why": evidence.fresh_ended, "processes": len(fresh)}
        return Decision(Status.UNDECIDED, Rule.NOT_RERUN, numbers, facts)
    if any(first_unseen(floors, one) is not None for one in fresh):
        return Decision(Status.UNDECIDED, Rule.NO_PROBE, facts={"floor": name})
    again = first_missed(floors, middle_of(fresh)) if fresh else missed
    if again is None:
        return None
    name, limit, middle = again
    values = tuple(value for one in fresh if (value := figure_of(name, one)) is not None)
    numbers = Numbers(observed=middle, reference=limit, confirmations=values)
    return Decision(Status.REGRESSED, f"floor:{name}", numbers, {"here": seen})


def _by_bounds(seen: Interval, allowed: float, *, last: bool) -> Status | None:
    """Return the verdict of a mean log ratio and its bounds; None where more comparisons are needed."""
    # For a loss of just the tolerance, the mean exceeds it in half of all looks; with the error added, in 84 of 100.
    if seen.low > 0 and seen.mean + seen.error > allowed:
        return Status.REGRESSED
    if seen.mean + seen.loss_reach < 0 and seen.mean - seen.error < -allowed:
        return Status.IMPROVED
    if seen.high <= allowed:
        return Status.OK
    if not last:
        return None
    if seen.low > 0:  # there is a loss, and it may exceed the tolerance
        return Status.REGRESSED
    return Status.OK if seen.mean <= allowed / 2 and seen.is_narrow(allowed) else Status.UNDECIDED


def _stored(evidence: Evidence, limits: Limits) -> Decision | Ask:
    """Decide by stored figures: REGRESSED where the drop of the median of new processes exceeds the noise."""
    reference, figures, tolerance = evidence.stored, evidence.figures, evidence.tolerance
    why_not = evidence.why_not
    if evidence.baseline is not None and evidence.baseline.code_of is not None:
        return Decision(
            Status.UNDECIDED, Rule.CODE_ALONE, facts={"code_of": evidence.baseline.code_of}, why_not=why_not
        )
    if reference is None or figures is None:
        return Decision(Status.UNDECIDED, Rule.EMPTY_ENTRY, facts={"lacks": "bandwidth"}, why_not=why_not)
    observed = evidence.observed
    if observed is None or (reference.figure == "relative" and not figures.has_credible_share):
        return Decision(Status.UNDECIDED, Rule.NO_PROBE, why_not=why_not)
    values = [value for process in evidence.fresh if (value := process.of(reference.figure)) is not None]
    ended = evidence.fresh_ended
    if ended is None and len(values) < limits.confirm <= len(evidence.fresh):
        ended = f"a probe ran in {len(values)} of {len(evidence.fresh)} new processes"
    return _noted(decide_stored(reference, observed, values, tolerance, limits.confirm, ended), evidence)


def _noted(decided: Decision | Ask, evidence: Evidence) -> Decision | Ask:
    """Return the decision with the reasons why better evidence was not available."""
    return replace(decided, why_not=evidence.why_not) if isinstance(decided, Decision) else decided


def _numbers(
    reference: Reference,
    drop: float,
    tolerance: float,
    processes: int,
    confirmations: Sequence[float] = (),
    *,
    observed: float | None = None,
) -> Numbers:
    return Numbers(
        figure=reference.figure,
        observed=math.exp(reference.centre - drop) if observed is None else observed,
        reference=reference.value,
        tolerance=tolerance,
        drop=drop_of_log(drop),
        allowed_drop=drop_of_log(reference.gate(tolerance, processes)),
        detects=None if (detects := reference.detects(tolerance, processes)) is None else drop_of_log(detects),
        spread=reference.spread,
        degrees=reference.degrees,
        runs=reference.runs,
        confirmations=tuple(confirmations),
    )


# A run may count so much more than the baseline's runs.
DRAM_TOLERANCE = 0.02

# Counts that cost bandwidth or time when they rise, and their names in messages.
COSTS = {
    "load_sectors": "sectors loaded",
    "store_sectors": "sectors stored",
    "atomic_sectors": "sectors of atomics",
    # More requests for the same sectors: loads and stores became narrower.
    "load_requests": "load requests",
    "store_requests": "store requests",
    "bank_conflicts": "bank conflicts",
    "local_bytes": "bytes of local arrays",
    "distinct_bytes_read": "distinct bytes read",
    "distinct_bytes_written": "distinct bytes written",
    "local_bytes_per_thread": "stack and spill bytes a thread",
}
# Counts that cost when they fall.
GAINS = {"resident_warps": "resident warps an SM"}
JUDGED = COSTS | GAINS
# Counts that another compiler, or another option of it, changes for the same PTX.
COMPILED = ("local_bytes_per_thread", "resident_warps")
# Without these, no limit applies to the requests of most kernels.
SECTORS = ("load_sectors", "store_sectors", "atomic_sectors")
# All names of counts of the traffic device.
COUNT_NAMES = frozenset(JUDGED) | {"load_bytes", "store_bytes", "atomic_requests", "divergent_branches"}


def called(name: str) -> str:
    """Return the name of a judged count in messages; a count of a plugin's device keeps its own name."""
    return JUDGED.get(name, name.replace("_", " "))


def is_worse(name: str, now: int, then: int, tolerance: float = 0.0) -> bool:
    """Return whether a count costs more than it did, by more than the tolerance."""
    return now < then * (1 - tolerance) if name in GAINS else now > then * (1 + tolerance)


def pattern_of(detail: Mapping[str, Any]) -> str | None:
    """Describe loads and stores as in a baseline entry: ``loads coalesced, stores strided (32 bytes)``.

    None where no accesses of memory were counted.
    """
    if not detail.keys() & {"loads", "stores"}:
        return None
    parts = [
        f"{kind} {detail[kind]['pattern']}" for kind in ("loads", "stores") if detail.get(kind, {}).get("requests")
    ]
    return ", ".join(parts) or "no global access"


def continued(old: Sequence[Run], fresh: Sequence[Run]) -> tuple[Run, ...]:
    """Return an entry's old runs, without their bytes of DRAM where fresh ones moved another number of them.

    The gate then compares later runs with what the code moves now.
    """
    for name in ("dram_read", "dram_written"):
        known, new = counts_of(old, name), counts_of(fresh, name)
        if known and new and abs(median(new) - median(known)) > most_allowed(known) - median(known):
            return tuple(replace(run, dram_read=None, dram_written=None) for run in old)
    return tuple(old)


def most_allowed(known: Sequence[int]) -> float:
    """Return the largest allowed count: above the median by the tolerance, or by the largest deviation of the runs."""
    middle = median(known)
    return middle + max(DRAM_TOLERANCE * middle, max(known) - middle, middle - min(known))


def counts_of(runs: Sequence[Run], name: str) -> list[int]:
    """Return a count of each run that has it."""
    return [count for run in runs if (count := getattr(run, name)) is not None]
