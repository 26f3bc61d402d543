"""Run git to find out what a repository holds, and which revision of it the tests come from.

The repository is the user's: reading takes no lock and writes nothing. No program that a repository or its
configuration names runs, except filters of files that are checked out (Git LFS is one).
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError

GIT_SECONDS = 600
# The time-out of commands that normally answer at once, such as those for a run's description.
_SHORT_SECONDS = 10
# Suffixes of code, as opposed to data: Python, libraries, GPU sources and binaries, and their headers.
_PYTHON = (".py", ".pyc", ".pyd", ".so", ".dylib", ".dll")
_DEVICE = (".cu", ".cuh", ".cubin", ".fatbin", ".ptx", ".hip", ".cl", ".metal")
_INCLUDED = (".h", ".hh", ".hpp", ".hxx", ".inc", ".c", ".cc", ".cpp", ".cxx")
CODE_SUFFIXES = frozenset((*_PYTHON, *_DEVICE, *_INCLUDED))
_CACHE = "__pycache__"
# Variables that select another repository than that of the folder, or that change the meaning of paths.
_LEFT_OUT = (
    *("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR", "GIT_NAMESPACE"),
    *("GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES"),
    *("GIT_LITERAL_PATHSPECS", "GIT_GLOB_PATHSPECS", "GIT_NOGLOB_PATHSPECS", "GIT_ICASE_PATHSPECS"),
)
# Settings against writing the index in commands that only read, and against questions on the terminal.
_ADDED = {"GIT_OPTIONAL_LOCKS": "0", "GIT_TERMINAL_PROMPT": "0"}
# A partial clone would fetch missing objects. Only a checkout may do that.
_WITHOUT_NETWORK = {"GIT_ALLOW_PROTOCOL": "none"}
_NONE_ADDED: Mapping[str, str] = {}
# These settings switch off programs (hooks, the file watcher, gpg), and maintenance, which writes.
_CONFIG = (
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "log.showSignature=false",
    "gc.auto=0",
    "maintenance.auto=false",
)
# The mode of a submodule in a tree.
_SUBMODULE = "160000 "
SHORTEST_HASH = 7
# The start of a line's record in `git blame --porcelain`.
_BLAMED = re.compile(r"[0-9a-f]{40,64} \d+ \d+", re.ASCII)
_DEFAULT_BRANCHES = ("refs/remotes/origin/HEAD", "refs/heads/main", "refs/heads/master", "refs/remotes/origin/main")
# The digits of a hash, and a suffix such as ~1 that selects a commit near it.
_HASH = re.compile(rf"([0-9a-f]{{{SHORTEST_HASH},64}})(|[~^].*)", re.ASCII | re.DOTALL)


def git(folder: Path, *args: str, seconds: float = GIT_SECONDS, added: Mapping[str, str] = _NONE_ADDED) -> str:
    """Return git's output. Raises UsageError with git's message, or if git takes longer than `seconds`.

    added: further environment variables.
    """
    command = ["git", "-C", str(folder), "--no-pager", *(part for one in _CONFIG for part in ("-c", one)), *args]
    variables = {name: value for name, value in os.environ.items() if name not in _LEFT_OUT} | {**_ADDED, **added}
    if args[0] != "worktree":
        variables |= _WITHOUT_NETWORK
    try:
        done = subprocess.run(
            command,
            env=variables,
            errors="surrogateescape",
            capture_output=True,
            timeout=seconds,
            stdin=subprocess.DEVNULL,
            check=False,
        )
    except OSError as error:
        raise UsageError(f"git could not run: {error}") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git could not run: git {args[0]} took longer than {seconds:g} seconds") from None
    if done.returncode != 0:
        raise UsageError(" ".join(done.stderr.split())[:400] or f"git {args[0]} failed")
    return done.stdout


def tree_of(folder: Path) -> Path:
    """Return the top of the working tree that a folder lies in. Raises UsageError outside any working tree."""
    # Only the final line feed of git's output is removed: a path may end with blanks.
    return Path(git(folder, "rev-parse", "--show-toplevel").removesuffix("\n")).resolve()


def repository_of(tree: Path) -> Path:
    """Return the common git folder of a repository's working trees (`.git` of the first)."""
    return (tree / git(tree, "rev-parse", "--git-common-dir").removesuffix("\n")).resolve()


