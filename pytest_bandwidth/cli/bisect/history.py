"""Ask git for the history between a good and a bad commit, and how commits in it are built."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from iniconfig import IniConfig, ParseError

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.commit_pairs.build import Build, build_of
from pytest_bandwidth.evidence.git import git

_NAME = "bandwidth_build"
# In the order that pytest looks for them, with the section of each.
_FILES = (
    ("pytest.toml", "pytest"),
    (".pytest.toml", "pytest"),
    ("pytest.ini", "pytest"),
    (".pytest.ini", "pytest"),
    ("pyproject.toml", "tool.pytest"),
    ("tox.ini", "pytest"),
    ("setup.cfg", "tool:pytest"),
)


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


def how_built(top: Path, commit: str, test_file: Path, args: Sequence[str]) -> Build | None:
    """Return how commits are built; None where neither `args` (`-o bandwidth_build=…`) nor the ini file says.

    The ini file is the first one of pytest's from the test's folder up to the top of the tree. Raises UsageError where
    it cannot be read.
    """
    folder, said = _command_in_ini(top, commit, test_file.parent)
    for option, value in zip(("", *args), args, strict=False):
        given = value if option in ("-o", "--override-ini") else value.removeprefix("--override-ini=")
        if given.startswith(f"{_NAME}="):
            said = given.partition("=")[2]
    return build_of(said or None, folder)


def _command_in_ini(top: Path, commit: str, start: Path) -> tuple[Path, str]:
    """Return the folder of the ini file, and what it says, if anything."""
    for folder in (start.resolve(), *start.resolve().parents):
        if not folder.is_relative_to(top):
            break
        for name, section in _FILES:
            path = (folder / name).relative_to(top)
            try:
                text = git(top, "cat-file", "blob", f"{commit}:{path.as_posix()}")
            except UsageError:  # not there
                continue
            try:
                found = _toml(text, section) if name.endswith(".toml") else _ini(text, section)
            except (ParseError, ValueError) as error:
                raise UsageError(f"{path} at {commit[:10]}: {error}, expected pytest's ini file") from None
            if found is not None or name in ("pytest.ini", ".pytest.ini"):
                return folder, str((found or {}).get(_NAME, ""))
    return start, ""


def _ini(text: str, section: str) -> Mapping[str, str] | None:
    found = IniConfig("", data=text)
    return dict(found[section].items()) if section in found else None


def _toml(text: str, section: str) -> Mapping[str, Any] | None:
    # pytest needs one of the two.
    found: Any = import_module("tomllib" if sys.version_info >= (3, 11) else "tomli").loads(text)
    for key in section.split("."):
        found = found.get(key) if isinstance(found, dict) else None
    if isinstance(found, dict) and isinstance(found.get("ini_options"), dict):
        found = found["ini_options"]
    return found if isinstance(found, dict) else None
