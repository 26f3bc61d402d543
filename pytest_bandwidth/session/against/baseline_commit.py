"""Settle suspects by pairs against the commit at which their baseline's runs were taken, where git has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.judging.by_code.by_commit import is_cleared, judge_by_commit, limits_of
from pytest_bandwidth.domain.judging.by_code.last_word import LastWords, Suspect
from pytest_bandwidth.domain.judging.by_code.paired import SETTLING
from pytest_bandwidth.domain.judging.confirmation import IN_TURN_SHARE, ROUNDS_SHARE
from pytest_bandwidth.domain.judging.drop import setup_of
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.domain.verdict import Verdict
from pytest_bandwidth.session.against.building import Build, BuildFailed
from pytest_bandwidth.session.against.builds import check_out
from pytest_bandwidth.session.against.checkout import Revision
from pytest_bandwidth.session.against.extensions import check_extensions
from pytest_bandwidth.session.against.pairs_loop import DeviceHeld, PairsTaken, Subject, can_take_turns, judge_timed
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

    def __init__(self, root: Path, build: Build | None = None) -> None:
        """Check nothing out yet. root: any folder, of a repository or of none; build: how a commit is built."""
        self._root, self._build = root, build
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

    def revision(self, commit: str, tell: Callable[[str], None]) -> Revision:
        """Return the commit, checked out and built. Raises UsageError where git cannot, BuildFailed."""
        if commit not in self._revisions:
            if not self._revisions:
                self._stack.enter_context(signals_as_interrupts())
            checked_out = check_out(self._root, commit, self._build, tell, NAME)
            self._stack.callback(checked_out.remove)
            self._revisions[commit] = checked_out.revision
        return self._revisions[commit]

    def give_up(self, commit: str, why: str) -> None:
        """Note that no test can be run at the commit."""
        self._useless[commit] = why


@dataclass(frozen=True, slots=True)
class AgainstItsCommit:
    """Settle suspects of one test, as a `Way`.

    worktrees_at: both trees of the test, for a revision and the share of the time budget that is for rounds.
    """

    commits: BaselineCommits
    file: Path
    worktrees_at: Callable[[Revision, float], Worktrees]
    limits: Limits
    tell: Callable[[str], None]
    device_held: DeviceHeld

    def __call__(self, suspects: Mapping[str, Suspect]) -> LastWords:
        """Take pairs against the commit of each suspect's entry."""
        verdicts: dict[str, Verdict] = {}
        why_not: dict[str, str] = {}
        cleared: dict[str, Verdict] = {}
        of_commit: dict[str, dict[str, Suspect]] = {}
        for key, suspect in suspects.items():
            if suspect.case.reference is None:  # of another device's baseline, without figures or commits
                continue
            try:
                of_commit.setdefault(self.commits.commit_of(suspect.entry, self.file), {})[key] = suspect
            except NotAtHand as why:
                why_not[key] = _without_pairs(str(why))
        for commit, alike in of_commit.items():
            try:
                said = self._pairs(commit, alike)
            except BandwidthError as error:
                reason = _in_a_line(error)
                if isinstance(error, (ForeignImport, BuildFailed)):
                    self.commits.give_up(commit, reason)
                why_not.update(dict.fromkeys(alike, _without_pairs(reason)))
                continue
            verdicts.update(said.verdicts)
            why_not.update(said.why_not)
            cleared.update(said.cleared)
        return LastWords(verdicts, why_not, cleared)

    def _pairs(self, commit: str, suspects: Mapping[str, Suspect]) -> LastWords:
        measurements = {key: suspect.case.measurement for key, suspect in suspects.items()}
        revision = self.commits.revision(commit, self.tell)
        check_extensions(revision)
        in_turn = can_take_turns(measurements.values(), revision)
        worktrees = self.worktrees_at(revision, IN_TURN_SHARE if in_turn else ROUNDS_SHARE)
        taken = PairsTaken(worktrees, self.tell, self.device_held, in_turn)
        subjects = {
            key: Subject(one.label, setup_of(one), limits_of(suspects[key], self.limits))
            for key, one in measurements.items()
        }
        verdicts, why_not, cleared = {}, {}, {}
        for key, one in judge_timed(subjects, taken, SETTLING).items():
            heads = taken.heads(measurements[key].label)
            if taken.in_turn and heads and is_cleared(suspects[key], one.verdict):
                cleared[key] = one.verdict
                continue
            verdict = judge_by_commit(suspects[key], one.verdict, heads, self.limits.confirm)
            if verdict is None:
                why_not[key] = _without_pairs(one.verdict.reason)
            else:
                verdicts[key] = verdict
        return LastWords(verdicts, why_not, cleared)


def _in_a_line(error: Exception) -> str:
    """Return what an error says, of a child's output only the line in which pytest says what failed."""
    first, *others = str(error).splitlines() or [""]
    failed = [line.strip().removeprefix("E ").strip() for line in others if line.strip().startswith("E ")]
    return " ".join(f"{first} {failed[-1] if failed else ' '.join(others)}".split())[:LONGEST_REASON]


def _shown(commit: str) -> str:
    return f"{NAME} ({commit[:SHORT_HASH]})"


def _without_pairs(why: str) -> str:
    return f"not held to the old code: {why}"
