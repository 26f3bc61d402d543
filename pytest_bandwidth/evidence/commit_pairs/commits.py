"""Compare tests with the commit at which their baseline's runs were taken, in pairs of processes, where git has it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.evidence.commit_pairs.build import Build, BuildFailed, check_extensions, check_out
from pytest_bandwidth.evidence.commit_pairs.pairs import (
    DeviceHeld,
    Paired,
    PairsTaken,
    Subject,
    can_take_turns,
    compare_timed,
)
from pytest_bandwidth.evidence.commit_pairs.process import ForeignImport, Worktrees
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.git import (
    SHORTEST_HASH,
    commit_of_hash,
    current_commit,
    has_changes,
    has_file,
    last_commit_of_lines,
    merge_base_with_default,
    tree_of,
)
from pytest_bandwidth.evidence.processes.endings import signals_as_interrupts
from pytest_bandwidth.judging.evidence import Ask, Evidence, setup_of
from pytest_bandwidth.judging.judge import ALTERNATE_SHARE, ROUNDS_SHARE, Rule
from pytest_bandwidth.judging.limits import Limits

NAME = "the baseline's commit"
LONGEST_REASON = 300
# A baseline is data: nothing else of it reaches git's command line.
_HASH = re.compile(rf"[0-9a-f]{{{SHORTEST_HASH},64}}", re.ASCII)


class NotAtHand(BandwidthError):
    """Raised where pairs against the baseline's commit cannot be had; the message says why."""


class BaselineCommits:
    """Find the commit that an entry's figures belong to, and check it out once; what was checked out goes with `close`.

    It is the first of these that the clone has and that holds the test's file: the commit that the entry's runs
    recorded; the last one that touched the entry's lines in the baseline; where this branch left the default branch.
    """

    def __init__(
        self, root: Path, baseline: Baseline | None = None, build: Build | None = None, *, anchors: bool = False
    ) -> None:
        """Check nothing out yet. root: any folder, of a repository or of none. baseline: with its runs and lines.

        build: how a commit is built. anchors: whether to take the commit of each entry's anchor alone.
        """
        self._root, self._baseline, self._build, self._anchors = root, baseline, build, anchors
        self._stack = ExitStack()
        self._revisions: dict[str, Revision] = {}
        # Commits at which no test can be run, with the reason.
        self._useless: dict[str, str] = {}

    def close(self) -> None:
        """Remove what was checked out; safe to repeat."""
        self._stack.close()
        self._revisions.clear()

    def commit_of(self, key: str, file: Path) -> str:
        """Return the full hash of an entry's commit that has the test's file. Raises NotAtHand."""
        try:
            top = tree_of(self._root)
            path = file.resolve().relative_to(top)
        except UsageError as error:
            raise NotAtHand(f"git cannot be used here: {_in_a_line(error)}") from None
        except ValueError:
            raise NotAtHand(f"{file.name} lies outside of the repository") from None
        whys: list[str] = []
        for find in (self._anchored,) if self._anchors else (self._recorded, self._blamed, self._left_default):
            try:
                for commit in find(top, key):
                    if commit in self._useless:
                        whys.append(self._useless[commit])
                    elif has_file(top, commit, path):
                        return commit
                    else:
                        whys.append(f"{commit[:SHORT_HASH]} has no {path.name}")
            except UsageError as why:
                whys.append(_in_a_line(why))
        raise NotAtHand("; ".join(dict.fromkeys(whys)))

    def has_any(self) -> bool:
        """Return whether the clone holds a commit that an entry's runs name."""
        names = (
            {run.commit for entry in self._baseline.entries.values() for run in entry.runs} if self._baseline else ()
        )
        try:
            top = tree_of(self._root)
        except UsageError:
            return False
        for name in names:
            with suppress(UsageError):
                if name is not None and _existing(top, name):
                    return True
        return False

    def _entry(self, key: str) -> Entry | None:
        return None if self._baseline is None else self._baseline.find(key)

    def _anchored(self, top: Path, key: str) -> Iterator[str]:
        entry = self._entry(key)
        anchor = None if entry is None else entry.anchor
        if anchor is None or anchor.commit is None or anchor.dirty:
            raise UsageError("the entry has no anchor with a commit")
        yield _existing(top, anchor.commit)

    def _recorded(self, top: Path, key: str) -> Iterator[str]:
        """Yield the commits of the entry's runs, the newest first, that have no changes of their own."""
        entry = self._entry(key)
        recorded = [(run.commit, run.dirty) for run in reversed(entry.runs)] if entry else []
        clean = list(dict.fromkeys(name for name, dirty in recorded if name is not None and not dirty))
        if not clean:
            what = "were taken with uncommitted changes" if any(name for name, _ in recorded) else "name no commit"
            raise UsageError(f"the baseline's runs {what}")
        for name in clean:
            yield _existing(top, name)

    def _blamed(self, top: Path, key: str) -> Iterator[str]:
        """Yield the last commit that touched the entry's lines: it brought the code that they belong to."""
        entry, baseline = self._entry(key), self._baseline
        if entry is None or entry.line is None or baseline is None or baseline.path is None:
            return
        resolved = Path(baseline.path).resolve()
        if not resolved.is_relative_to(top):
            raise UsageError("the baseline lies outside of the repository")
        later = [one.line for one in baseline.entries.values() if one.line is not None and one.line > entry.line]
        last = min(later) - 1 if later else None
        yield last_commit_of_lines(top, resolved.relative_to(top), entry.line, last)

    def _left_default(self, top: Path, key: str) -> Iterator[str]:
        """Yield the commit at which this branch left the default branch, unless that is what lies here."""
        del key
        base = merge_base_with_default(top)
        if base == current_commit(top) and not has_changes(top):
            raise UsageError("this is the default branch itself")
        yield base

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
            if one.measurement.code.rebuilt_since(identity_of_plain(one.entry.code)) is not None:
                known[key] = _without(one, "only the compiler changed, which builds the commit's code as well")
                continue
            try:
                of_commit.setdefault(self.commits.commit_of(key, self.file), {})[key] = one
            except NotAtHand as why:
                known[key] = _without(one, str(why))
        for commit, alike in of_commit.items():
            try:
                known |= self._pairs(commit, alike)
            except BandwidthError as error:
                reason = _in_a_line(error)
                if isinstance(error, (ForeignImport, BuildFailed)):
                    self.commits.give_up(commit, reason)
                known |= {key: _without(one, reason) for key, one in alike.items()}
        return known

    def _pairs(self, commit: str, alike: Mapping[str, Evidence]) -> dict[str, Evidence]:
        measurements = {key: one.measurement for key, one in alike.items()}
        revision = self.commits.revision(commit, self.tell)
        check_extensions(revision)
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


def _existing(top: Path, name: str) -> str:
    """Return the full hash of a recorded commit. Raises UsageError where the clone lacks it."""
    if _HASH.fullmatch(name) is None:
        raise UsageError("the baseline's runs name no commit by its hash")
    try:
        return commit_of_hash(top, name)
    except UsageError:
        raise UsageError(f"{name[:SHORT_HASH]} is not in this clone") from None
