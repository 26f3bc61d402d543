"""Judge a test against another revision: take pairs of fresh processes until the rule can tell.

On a host both sample in turn; on a GPU, which is one process's at a time, they follow each other: AB BA AB …. What a
`Way` settles needs none, as on a GPU a kernel whose old code takes turns with the new one in one process.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Protocol

from pytest_bandwidth.devices.free_memory import limit_bytes
from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.by_code.last_word import Suspect, Way, settle, with_why
from pytest_bandwidth.domain.judging.by_code.looks import Looks
from pytest_bandwidth.domain.judging.by_code.paired import Pair, judge_by_pairs, looks_of
from pytest_bandwidth.domain.judging.causes import recorded_resources
from pytest_bandwidth.domain.judging.confirmation import Case
from pytest_bandwidth.domain.judging.counts import judge_counts
from pytest_bandwidth.domain.judging.drop import NO_SHARE, MeasurementSetup, not_comparable, setup_of
from pytest_bandwidth.domain.judging.floors import is_by_floor
from pytest_bandwidth.domain.judging.judge import Judged, tolerance_of
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics, metrics_of_measurement
from pytest_bandwidth.domain.outcomes.outcome import Outcome, from_plain
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.session.against.checkout import Revision
from pytest_bandwidth.session.against.told_code import NOTHING_TOLD, Told, is_told, unchanged
from pytest_bandwidth.session.against.worktrees import FailsThere, InTurn, NothingThere, Worktrees
from pytest_bandwidth.session.fresh.child import FreshProcessFailed

# Pairs are taken again where the machine changed within them: at most as many attempts as pairs are asked for, twice.
ATTEMPTS_FACTOR = 2
# Two processes with a test's arrays, a third set that both share, and what makes caches cold, beside the test's own
# process, which has the probe's arrays as well.
MEMORY_FACTOR = 8
_UNDECIDED = (Status.INSUFFICIENT, Status.INVALID)

Rows = Mapping[str | None, Outcome]
# A context in which no other process measures on the device.
DeviceHeld = Callable[[], AbstractContextManager[None]]


class Sides(Protocol):
    """Measure one test in fresh processes: `head` this code, `base` the other revision's, as plain rows.

    Either raises NothingThere, FreshProcessFailed, ForeignImport.
    """

    @property
    def revision(self) -> Revision: ...

    def head(self) -> list[dict[str, Any]]: ...

    def base(self) -> list[dict[str, Any]]: ...

    def in_turn(self, number: int) -> InTurn:
        """Measure both, round by round in turn. number: of pairs before this one. Raises as either does."""


@dataclass(frozen=True, slots=True)
class TakenPair:
    """Hold both processes of a pair, by label. drops, alike: as in `InTurn`, where they took turns."""

    head: Rows
    base: Rows
    drops: Mapping[str | None, float] = field(default_factory=dict)
    alike: Collection[str | None] = ()


@dataclass(frozen=True, slots=True)
class Subject:
    """Say what pairs decide on: a measurement by its label, how it was taken, and what it is held to."""

    label: str | None
    setup: MeasurementSetup
    limits: Limits


@dataclass(frozen=True, slots=True)
class Paired:
    """Hold the verdict of pairs, and the other revision's processes as an entry of a baseline."""

    verdict: Verdict
    entry: Entry | None


