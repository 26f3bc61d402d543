"""Run git: what a repository holds, and which revision of it the tests come from."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError

GIT_SECONDS = 600
# What a run's description needs comes at once or not at all.
_SHORT_SECONDS = 10
# What a process runs, as opposed to what it reads: Python, libraries, GPU sources and binaries, what they include.
_PYTHON = (".py", ".pyc", ".pyd", ".so", ".dylib", ".dll")
_DEVICE = (".cu", ".cuh", ".cubin", ".fatbin", ".ptx", ".hip", ".cl", ".metal")
_INCLUDED = (".h", ".hh", ".hpp", ".hxx", ".inc", ".c", ".cc", ".cpp", ".cxx")
CODE_SUFFIXES = frozenset((*_PYTHON, *_DEVICE, *_INCLUDED))
# Lies in the folder of a virtual environment, and nowhere else.
_ENVIRONMENT_FILE = "pyvenv.cfg"
_CACHE = "__pycache__"
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


def uncommitted_files(folder: Path, is_output: Callable[[Path], bool] = lambda _: False) -> list[str] | None:
    """Return the files by which what runs may be other than the commit holds, by their paths from the tree's top.

    None outside a git repository, or where git hangs. They are tracked files that differ, and files of code that are
    not tracked; ignored files, virtual environments and Python's caches are no such. is_output: whether a file, by its
    path, is one that runs write: it does not count.
    """
    try:
        top = tree_of(folder)
        changed = [path for path in _changed(top) if not is_output(top / path)]
    except UsageError:
        return None
    try:
        return changed + [path for path in _untracked_code(top) if not is_output(top / path)]
    except UsageError:
        return changed or None


def _changed(top: Path) -> list[str]:
    """Return the tracked files that differ from the commit."""
    # Without renames each is one record: two letters, a blank and the path.
    status = ("-c", "status.renames=false", "status", "--porcelain", "-z", "--untracked-files=no")
    return [record[3:] for record in _records(top, *status)]


def _untracked_code(top: Path) -> list[str]:
    """Return the files that can be part of what runs, and are neither tracked nor ignored."""
    patterns = [f":(top,icase)*{suffix}" for suffix in sorted(CODE_SUFFIXES)]
    patterns.append(f":(top,glob)**/{_ENVIRONMENT_FILE}")
    found = _records(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *patterns)
    # One at the top is of a checkout that is an environment itself.
    inside = f"/{_ENVIRONMENT_FILE}"
    environments = tuple(path.removesuffix(_ENVIRONMENT_FILE) for path in found if path.endswith(inside))
    code = (path for path in found if Path(path).name != _ENVIRONMENT_FILE)
    return [path for path in code if not path.startswith(environments) and _CACHE not in Path(path).parts]


def _records(top: Path, *args: str) -> list[str]:
    return [record for record in git(top, *args, seconds=_SHORT_SECONDS).split("\0") if record]


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