def commit_named(tree: Path, name: str) -> str:
    """Return the full hash of the commit with that name. Raises UsageError if there is no such commit.

    Digits of a hash always mean that commit, and never a branch or tag of the same name.
    """
    of_hash = _HASH.fullmatch(name)
    if of_hash is not None:
        name = f"{commit_of_hash(tree, of_hash[1])}{of_hash[2]}"
    return git(tree, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()


def commit_of_hash(tree: Path, digits: str) -> str:
    """Return the full hash of the one commit whose hash begins with these digits. Raises UsageError."""
    objects = git(tree, "rev-parse", f"--disambiguate={digits}").split()
    found = [one for one in objects if one.startswith(digits) and git(tree, "cat-file", "-t", one).strip() == "commit"]
    if len(found) != 1:
        raise UsageError(f"found {len(found)} commits whose hash begins with {digits}, expected one")
    return found[0]


def has_file(tree: Path, commit: str, path: Path) -> bool:
    """Return whether a commit holds a file. commit: a full hash, or HEAD. path: from the tree's top."""
    try:
        git(tree, "cat-file", "-e", f"{commit}:{path.as_posix()}")
    except UsageError:
        return False
    return True


def submodules(tree: Path, commit: str) -> dict[str, str]:
    """Return the submodules of a commit: paths from the tree's top, each with the full hash of its commit."""
    if not has_file(tree, commit, Path(".gitmodules")):
        return {}
    records = (record.partition("\t") for record in _records(tree, "ls-tree", "-r", "-z", commit))
    return {path: about.split()[2] for about, _, path in records if about.startswith(_SUBMODULE)}


def is_shallow(folder: Path) -> bool:
    """Return whether the repository is a shallow clone, which lacks older commits."""
    return _output_of(folder, "rev-parse", "--is-shallow-repository") == "true"


def last_commit_of_lines(tree: Path, path: Path, first: int, last: int | None) -> str:
    """Return the full hash of the newest commit that touched the given lines of a file in the working tree.

    path: from the tree's top. last: None for the file's end. Raises UsageError if one of the lines is not committed.
    """
    if not has_file(tree, "HEAD", path):
        raise UsageError(f"{path} is not committed")
    output = git(tree, "blame", "--porcelain", f"-L{first},{last or ''}", "--", path.as_posix(), seconds=_SHORT_SECONDS)
    commits = dict.fromkeys(line.split()[0] for line in output.splitlines() if _BLAMED.match(line))
    if not commits or any(not one.strip("0") for one in commits):
        raise UsageError(f"{path}:{first} is not committed")
    # The commit that is not an ancestor of another one.
    return git(tree, "merge-base", "--independent", *commits, seconds=_SHORT_SECONDS).split()[0]


def merge_base_with_default(tree: Path) -> str:
    """Return the full hash of the commit where this branch left the default branch. Raises UsageError."""
    for name in _DEFAULT_BRANCHES:
        try:
            branch = git(tree, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
            return git(tree, "merge-base", "HEAD", branch).strip()
        except UsageError:
            continue
    raise UsageError("the clone has no default branch (origin/HEAD, main or master)")


def current_commit(folder: Path) -> str | None:
    """Return the full hash of the commit that is checked out; None outside a git repository."""
    return _output_of(folder, "rev-parse", "--verify", "--quiet", "HEAD^{commit}") or None


def root_in_checkout(folder: Path) -> str | None:
    """Return a folder's path from the top of its working tree, ``.`` for the top; None outside a git repository."""
    prefix = _output_of(folder, "rev-parse", "--show-prefix")
    return prefix if prefix is None else prefix.rstrip("/") or "."


def uncommitted_files(folder: Path, is_output: Callable[[Path], bool] = lambda _: False) -> list[str] | None:
    """Return files that make the running code differ from the commit, by their paths from the tree's top.

    They are tracked files that differ, and untracked files of code, but no ignored files or Python caches. None outside
    a git repository, or if git hangs. is_output: whether a file, given by its path, is written by runs: such files are
    left out.
    """
    try:
        top = tree_of(folder)
        changed = [path for path in changed_files(top) if not is_output(top / path)]
    except UsageError:
        return None
    patterns = [f":(top,icase)*{suffix}" for suffix in sorted(CODE_SUFFIXES)]
    try:
        untracked = _records(top, "ls-files", "--others", "--exclude-standard", "-z", "--", *patterns)
    except UsageError:
        return changed or None
    return changed + [path for path in untracked if _CACHE not in Path(path).parts and not is_output(top / path)]


def changed_files(top: Path) -> list[str]:
    """Return the tracked files that differ from the current commit."""
    # Without renames each file is one record: two letters, a blank and the path.
    status = ("-c", "status.renames=false", "status", "--porcelain", "-z", "--untracked-files=no")
    return [record[3:] for record in _records(top, *status)]


def _records(top: Path, *args: str) -> list[str]:
    return [record for record in git(top, *args, seconds=_SHORT_SECONDS).split("\0") if record]


def _output_of(folder: Path, *args: str) -> str | None:
    try:
        return git(folder, *args, seconds=_SHORT_SECONDS).strip()
    except UsageError:
        return None
