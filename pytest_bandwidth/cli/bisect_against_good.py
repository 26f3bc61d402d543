"""Judge one test at commit after commit against a good one; both stand in worktrees away from the user's tree."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path

from pytest_bandwidth.domain.device import DeviceIdentity, identity_of
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.evidence.commit_pairs.alternate import FINEST_PRECISION
from pytest_bandwidth.evidence.commit_pairs.build import Build, check_out
from pytest_bandwidth.evidence.commit_pairs.pairs import PairsTaken, Subject, compare_timed, entry_of, not_there
from pytest_bandwidth.evidence.commit_pairs.process import ForeignImport, NothingThere, Rows, Worktrees, by_label
from pytest_bandwidth.evidence.commit_pairs.revision_code import are_same_code
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed
from pytest_bandwidth.judging.decide import decide_counts
from pytest_bandwidth.judging.pairs import Looks
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.reports.wording import reason_of

_LOCK_SECONDS = 600.0
_CLEARED = (Status.OK, Status.IMPROVED)
_LOOKS = Looks()
# What is wrong with one commit, and not with the machine.
_OF_A_COMMIT = (NothingThere, FreshProcessFailed, ForeignImport, UsageError)


@dataclass(frozen=True, slots=True)
class Judgement:
    """Say how the test fares at a commit.

    is_bad: None where that is not known. status: the verdict that says so; None where there was none to be had.
    regressed: labels of the measurements that are REGRESSED.
    """

    commit: str
    is_bad: bool | None
    status: Status | None
    reason: str
    regressed: frozenset[str | None] = frozenset()


class AgainstGood:
    """Judge commits against a good one, which tells its code and counts its traffic once."""

    def __init__(self, test: Worktrees, tell: Callable[[str], None], build: Build | None = None) -> None:
        """Ask the good commit for its device and its code.

        test: at the good commit, on no device yet. tell: takes a line about what is being done; build: how commits are
        built. Raises NothingThere, FreshProcessFailed, ForeignImport where the test cannot be run there.
        """
        self.good = good = test.revision
        # Of the measurements that are looked at; None: all.
        self.labels: frozenset[str | None] | None = None
        self._tell, self._build = tell, build
        self._judged: list[tuple[Rows, Judgement]] = []
        tell(f"what code the test runs at {good}")
        try:
            rows = test.codes_at_base([test.nodeid])
            self._rows_of_good = by_label(rows)
        except NothingThere:
            # The test may assert on its figures. There are none while it runs only to identify its code.
            rows, self._rows_of_good = test.base(), {}
        if "device" not in rows[0]:
            raise FreshProcessFailed(f"{good} holds a pytest-bandwidth that cannot be asked yet: expected a later GOOD")
        self.device: DeviceIdentity = identity_of(rows[0]["device"])
        self._test = replace(test, device=self.device.option)

    def judge(self, commit: str) -> Judgement:
        """Judge a commit. What is wrong with it makes it one that cannot be judged, with the reason.

        Raises BandwidthError for what is wrong with the machine, such as a device that stays taken.
        """
        try:
            with check_out(Path(self.good.top), commit, self._build, self._tell) as revision:
                rows, judgement = self._judgement(revision)
        except _OF_A_COMMIT as why:
            return Judgement(commit, None, None, " ".join(str(why).split()))
        self._judged.append((rows, judgement))
        return judgement

    def _judgement(self, candidate: Revision) -> tuple[Rows, Judgement]:
        rows = self._rows_of(candidate)
        labels = frozenset(rows) if self.labels is None else self.labels
        alike = {label for label in labels if self._are_alike(rows, self._rows_of_good, label)}
        if self.device.counts_only and len(alike) < len(labels):
            alike.clear()  # a later launch of a test may count what an earlier one, of other code, left behind
        verdicts = dict.fromkeys(alike, Decision(Status.OK, Rule.CODE_UNCHANGED))
        if not labels or alike != labels:
            known = self._judgement_of_same_code(rows, labels - alike)
            if known is not None:
                reason = f"the code is that of {known.commit[:SHORT_HASH]}"
                return rows, replace(known, commit=candidate.commit, reason=reason)
            verdicts |= self._measured(candidate, alike)
        return rows, self._by_verdicts(candidate.commit, verdicts)

    def _rows_of(self, candidate: Revision) -> Rows:
        """Return what the commit says of its code; nothing where it has to be measured all the same."""
        if self.device.counts_only and self.good.holds_plugin:
            return {}  # the plugin that counts is itself another one there
        self._tell(f"what code the test runs at {candidate.commit[:SHORT_HASH]}")
        with self._lock.held(self._tell), suppress(NothingThere):
            there = replace(self._test, revision=candidate, candidate=self.good)
            return by_label(there.codes_at_base([self._test.nodeid]))
        return {}

    def _are_alike(self, one: Rows, other: Rows, label: str | None) -> bool:
        both = label in one and label in other
        return both and are_same_code(one[label], other[label], counted=self.device.counts_only)

    def _judgement_of_same_code(self, rows: Rows, labels: frozenset[str | None]) -> Judgement | None:
        """Return how a commit fares that was judged, and runs the same code; None where there is none."""
        if not labels or self.labels is None:
            return None
        for known, judgement in self._judged:
            if judgement.is_bad is not None and all(self._are_alike(rows, known, label) for label in self.labels):
                return judgement
        return None

    def _measured(self, candidate: Revision, but: set[str | None]) -> dict[str | None, Decision]:
        """Judge what is looked at by counts or pairs. but: labels of what is known."""
        sides = replace(self._test, candidate=candidate)
        taken: PairsTaken | None = None
        if self.device.counts_only:
            self._tell(f"counts at {candidate.commit[:SHORT_HASH]}")
            rows = by_label(sides.head())
        else:
            in_turn = self.device.on_host and not self.good.holds_plugin
            taken = PairsTaken(sides, self._tell, partial(self._lock.held, self._tell), in_turn)
            taken.take(FINEST_PRECISION)  # the first pair tells which tolerances there are
            rows = taken.pairs[0].head
        wanted = {
            label: row
            for label, row in rows.items()
            if label not in but and (self.labels is None or label in self.labels)
        }
        missing = dict.fromkeys((self.labels or frozenset()) - rows.keys() - but, not_there("it"))
        decided = self._by_counts(wanted) if taken is None else self._by_pairs(wanted, taken)
        return decided | missing

    def _by_pairs(self, rows: Rows, taken: PairsTaken) -> dict[str | None, Decision]:
        # What the commit's own marker and settings hold each measurement to.
        subjects = {}
        for label, row in rows.items():
            tolerance = row.verdict.get("tolerance")
            held_to = Settings().tolerance if tolerance is None else tolerance
            subjects[row.key] = Subject(label, row.to_entry(), row.verdict.get("figure"), held_to)
        found = compare_timed(subjects, taken, _LOOKS)
        return {
            label: found[row.key].decision(subjects[row.key].tolerance, _LOOKS, str(self.good))
            for label, row in rows.items()
        }

    def _by_counts(self, rows: Rows) -> dict[str | None, Decision]:
        decided = {}
        for label, row in rows.items():
            good, tolerance = self._counted_at_good.get(label), row.verdict.get("tolerance") or 0.0
            if good is None:
                decided[label] = not_there(self.good)
            else:
                entry = entry_of(row.key, [good], self.good)
                decided[label] = decide_counts(row.to_entry(), entry, tolerance)
        return decided

    @cached_property
    def _counted_at_good(self) -> Rows:
        self._tell(f"counts at {self.good}")
        return by_label(self._test.base())

    def _by_verdicts(self, commit: str, verdicts: Mapping[str | None, Decision]) -> Judgement:
        """Say what the verdicts of a test's measurements make of its commit."""
        regressed = frozenset(label for label, one in verdicts.items() if one.status is Status.REGRESSED)
        # What the good commit does not measure decides nothing beside what it does.
        known = {label: one for label, one in verdicts.items() if one.rule != Rule.NOT_THERE or self.labels}
        unsure = [label for label, one in known.items() if one.status not in _CLEARED]
        decide = sorted(regressed or unsure or known or verdicts, key=str)
        if not decide:
            return Judgement(commit, None, None, "it measures nothing")
        label = next((one for one in decide if verdicts[one].rule != Rule.CODE_UNCHANGED), decide[0])
        verdict = verdicts[label]
        text = f"the code is that of {self.good}" if verdict.rule == Rule.CODE_UNCHANGED else reason_of(verdict)
        reason = f"{label}: {text}" if label else text
        is_bad = True if regressed else None if unsure or not known else False
        return Judgement(commit, is_bad, verdict.status, reason, regressed)

    @cached_property
    def _lock(self) -> DeviceLock:
        return DeviceLock(self.device, _LOCK_SECONDS, advice="wait for it or end it")
