"""Compare tests with the commit at which their baseline's runs were taken, in pairs of processes, where git has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.judging.comparable import setup_of
from pytest_bandwidth.domain.judging.evidence import Ask, Evidence
from pytest_bandwidth.domain.judging.judge import ALTERNATE_SHARE, ROUNDS_SHARE, Rule
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.session.against.checkout import CheckedOut, Revision
from pytest_bandwidth.session.against.pairs_loop import (
    DeviceHeld,
    Paired,
    PairsTaken,
    Subject,
    can_take_turns,
    compare_timed,
)
from pytest_bandwidth.session.against.worktrees import ForeignImport, Worktrees
from pytest_bandwidth.session.fresh.signals import signals_as_interrupts
from pytest_bandwidth.session.git import SHORTEST_HASH, commit_of_hash, has_file, tree_of

NAME = "the baseline's commit"
LONGEST_REASON = 300
# A baseline is data: nothing else of it reaches git's command line.
_HASH = re.compile(rf"[0-9a-f]{{{SHORTEST_HASH},64}}", re.ASCII)


class NotAtHand(BandwidthError):
    """Raised where pairs against the baseline's commit cannot be had; the message says why."""


class BaselineCommits:
    """Find and check out the commits that a baseline's runs name, each once; they go with `close`."""

    def __init__(self, root: Path) -> None:
        """Check nothing out yet. root: any folder, of a repository or of none."""
        self._root = root
        self._stack = ExitStack()
        self._revisions: dict[str, Revision] = {}
        # Commits at which no test can be run, with the reason.
        self._useless: dict[str, str] = {}

    def close(self) -> None:
        """Remove what was checked out; safe to repeat."""
        self._stack.close()
        self._revisions.clear()

    def commit_of(self, entry: Entry, file: Path) -> str:
        """Return the newest commit of the entry's runs that has the test's file. Raises NotAtHand."""
        recorded = [(run.commit, run.dirty) for run in reversed(entry.runs) if run.commit is not None]
        if not recorded:
            raise NotAtHand("no commit is known of the baseline's runs")
        clean = dict.fromkeys(name for name, dirty in recorded if not dirty)
        if not clean:
            raise NotAtHand("the baseline's runs are of a tree with changes or sources that were not committed")
        try:
            top = tree_of(self._root)
            path = file.resolve().relative_to(top)
        except UsageError as error:
            raise NotAtHand(f"git is not to be had: {_in_a_line(error)}") from None
        except ValueError:
            raise NotAtHand(f"{file.name} lies outside of the repository") from None
        whys: list[str] = []
        for name in clean:
            if _HASH.fullmatch(name) is None:
                whys.append("the baseline's runs name no commit by its hash")
                continue
            try:
                commit = commit_of_hash(top, name)
            except UsageError:
                whys.append(f"{_shown(name)} is not in this repository: fetch it (shallow clones hold the newest only)")
                continue
            if commit in self._useless:
                whys.append(self._useless[commit])
            elif has_file(top, commit, path):
                return commit
            else:
                whys.append(f"{_shown(commit)} has no {path.name}")
        raise NotAtHand(whys[0])

    def revision(self, commit: str) -> Revision:
        """Return the commit, checked out. Raises UsageError where git cannot."""
        if commit not in self._revisions:
            if not self._revisions:
                self._stack.enter_context(signals_as_interrupts())
            checked_out = CheckedOut(self._root, commit, NAME)
            self._stack.callback(checked_out.remove)
            self._revisions[commit] = checked_out.revision
        return self._revisions[commit]

    def give_up(self, commit: str, why: str) -> None:
        """Note that no test can be run at the commit."""
        self._useless[commit] = why


@dataclass(frozen=True, slots=True)
class CommitPairs:
    """Compare one test with its entries' commits; a `Resolver`.

    worktrees_at: both trees of the test, for a revision and the share of the time budget that is for rounds.
    """

    commits: BaselineCommits
    file: Path
    worktrees_at: Callable[[Revision, float], Worktrees]
    limits: Limits
    tell: Callable[[str], None]
    device_held: DeviceHeld

    @property
    def answers(self) -> Ask:
        return Ask.OLD_CODE

    def gather(self, asking: Mapping[str, Evidence], rule: Rule) -> Mapping[str, Evidence]:
        """Take pairs against the commit of each measurement's entry."""
        del rule  # pairs alone decide
        known = dict(asking)
        of_commit: dict[str, dict[str, Evidence]] = {}
        for key, one in asking.items():
            if one.entry is None:
                continue
            try:
                of_commit.setdefault(self.commits.commit_of(one.entry, self.file), {})[key] = one
            except NotAtHand as why:
                known[key] = _without(one, str(why))
        for commit, alike in of_commit.items():
            try:
                known |= self._pairs(commit, alike)
            except BandwidthError as error:
                reason = _in_a_line(error)
                if isinstance(error, ForeignImport):
                    self.commits.give_up(commit, reason)
                known |= {key: _without(one, reason) for key, one in alike.items()}
        return known

    def _pairs(self, commit: str, alike: Mapping[str, Evidence]) -> dict[str, Evidence]:
        measurements = {key: one.measurement for key, one in alike.items()}
        revision = self.commits.revision(commit)
        alternate = can_take_turns(measurements.values(), revision)
        worktrees = self.worktrees_at(revision, ALTERNATE_SHARE if alternate else ROUNDS_SHARE)
        taken = PairsTaken(worktrees, self.tell, self.device_held, alternate)
        subjects = {
            key: Subject(
                one.measurement.label,
                setup_of(one.measurement),
                one.stored.figure if one.stored is not None else self.limits.marker.judged_on,
                one.tolerance,
            )
            for key, one in alike.items()
        }
        found = compare_timed(subjects, taken, self.limits.looks)
        return {key: _with_pairs(one, found[key], revision) for key, one in alike.items()}


def _with_pairs(evidence: Evidence, paired: Paired, revision: Revision) -> Evidence:
    if paired.compared is not None:
        return replace(evidence, compared=paired.compared)
    different = paired.different
    why = f"{revision} has another {different.name}" if different is not None else paired.why_not
    return _without(evidence, why or f"{revision} does not measure it")


def _without(evidence: Evidence, why: str) -> Evidence:
    return replace(evidence, why_not=(*evidence.why_not, f"the old code did not run: {why}"))


def _in_a_line(error: Exception) -> str:
    """Return what an error says, of a child's output only the line in which pytest says what failed."""
    first, *others = str(error).splitlines() or [""]
    failed = [line.strip().removeprefix("E ").strip() for line in others if line.strip().startswith("E ")]
    return " ".join(f"{first} {failed[-1] if failed else ' '.join(others)}".split())[:LONGEST_REASON]


def _shown(commit: str) -> str:
    return f"{NAME} ({commit[:SHORT_HASH]})"