@dataclass(slots=True)
class PairsTaken:
    """Hold the processes of one test so far, by pair.

    tell: takes a line about what is being done. in_turn: whether the processes of a pair sample in turn.
    """

    worktrees: Sides
    tell: Callable[[str], None]
    device_held: DeviceHeld
    in_turn: bool = False
    pairs: list[TakenPair] = field(default_factory=list)

    def take(self) -> None:
        """Take one more pair, in the other order than the one before."""
        self.tell(f"pair {len(self.pairs) + 1} of fresh processes against {self.worktrees.revision}")
        with self.device_held():  # for both: nobody measures between the sides of a pair
            self.pairs.append(self._in_turn() if self.in_turn else self._one_after_the_other())

    def _in_turn(self) -> TakenPair:
        try:
            with self._lost_later():
                both = self.worktrees.in_turn(len(self.pairs))
                return TakenPair(by_label(both.head), by_label(both.base), both.drops, both.alike)
        except (FreshProcessFailed, FailsThere):
            if self.pairs:
                raise
            # A test may look at its own figures, of which some need a probe, or more rounds than a pair in turn takes.
            self.tell("the test fails where two processes sample in turn: they follow each other")
            self.in_turn = False
            return self._one_after_the_other()
        return TakenPair({}, {})

    def _one_after_the_other(self) -> TakenPair:
        if len(self.pairs) % 2 == 0:
            head = self._rows(self.worktrees.head)
            return TakenPair(head, self._rows(self.worktrees.base))
        base = self._rows(self.worktrees.base)
        return TakenPair(self._rows(self.worktrees.head), base)

    def _rows(self, measure: Callable[[], list[dict[str, Any]]]) -> Rows:
        with self._lost_later():
            return by_label(measure())
        return {}

    @contextmanager
    def _lost_later(self) -> Iterator[None]:
        """Take a process of a revision that measures nothing for an invalid one, once there are pairs."""
        try:
            yield
        except NothingThere as reason:
            if not self.pairs:
                raise
            self.tell(f"no pair, taken again: {reason}")

    def of(self, label: str | None) -> list[Pair]:
        """Return the pairs in which both processes measured something valid."""
        found = ((_figures(pair.head.get(label)), _figures(pair.base.get(label)), pair) for pair in self.pairs)
        return [
            Pair(head, base, pair.drops.get(label), label in pair.alike and label in pair.drops)
            for head, base, pair in found
            if head is not None and base is not None
        ]

    def are_alike(self, label: str | None) -> bool:
        """Return whether the two of each pair had all in common."""
        return all(pair.alike for pair in self.of(label))

    def heads(self, label: str | None) -> list[Metrics]:
        """Return what the processes of this code measured validly."""
        figures = (_figures(pair.head.get(label)) for pair in self.pairs)
        return [one for one in figures if one is not None]

    def base(self, label: str | None) -> list[Outcome]:
        """Return the other revision's outcomes of a measurement, valid or not, the oldest first."""
        return [pair.base[label] for pair in self.pairs if label in pair.base]

    def head(self, label: str | None) -> list[Outcome]:
        """Return the same of this code."""
        return [pair.head[label] for pair in self.pairs if label in pair.head]


def judge_against(
    measurements: Mapping[str, Measurement],
    limits: Limits,
    worktrees: Worktrees,
    pairs: int,
    tell: Callable[[str], None],
    device_held: DeviceHeld,
    told: Told = NOTHING_TOLD,
    ways: Sequence[Way] = (),
) -> dict[str, Judged]:
    """Judge by key. `pairs` pairs of processes for all measurements together, twice as many where undecided.

    The device is held for each pair, and free between pairs.
    told: what the other revision said of its code, by label: what is the same needs no process.
    ways: to settle changed code without pairs, the best first.

    Raises FreshProcessFailed and ForeignImport where a process of either side ran wrong: a comparison that did not take
    place is no pass.
    """
    same = {key: m for key, m in measurements.items() if is_told(m, told.get(m.label))}
    counted = all(m.device.counts_only for m in measurements.values())
    if counted and len(same) < len(measurements):
        same = {}  # a later launch of a test may count what an earlier one, of other code, left behind
    judged = {key: _unchanged(key, m, told[m.label], worktrees) for key, m in same.items()}
    changed = _changed(measurements, judged, told, limits, worktrees.revision) if ways else {}
    last = settle(changed, ways)
    for key, verdict in last.verdicts.items():
        judged[key] = Judged(measurements[key], changed[key].entry, verdict)
    others = {key: m for key, m in measurements.items() if key not in judged}
    by_pairs = _judge_by_processes(others, limits, worktrees, pairs, tell, device_held) if others else {}
    for key, one in by_pairs.items():
        judged[key] = replace(one, verdict=with_why(one.verdict, last.why_not.get(key)))
    return {key: judged[key] for key in measurements}


