"""Compare a test with another revision: take pairs of new processes until the rule can decide.

On a host both sample alternately. On a GPU only one process measures at a time, so they run one by one: AB BA AB ….
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pytest_bandwidth.devices.host import limit_bytes
from pytest_bandwidth.domain.baseline import Baseline, Entry, Metric, Run
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import FLOOR_SECONDS, Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.evidence.commit_pairs.alternate import precision_for
from pytest_bandwidth.evidence.commit_pairs.commits import BaselineCommits, NoOldCode
from pytest_bandwidth.evidence.commit_pairs.process import (
    FailsThere,
    MeasuredPair,
    NothingThere,
    Rows,
    Worktrees,
    are_same_code,
    by_label,
    runs_same_code,
)
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.fresh_processes import JudgedTest
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed
from pytest_bandwidth.judging.decide import decide_comparison, decide_measured_counts, mismatch_of, with_resource_limits
from pytest_bandwidth.judging.evidence import (
    Ask,
    Evidence,
    OldCodeComparison,
    comparison_of_pairs,
    first_evidence,
    setup_of,
)
from pytest_bandwidth.judging.judge import ALTERNATE_SHARE, ROUNDS_SHARE, Decider, Judged
from pytest_bandwidth.judging.limits import Limits
from pytest_bandwidth.judging.pairs import Looks, Pair, floor_of_both
from pytest_bandwidth.outcomes.outcome import Outcome

# Pairs are repeated where the machine changed during them: at most this many attempts for each requested pair.
ATTEMPTS_FACTOR = 2
# The memory in use, in sets of a test's arrays: two processes, a third set that both share, buffers that make caches
# cold, and the test's own process, with the probe's arrays.
MEMORY_FACTOR = 8
# A context in which no other process measures on the device.
DeviceHeld = Callable[[], AbstractContextManager[None]]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Subject:
    """Describe a measurement for pairs to decide on: its label, its setup and its tolerance.

    judged_on: the requested figure; None where pairs may choose.
    """

    label: str | None
    setup: Entry
    judged_on: Metric | None
    tolerance: float


@dataclass(frozen=True, slots=True)
class Paired:
    """Hold the results of the pairs for one measurement.

    entry: the other revision's processes as an entry of a baseline; None where it does not measure this.
    mismatch: the decision if the comparison is not allowed. compared: None in that case, or if no pair was valid;
    `why_not` then holds the reason.
    """

    entry: Entry | None
    compared: OldCodeComparison | None = None
    mismatch: Decision | None = None
    why_not: str | None = None

    def decision(self, tolerance: float, looks: Looks, revision: str) -> Decision:
        """Return the decision based only on these pairs."""
        if self.mismatch is not None:
            return self.mismatch
        decided = None if self.compared is None else decide_comparison(self.compared, tolerance, looks)
        if isinstance(decided, Decision):
            return decided
        if self.entry is None:
            return not_there(revision)
        return Decision(Status.UNDECIDED, Rule.NOTHING_VALID, facts={"text": self.why_not or revision})


@dataclass(slots=True)
class PairsTaken:
    """Hold the results of one test's processes so far, by pair.

    notify: takes a line about the current step. alternates: whether the processes of a pair sample alternately.
    """

    worktrees: Worktrees
    notify: Callable[[str], None]
    device_held: DeviceHeld
    alternates: bool = False
    pairs: list[MeasuredPair] = field(default_factory=list)

    def take(self, precision: float) -> None:
        """Take one more pair, in the reverse order of the previous one. precision: as in `Conductor`."""
        self.notify(f"pair {len(self.pairs) + 1} of new processes against {self.worktrees.revision}")
        worktrees, number = self.worktrees, len(self.pairs)
        with self.device_held():  # for both: no other process measures between the sides of a pair
            if self.alternates:
                try:
                    pair = self._measured(lambda: worktrees.alternating(number, precision))
                    self.pairs.append(pair or MeasuredPair({}, {}))
                    return
                except (FreshProcessFailed, FailsThere):
                    if self.pairs:
                        raise
                    # The test may assert on figures that need a probe, or more rounds than such a pair takes.
                    self.notify("the test fails if two processes sample alternately: they now run one after the other")
                    self.alternates = False
            sides = (worktrees.head, worktrees.base) if number % 2 == 0 else (worktrees.base, worktrees.head)
            one, other = (by_label(self._measured(side) or []) for side in sides)
            self.pairs.append(MeasuredPair(one, other) if number % 2 == 0 else MeasuredPair(other, one))

    def _measured(self, measure: Callable[[], T]) -> T | None:
        """Return a measuring function's result; None if a revision measured nothing now, but did in an earlier pair."""
        try:
            return measure()
        except NothingThere as reason:
            if not self.pairs:
                raise
            self.notify(f"pair discarded, taken again: {reason}")
            return None

    def of(self, label: str | None) -> list[Pair]:
        """Return the pairs in which both processes have a valid measurement of that label."""
        found = ((pair.head.get(label), pair.base.get(label), pair) for pair in self.pairs)
        return [
            Pair(here, there, pair.drops.get(label), label in pair.alike and label in pair.drops, *_floor(head, base))
            for head, base, pair in found
            if head is not None and (here := _figures(head)) is not None
            if base is not None and (there := _figures(base)) is not None
        ]

    def is_same_code(self, label: str | None) -> bool:
        """Return whether both trees certainly run the same code."""
        both = ((pair.head.get(label), pair.base.get(label)) for pair in self.pairs)
        return any(head and base and are_same_code(head, base, counted=False) for head, base in both)

    def base(self, label: str | None) -> list[Outcome]:
        """Return the other revision's outcomes of a measurement, valid or not, the oldest first."""
        return [pair.base[label] for pair in self.pairs if label in pair.base]


