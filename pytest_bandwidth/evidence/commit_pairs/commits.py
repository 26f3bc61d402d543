"""Find the commit that holds the old code of a test: the commit that a baseline's runs belong to."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path

from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.evidence.commit_pairs.build import Build, BuildFailed, check_extensions, check_out
from pytest_bandwidth.evidence.commit_pairs.process import ForeignImport
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.git import (
    SHORTEST_HASH,
    changed_files,
    commit_of_hash,
    current_commit,
    has_file,
    is_shallow,
    last_commit_of_lines,
    merge_base_with_default,
    tree_of,
)
from pytest_bandwidth.evidence.processes.start_and_end import signals_as_interrupts
from pytest_bandwidth.judging.evidence import Evidence

LONGEST_REASON = 300
# A baseline is untrusted data: only hashes of it reach git's command line.
_HASH = re.compile(rf"[0-9a-f]{{{SHORTEST_HASH},64}}", re.ASCII)


class NoOldCode(BandwidthError):
    """Raised where there is no old code for a comparison; the message holds the reason."""


class BaselineCommits:
    """Find the commit that an entry's figures belong to, and check it out once; `close` removes all checkouts.

    It is the first of these that is in the clone and holds the test's file: the commit that the entry's runs
    recorded; the last one that touched the entry's lines in the baseline; where this branch left the default branch.
    """

    def __init__(
        self, root: Path, baseline: Baseline | None = None, build: Build | None = None, *, anchors: bool = False
    ) -> None:
        """Check nothing out yet. root: any folder, in a repository or not. baseline: with its runs and lines.

        build: how a commit is built. anchors: whether to use only the commit of each entry's anchor.
        """
        self._root, self._baseline, self._build, self._anchors = root, baseline, build, anchors
        self._stack = ExitStack()
        self._revisions: dict[str, Revision] = {}
        # Commits at which no test can be run, with the reason.
        self._useless: dict[str, str] = {}

    def close(self) -> None:
        """Remove all checkouts; safe to repeat."""
        self._stack.close()
        self._revisions.clear()

    def commit_of(self, key: str, evidence: Evidence, file: Path) -> str:
        """Return the full hash of the entry's commit that has the test's file. Raises NoOldCode."""
        entry = evidence.entry
        if entry is not None and evidence.measurement.code.rebuilt_since(identity_of_plain(entry.code)) is not None:
            raise NoOldCode("only the compiler changed, and it would build the old code as well")
        return self.commit_with(key, file)

    def commit_with(self, key: str, file: Path) -> str:
        """Return the same as `commit_of`, without its check of the measured code. Raises NoOldCode."""
        try:
            top = tree_of(self._root)
            path = file.resolve().relative_to(top)
        except UsageError as error:
            raise NoOldCode(f"git cannot be used here: {_in_a_line(error)}") from None
        except ValueError:
            raise NoOldCode(f"{file.name} lies outside of the repository") from None
        entry = None if self._baseline is None else self._baseline.entries.get(key)
        whys: list[str] = []
        for find in (self._anchored,) if self._anchors else (self._recorded, self._blamed, self._left_default):
            try:
                for commit in find(top, entry):
                    if commit in self._useless:
                        whys.append(self._useless[commit])
                    elif has_file(top, commit, path):
                        return commit
                    else:
                        whys.append(f"{commit[:SHORT_HASH]} has no {path.name}")
            except UsageError as why:
                whys.append(_in_a_line(why))
        raise NoOldCode("; ".join(dict.fromkeys(whys)))

    def has_any(self) -> bool:
        """Return whether the clone holds at least one commit of the entries' runs."""
        entries = self._baseline.entries.values() if self._baseline else ()
        try:
            top = tree_of(self._root)
        except UsageError:
            return False
        for name in {run.commit for entry in entries for run in entry.runs}:
            with suppress(UsageError):
                if name is not None and _existing(top, name):
                    return True
        return False

    def _anchored(self, top: Path, entry: Entry | None) -> Iterator[str]:
        anchor = None if entry is None else entry.anchor
        if anchor is None or anchor.commit is None or anchor.dirty:
            raise UsageError("the entry has no anchor with a commit")
        yield _existing(top, anchor.commit)

    def _recorded(self, top: Path, entry: Entry | None) -> Iterator[str]:
        """Yield the commits of the entry's runs without uncommitted changes, the newest first."""
        recorded = [(run.commit, run.dirty) for run in reversed(entry.runs)] if entry else []
        clean = list(dict.fromkeys(name for name, dirty in recorded if name is not None and not dirty))
        if not clean:
            what = "were taken with uncommitted changes" if any(name for name, _ in recorded) else "name no commit"
            raise UsageError(f"the baseline's runs {what}")
        for name in clean:
            yield _existing(top, name)

    def _blamed(self, top: Path, entry: Entry | None) -> Iterator[str]:
        """Yield the last commit that touched the entry's lines: it holds the code of the entry's figures."""
        baseline = self._baseline
        if entry is None or entry.line is None or baseline is None or baseline.path is None:
            return
        resolved = Path(baseline.path).resolve()
        if not resolved.is_relative_to(top):
            raise UsageError("the baseline lies outside of the repository")
        if is_shallow(top):  # blame attributes older lines to the oldest commit of a shallow clone
            return
        later = [one.line for one in baseline.entries.values() if one.line is not None and one.line > entry.line]
        last = min(later) - 1 if later else None
        yield last_commit_of_lines(top, resolved.relative_to(top), entry.line, last)

    def _left_default(self, top: Path, _: Entry | None) -> Iterator[str]:
        """Yield the commit where this branch left the default branch. Raises UsageError if the checkout equals it."""
        base = merge_base_with_default(top)
        if base == current_commit(top) and not changed_files(top):
            raise UsageError("this is the default branch itself")
        yield base

    def revision(self, commit: str, notify: Callable[[str], None]) -> Revision:
        """Return the commit, checked out and built. Raises UsageError, BuildFailed."""
        if commit not in self._revisions:
            if not self._revisions:
                self._stack.enter_context(signals_as_interrupts())
            self._revisions[commit] = self._stack.enter_context(check_out(self._root, commit, self._build, notify))
        check_extensions(self._revisions[commit])
        return self._revisions[commit]

    def why_not(self, commit: str, error: BandwidthError) -> str:
        """Return why a comparison failed; a commit at which no test can run is not tried again."""
        reason = _in_a_line(error)
        if isinstance(error, (ForeignImport, BuildFailed)):
            self._useless[commit] = reason
        return reason


def _in_a_line(error: Exception) -> str:
    """Return an error's message in one line; of a child's output, only pytest's last line about the failure."""
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
        where = "this shallow clone: fetch the whole history" if is_shallow(top) else "this clone"
        raise UsageError(f"{name[:SHORT_HASH]} is not in {where}") from None