def _changed(
    measurements: Mapping[str, Measurement],
    judged: Mapping[str, Judged],
    told: Told,
    limits: Limits,
    revision: Revision,
) -> dict[str, Suspect]:
    """Return what is not judged yet and moves as much as what the revision told of, whose code is the entry's."""
    found = {}
    for key, m in measurements.items():
        row = told.get(m.label)
        if key in judged or row is None or m.invalid is not None:
            continue
        entry = replace(_entry(key, [row], revision), method=None)  # nothing was timed for it there
        if not_comparable(setup_of(m), entry) is None:
            tolerance = tolerance_of(limits.marker.tolerance, entry, None, limits.tolerance)
            case = Case(m, metrics_of_measurement(m), None, tolerance, None)
            found[key] = Suspect(case, entry, Verdict(Status.NO_BASELINE, "changed", f"its code is not {revision}'s"))
    return found


def _judge_by_processes(
    others: Mapping[str, Measurement],
    limits: Limits,
    worktrees: Worktrees,
    pairs: int,
    tell: Callable[[str], None],
    device_held: DeviceHeld,
) -> dict[str, Judged]:
    """Judge by processes of both revisions. Raises as `judge_against` does."""
    try:
        if all(m.device.counts_only for m in others.values()):
            return _judge_counts(others, limits, worktrees, device_held)
        in_turn = can_take_turns(others.values(), worktrees.revision)
        taken = PairsTaken(worktrees, tell, device_held, in_turn)
        subjects = {key: Subject(m.label, setup_of(m), limits) for key, m in others.items()}
        found = judge_timed(subjects, taken, looks_of(pairs))
        return {key: Judged(others[key], one.entry, one.verdict) for key, one in found.items()}
    except NothingThere as reason:
        return {key: Judged(m, None, _no_baseline(str(reason))) for key, m in others.items()}


def _unchanged(key: str, measurement: Measurement, row: Outcome, worktrees: Worktrees) -> Judged:
    return Judged(measurement, _entry(key, [row], worktrees.revision), unchanged(measurement, str(worktrees.revision)))


def can_take_turns(measurements: Collection[Measurement], revision: Revision) -> bool:
    """Return whether two processes may sample the measurements in turn, each with its arrays.

    On a GPU each would keep memory of it; a plugin of the other revision need not know how to take turns. Callables
    that are compared in the same rounds would take turns by the first of them alone.
    """
    if revision.holds_plugin or not all(one.device.on_host for one in measurements):
        return False
    if any(one.rounds.interleaved for one in measurements):
        return False
    needed = MEMORY_FACTOR * sum(one.bytes_moved for one in measurements)
    limit = limit_bytes() or math.inf
    return all(needed <= min(limit, one.device.memory_bytes or math.inf) for one in measurements)


def with_floors(judged: Mapping[str, Judged], by_floors: Mapping[str, Judged]) -> dict[str, Judged]:
    """Replace verdicts where a floor of the marker was missed, unless the comparison fails by itself."""
    return {
        key: floor if is_by_floor((floor := by_floors[key]).verdict) and not one.verdict.status.always_fails else one
        for key, one in judged.items()
    }


def _judge_counts(
    measurements: Mapping[str, Measurement], limits: Limits, worktrees: Worktrees, device_held: DeviceHeld
) -> dict[str, Judged]:
    """Judge counts, which are the same in every process: one of the other revision is enough."""
    with device_held():
        base = by_label(worktrees.base())
    tolerance = limits.marker.tolerance or 0.0  # no other is granted to what is exact
    judged = {}
    for key, m in measurements.items():
        counted = Counted(setup_of(m), m.traffic, m.counts, m.detail)
        one = judge_count(key, counted, tolerance, base.get(m.label), worktrees.revision)
        judged[key] = Judged(m, one.entry, one.verdict)
    return judged


@dataclass(frozen=True, slots=True)
class Counted:
    """Hold what is judged of counts, as a Measurement or an Outcome has it."""

    setup: MeasurementSetup
    traffic: Traffic
    counts: Mapping[str, int]
    detail: Mapping[str, Any]