@dataclass(frozen=True, slots=True)
class CommitPairs:
    """Compare the measurements of one test with old code in pairs of new processes.

    old_code: finds the commit with the old code; or the revision that the user asked for. worktrees_at: returns both
    trees of the test, for a revision and for the share of the time budget that rounds take.
    """

    old_code: BaselineCommits | Revision
    asked: JudgedTest
    worktrees_at: Callable[[Revision, float], Worktrees]
    limits: Limits

    def gather(self, asking: Mapping[str, Evidence], rule: Decider) -> Mapping[str, Evidence]:
        """Take pairs for all measurements of a commit together, until each is decided."""
        del rule  # pairs alone decide
        old_code = self.old_code
        if isinstance(old_code, Revision):  # errors pass through: a requested comparison that fails must not be a pass
            try:
                return self._compared(old_code, asking)
            except NothingThere as why:
                return {key: _without(one, str(why)) for key, one in asking.items()}
        known: dict[str, Evidence] = {}
        of_commit: dict[str, dict[str, Evidence]] = {}
        for key, one in asking.items():
            try:
                of_commit.setdefault(old_code.commit_of(key, one, self.asked.file), {})[key] = one
            except NoOldCode as why:
                known[key] = _without(one, str(why))
        for commit, together in of_commit.items():
            try:
                known |= self._compared(old_code.revision(commit, self.asked.progress.show), together)
            except BandwidthError as error:
                why_not = old_code.why_not(commit, error)
                known |= {key: _without(one, why_not) for key, one in together.items()}
        return known

    def _compared(self, revision: Revision, together: Mapping[str, Evidence]) -> dict[str, Evidence]:
        alternate = can_take_turns([one.measurement for one in together.values()], revision)
        sides = self.worktrees_at(revision, ALTERNATE_SHARE if alternate else ROUNDS_SHARE)
        taken = PairsTaken(sides, self.asked.progress.show, self.asked.alone, alternate)
        subjects = {
            key: Subject(
                one.measurement.label,
                setup_of(one.measurement),
                one.stored.figure if one.stored is not None else self.limits.marker.judged_on,
                one.tolerance,
            )
            for key, one in together.items()
        }
        known = {}
        for key, paired in compare_timed(subjects, taken, self.limits.looks).items():
            one, why_not = together[key], paired.why_not
            if (
                one.revision is None
                and _may_have_brought_both(one, revision)
                and taken.is_same_code(one.measurement.label)
            ):
                known[key] = _without(
                    one, f"{revision} already has the current code, not the code of the baseline's runs"
                )
                continue
            if one.revision is not None:  # there is no baseline: the revision's processes replace its entry
                one = replace(one, entry=paired.entry or one.entry)
            elif paired.mismatch is not None:
                why_not = f"{revision} has another {paired.mismatch.facts['name']}"
            is_compared = paired.compared is not None
            known[key] = replace(one, compared=paired.compared) if is_compared else _without(one, why_not)
        return known


