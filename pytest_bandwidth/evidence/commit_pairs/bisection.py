"""Search a history for its first bad commit, as `git bisect` does: git chooses what halves it."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.git import git


@dataclass(slots=True)
class Bisection:
    """Hold what is known of the commits between a good one and a bad one, all by their full hashes."""

    top: Path
    good: list[str]
    bad: str
    skipped: list[str] = field(default_factory=list)

    def candidates(self) -> list[str]:
        """Return the commits besides the bad one that may be the first bad one, the one that halves them best first."""
        lines = git(self.top, "rev-list", "--bisect-all", self.bad, *(f"^{good}" for good in self.good))
        commits = [line.partition(" ")[0] for line in lines.splitlines()]
        return [commit for commit in commits if commit != self.bad]

    def next(self) -> str | None:
        """Return the commit to judge next; None where none is left."""
        candidates = self.candidates()
        passed_over = set(self.skipped).intersection(candidates)
        if not passed_over:
            return candidates[0] if candidates else None
        # Where one cannot be judged its neighbours seldom can: what lies before and behind them all tells more.
        stretches: list[list[str]] = [[]]
        for commit in self.in_order():
            if commit in passed_over:
                stretches.append([])
            elif commit != self.bad:
                stretches[-1].append(commit)
        outer = [stretch for stretch in (stretches[0], stretches[-1]) if stretch]
        longest = max(outer or stretches, key=len)
        return longest[len(longest) // 2] if longest else None

    def in_order(self) -> list[str]:
        """Return all commits that may be the first bad one, the newest first."""
        listed = git(self.top, "rev-list", "--topo-order", self.bad, *(f"^{good}" for good in self.good))
        return listed.split()


def check_order(top: Path, good: str, bad: str) -> None:
    """Raise UsageError where the good commit is no ancestor of the bad one."""
    if good == bad:
        raise UsageError(f"GOOD and BAD are the same commit, {good[:10]}: expected a good one and a later, bad one")
    try:
        base = git(top, "merge-base", good, bad).strip()
    except UsageError:
        raise UsageError(
            f"GOOD ({good[:10]}) and BAD ({bad[:10]}) have no commit in common: fetch the history between them "
            "(shallow clones of CI hold only the newest commit)"
        ) from None
    if base != good:
        raise UsageError(
            f"GOOD ({good[:10]}) is no ancestor of BAD ({bad[:10]}): they part at {base[:10]}, which may be "
            "the GOOD that is meant"
        )


def described(top: Path, commit: str) -> tuple[str, str]:
    """Return a commit's subject, and author with date."""
    subject, _, by = git(top, "show", "--no-patch", "--format=%s%x00%an, %as", commit).strip().partition("\0")
    return subject, by


def modules_in(top: Path, commit: str) -> set[str]:
    """Return the names that Python modules and packages in a commit may be imported by."""
    files = git(top, "ls-tree", "-r", "-z", "--name-only", commit).split("\0")
    parts = (part for file in files if file.endswith(".py") for part in file.removesuffix(".py").split("/"))
    return {part for part in parts if part.isidentifier()}