def judge_count(key: str, counted: Counted, tolerance: float, row: Outcome | None, revision: Revision) -> Paired:
    """Judge counts by those of the other revision, `row`."""
    if row is None:
        return Paired(_no_label(revision), None)
    entry = _entry(key, [row], revision)
    lines = counted.detail.get("lines", ())
    verdict = not_comparable(counted.setup, entry, other=str(revision)) or judge_counts(
        counted.counts, entry.counts, counted.traffic, lines, tolerance, advice=""
    )
    return Paired(verdict, entry)


def judge_timed(
    subjects: Mapping[str, Subject],
    taken: PairsTaken,
    looks: Looks,
) -> dict[str, Paired]:
    """Judge by key, each by its limits, by pairs for all measurements together; those undecided go on.

    Raises NothingThere where a revision measures nothing in the first pair, FreshProcessFailed, ForeignImport.
    """
    judged: dict[str, Paired] = {}
    open_keys = list(subjects)
    for wanted in looks.after:
        while len(taken.pairs) < ATTEMPTS_FACTOR * wanted and any(
            sum(pair.even for pair in taken.of(subjects[key].label)) < wanted for key in open_keys
        ):
            taken.take()
            # What the other revision does not measure needs no pairs.
            open_keys = [key for key in open_keys if taken.base(subjects[key].label)]
        judged.update(
            {
                key: _judge_one(key, subject, taken, looks, last=wanted == looks.most)
                for key, subject in subjects.items()
                if (key in open_keys and looks.is_due(wanted, alike=taken.are_alike(subject.label)))
                or (key not in open_keys and key not in judged)
            }
        )
        open_keys = [key for key in open_keys if key not in judged or _is_undecided(judged[key].verdict)]
        if not open_keys:
            break
    return judged


def _is_undecided(verdict: Verdict) -> bool:
    """Return whether more pairs may tell; a share that cannot be believed stays one."""
    return verdict.status in _UNDECIDED and verdict.code != NO_SHARE


def _judge_one(key: str, subject: Subject, taken: PairsTaken, looks: Looks, *, last: bool) -> Paired:
    rows, revision = taken.base(subject.label), taken.worktrees.revision
    if not rows:
        return Paired(_no_label(revision), None)
    entry = _entry(key, rows, revision)
    pairs = taken.of(subject.label)
    verdict = judge_by_pairs(
        subject.setup, entry, pairs, subject.limits, rows[-1].regime, str(revision), looks, last=last
    )
    if verdict is None:
        reason = next((row.reason for row in rows if not row.is_valid), "nothing was measured")
        verdict = Verdict(Status.INVALID, "no-pair", f"no pair was valid: {reason}")
    return Paired(verdict, entry)


def _entry(key: str, rows: Sequence[Outcome], revision: Revision) -> Entry:
    """Make the other revision's processes a baseline's entry, for messages and reports."""
    last, commit = rows[-1], revision.commit
    valid = [row for row in rows if row.gbps is not None and row.is_valid]
    return Entry(
        key,
        gbps=median(row.gbps for row in valid if row.gbps is not None) if valid else None,
        bytes_read=last.bytes_read,
        bytes_written=last.bytes_written,
        method=last.method,
        resources=recorded_resources(last.resources),
        counts=dict(last.counts),
        code=dict(last.code_identity),
        runs=tuple(
            Run(row.gbps, row.probe_gbps, row.relative, len(row.samples), commit=commit)
            for row in valid
            if row.gbps is not None
        ),
    )


def by_label(rows: Sequence[Mapping[str, Any]]) -> Rows:
    """Return outcomes by label, of plain rows of one test."""
    return {outcome.label: outcome for outcome in map(from_plain, rows)}


def _figures(row: Outcome | None) -> Metrics | None:
    if row is None or not row.is_valid or not row.gbps:
        return None
    return Metrics(row.gbps, row.relative, row.probe_gbps)


def _no_label(revision: Revision) -> Verdict:
    return _no_baseline(f"{revision} has the test, and does not measure this in it")


def _no_baseline(reason: str) -> Verdict:
    return Verdict(Status.NO_BASELINE, "not-there", reason)
