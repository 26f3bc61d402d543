"""Run git: what a repository holds, and which revision of it the tests come from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError

GIT_SECONDS = 600
# What a run's description needs comes at once or not at all.
_SHORT_SECONDS = 10
_SET_FOR_HOOKS = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)


def git(folder: Path, *args: str, seconds: float = GIT_SECONDS) -> str:
    """Return what git prints. Raises UsageError with git's complaint, and where it takes longer than `seconds`."""
    # No hook of the repository runs, and no question is asked.
    command = ["git", "-C", str(folder), "-c", "core.hooksPath=/dev/null", *args]
    try:
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            errors="surrogateescape",
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            env=_environment(os.environ),
            check=True,
        )
    except subprocess.CalledProcessError as error:
        raise UsageError(" ".join(error.stderr.split())[:400] or f"git {args[0]} failed") from None
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"git could not run: {error}") from None
    return done.stdout


def tree_of(folder: Path) -> Path:
    """Return the top of the working tree that a folder lies in. Raises UsageError where it lies in none."""
    return Path(_line(git(folder, "rev-parse", "--show-toplevel"))).resolve()


def repository_of(tree: Path) -> Path:
    """Return the folder that all working trees of a repository share (`.git` of the first)."""
    return (tree / _line(git(tree, "rev-parse", "--git-common-dir"))).resolve()


def commit_named(tree: Path, name: str) -> str:
    """Return the full hash of the commit that a name means. Raises UsageError where it means none."""
    return git(tree, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()


def has_file(tree: Path, commit: str, path: Path) -> bool:
    """Return whether a commit, given by its full hash, holds a file; path: from the tree's top."""
    try:
        git(tree, "cat-file", "-e", f"{commit}:{path.as_posix()}")
    except UsageError:
        return False
    return True


def current_commit(folder: Path) -> str | None:
    """Return the short hash of the commit that is checked out; None outside a git repository."""
    return _said(folder, "rev-parse", "--short=12", "HEAD") or None


def has_uncommitted_changes(folder: Path) -> bool | None:
    """Return whether tracked files differ from the commit; None outside a git repository."""
    changes = _said(folder, "status", "--porcelain", "--untracked-files=no")
    return None if changes is None else bool(changes)


def _said(folder: Path, *args: str) -> str | None:
    try:
        return git(folder, *args, seconds=_SHORT_SECONDS).strip()
    except UsageError:
        return None


def _line(text: str) -> str:
    """Return a path that git printed: only the end of the line is no part of it."""
    return text.removesuffix("\n")


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Leave out what git sets for its hooks: their repository and index are not to be touched."""
    return {name: value for name, value in inherited.items() if name not in _SET_FOR_HOOKS}