def _may_have_brought_both(evidence: Evidence, revision: Revision) -> bool:
    """Return whether the baseline and the current code may come from this one commit, as after a squash.

    A commit that the entry's runs recorded holds the code that they ran. If that is the current code, then a library or
    the plugin changed.
    """
    entry = evidence.entry
    if entry is None or not identity_of_plain(entry.code).known():
        return False
    return not any(run.commit and not run.dirty and revision.commit.startswith(run.commit) for run in entry.runs)


def _without(evidence: Evidence, why: str | None) -> Evidence:
    of_baseline = evidence.revision is None and why
    return evidence.without(Ask.OLD_CODE, f"the old code did not run: {why}" if of_baseline else why)


def against_evidence(
    measurements: Mapping[str, Measurement], limits: Limits, revision: Revision, rows: Rows
) -> dict[str, Evidence]:
    """Return evidence from timed measurements and from the code that a revision reported, by key.

    rows: the revision's report of its code, by label. Code that is the same needs no further process.
    """
    known = {key: entry_of(key, [rows[m.label]], revision) for key, m in measurements.items() if m.label in rows}
    # The revision's process only reported code, and timed nothing.
    entries = {key: replace(entry, method=None) for key, entry in known.items()}
    found = first_evidence(measurements, Baseline(None, entries), limits)
    return {key: replace(one, baseline=None, revision=str(revision)) for key, one in found.items()}


def can_take_turns(measurements: Collection[Measurement], revision: Revision) -> bool:
    """Return whether two processes may sample the measurements alternately, each with its own arrays.

    On a GPU each process would keep device memory. A plugin of the other revision may not support alternation. Of
    callables that are compared in the same rounds, only the first would alternate.
    """
    if revision.holds_plugin or not all(one.device.on_host for one in measurements):
        return False
    if any(one.rounds.interleaved for one in measurements):
        return False
    needed = MEMORY_FACTOR * sum(one.bytes_moved for one in measurements)
    limit = limit_bytes() or math.inf
    return all(needed <= min(limit, one.device.memory_bytes or math.inf) for one in measurements)


def decide_counted(
    measurements: Mapping[str, Measurement],
    limits: Limits,
    worktrees: Worktrees,
    rows: Rows,
    device_held: DeviceHeld,
) -> dict[str, Judged]:
    """Decide counts by comparison with a revision's, by key. One process is enough: counts are reproducible."""
    revision, tolerance = worktrees.revision, limits.marker.tolerance or 0.0
    if all(runs_same_code(m, rows.get(m.label)) for m in measurements.values()):
        unchanged = Decision(Status.OK, Rule.CODE_UNCHANGED, facts={"revision": str(revision)})
        entries = {key: entry_of(key, [rows[m.label]], revision) for key, m in measurements.items()}
        return {
            key: Judged(m, entries[key], with_resource_limits(unchanged, m, limits.marker))
            for key, m in measurements.items()
        }
    # Counts of one launch may depend on an earlier launch whose code changed, so all launches are counted.
    try:
        with device_held():
            base = by_label(worktrees.base())
    except NothingThere as reason:
        return {key: Judged(m, None, not_there(revision, str(reason))) for key, m in measurements.items()}
    judged = {}
    for key, m in measurements.items():
        row = base.get(m.label)
        entry = None if row is None else entry_of(key, [row], revision)
        decision = not_there(revision) if entry is None else decide_measured_counts(m, entry, tolerance)
        judged[key] = Judged(m, entry, with_resource_limits(decision, m, limits.marker))
    return judged


def not_there(revision: object, *why_not: str) -> Decision:
    """Return the decision for a revision without a measurement to compare with."""
    return Decision(Status.UNDECIDED, Rule.NOT_THERE, facts={"revision": str(revision)}, why_not=why_not)


def compare_timed(subjects: Mapping[str, Subject], taken: PairsTaken, looks: Looks) -> dict[str, Paired]:
    """Compare all measurements together in pairs, by key; undecided ones go on to the next look.

    Raises NothingThere where a revision measures nothing in the first pair, FreshProcessFailed, ForeignImport.
    """
    found: dict[str, Paired] = {}
    undecided = list(subjects)

    def lacks(key: str, wanted: int) -> bool:
        """Return whether the measurement needs more pairs; one that the other revision lacks does not."""
        label = subjects[key].label
        is_there = not taken.pairs or bool(taken.base(label))
        return is_there and sum(pair.even for pair in taken.of(label)) < wanted

    for wanted in looks.after:
        while len(taken.pairs) < ATTEMPTS_FACTOR * wanted and any(lacks(key, wanted) for key in undecided):
            taken.take(precision_for(min(subjects[key].tolerance for key in undecided)))
        left = []
        for key in undecided:
            # If no pair is valid so far, the disturbance is permanent: later pairs would not be valid either.
            ended = wanted == looks.most or not any(pair.even for pair in taken.of(subjects[key].label))
            found[key] = _paired(key, subjects[key], taken, ended=ended)
            compared = found[key].compared
            if compared is not None and decide_comparison(compared, subjects[key].tolerance, looks) is Ask.OLD_CODE:
                left.append(key)
        undecided = left
        if not undecided:
            break
    return found


def _paired(key: str, subject: Subject, taken: PairsTaken, *, ended: bool) -> Paired:
    rows, revision = taken.base(subject.label), taken.worktrees.revision
    if not rows:
        return Paired(None, why_not=f"{revision} has the test, but does not measure this in it")
    entry = entry_of(key, rows, revision)
    if (mismatch := mismatch_of(subject.setup, entry)) is not None:
        return Paired(entry, mismatch=mismatch)
    pairs = taken.of(subject.label)
    if not pairs:
        reason = next((row.reason for row in rows if not row.is_valid), "nothing was measured")
        return Paired(entry, why_not=f"no pair was valid: {reason}")
    compared = comparison_of_pairs(pairs, subject.judged_on, rows[-1].regime, str(revision), ended=ended)
    return Paired(entry, compared)


def entry_of(key: str, rows: Sequence[Outcome], revision: Revision) -> Entry:
    """Convert the other revision's results to a baseline entry, for messages and reports."""
    runs = tuple(
        Run(row.gbps, row.probe_gbps, row.relative, len(row.samples), commit=revision.commit)
        for row in rows
        if row.gbps is not None and row.is_valid
    )
    return rows[-1].to_entry(key=key, settings={}, gbps=median_known(run.gbps for run in runs), runs=runs)


def _figures(row: Outcome) -> Metrics | None:
    return Metrics(row.gbps, row.relative, row.probe_gbps) if row.is_valid and row.gbps else None


def _floor(head: Outcome, base: Outcome) -> tuple[float, tuple[float, float]]:
    """Return the time of an empty call, and both processes' seconds. The floor is common, so its error cancels."""
    seconds = (head.seconds or math.inf, base.seconds or math.inf)
    floors = [row.detail.get(FLOOR_SECONDS) or 0.0 for row in (head, base)]
    return floor_of_both(min(floors), seconds), seconds
