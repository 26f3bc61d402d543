"""Check out another revision of a git repository in a temporary folder, which is removed when this process ends.

FOLDER               its name holds the machine and the time of the machine's start (`storage.own_folders`)
FOLDER/owner.lock    locked by the process that uses the tree: free = that process is dead
FOLDER/mark.json     the folder's owner: repository, folder, user
FOLDER/tree          the worktree
FOLDER/index         git's index while it checks a submodule out
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.evidence.git import commit_named, git, is_hash, repository_of, submodules, tree_of
from pytest_bandwidth.storage.own_folders import (
    LOCK,
    OwnedFolder,
    is_of_an_earlier_start,
    is_this_users,
    left_folders,
    of_dead_owner,
    remove_temporary_folders,
)

PREFIX = "pytest-bandwidth-tree-"
LARGEST_MARK_BYTES = 65_536
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_HOW_TO_NAME_A_BRANCH = "; a branch of such a name is refs/heads/NAME"
_MARK, TREE, _INDEX = "mark.json", "tree", "index"


@dataclass(frozen=True, slots=True)
class Revision:
    """Hold a commit that is checked out in its own folder. top: the repository's own tree. tree: the commit's.

    name: as the user gave it; messages shorten a hash. python: the interpreter that finds the commit's build; None
    where nothing was built.
    """

    name: str
    commit: str
    top: str
    tree: str
    python: str | None = None

    def __str__(self) -> str:
        short = self.commit[:SHORT_HASH]
        return f"commit {short}" if self.commit.startswith(self.name) else f"{self.name} ({short})"

    def counterpart(self, path: Path) -> Path | None:
        """Return the same path in the commit's tree; None for one outside the repository."""
        resolved, top = path.resolve(), Path(self.top)
        return Path(self.tree, resolved.relative_to(top)) if resolved.is_relative_to(top) else None

    def environment(self, variables: Mapping[str, str]) -> dict[str, str]:
        """Return the variables with PYTHONPATH moved to the commit's tree, for processes that start there."""
        entries = [entry for entry in variables.get("PYTHONPATH", "").split(os.pathsep) if entry]
        if not entries:
            return dict(variables)
        moved = [str(self.counterpart(Path(one)) or one) if os.path.isabs(one) else one for one in entries]
        return {**variables, "PYTHONPATH": os.pathsep.join(moved)}

    @property
    def holds_plugin(self) -> bool:
        """Return whether the repository holds this package: the commit's plugin may count and sample differently."""
        return self.counterpart(_PACKAGE) is not None


class CheckedOut:
    """Hold a worktree with a revision in it, until `remove`."""

    def __init__(self, root: Path, name: str) -> None:
        """Check `name` out. root: any folder of the repository. Raises UsageError if git has no such commit."""
        top = top_of(root, "--bandwidth-against")
        commit = commit_of(top, name, "--bandwidth-against")
        remove_leftovers()
        remove_records(top)
        self._owned = OwnedFolder(PREFIX)
        self._folder = self._owned.path
        self.revision = Revision(name, commit, str(top), str(self._folder / TREE))
        try:
            # Locked and marked before git records the tree: from then on other processes check the folder.
            add_tree(top, self._folder, commit)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the folder and git's record of it; safe to repeat."""
        _remove(Path(self.revision.top), self._folder)
        self._owned.release()


def add_tree(top: Path, folder: Path, commit: str) -> None:
    """Write a folder's mark, then check a commit out below it. Raises UsageError where git cannot."""
    (folder / _MARK).write_text(json.dumps(_mark_of(repository_of(top), folder)), encoding="utf-8")
    # Forced: git keeps the record of a tree whose folder somebody removed (a cleared cache) for three months.
    git(top, "worktree", "add", "--force", "--force", "--detach", "--quiet", str(folder / TREE), commit)
    _add_submodules(top, folder / TREE, commit, folder / _INDEX)


def _add_submodules(top: Path, tree: Path, commit: str, index: Path) -> None:
    """Check out the submodules of a commit from the clones in the user's own tree, without changing those.

    A submodule without a clone in the user's tree stays empty. index: a file for git while it works.
    """
    for path, at in submodules(top, commit).items():
        clone, folder = top / path, tree / path
        if not (clone / ".git").exists():
            continue
        try:
            git(
                clone,
                "read-tree",
                "--reset",
                "-u",
                at,
                added={"GIT_INDEX_FILE": str(index), "GIT_WORK_TREE": str(folder)},
            )
        except UsageError as error:
            raise UsageError(
                f"submodule {path} of commit {commit[:SHORT_HASH]} is at {at[:SHORT_HASH]}, which git cannot check out "
                f"from {clone} (git -C {path} fetch may bring it): {error}"
            ) from None
        finally:
            index.unlink(missing_ok=True)
        _add_submodules(clone, folder, at, index)


def remove_leftovers() -> None:
    """Remove the temporary folders of killed processes, for any repository."""
    remove_temporary_folders()
    for folder in left_folders(PREFIX):
        _remove_of_dead_owner(folder)


def remove_records(top: Path) -> None:
    """Remove the worktrees of killed processes that a repository has a record of, in any folder.

    A missing folder may belong to another container that shares the repository. Its record stays, unless the machine
    was restarted after it was made; git drops it after three months. A user's own worktree stays.
    """
    for line in git(top, "worktree", "list", "--porcelain").splitlines():
        tree = Path(line.removeprefix("worktree "))
        if not line.startswith("worktree ") or tree.name != TREE or not tree.parent.name.startswith(PREFIX):
            continue
        if os.path.lexists(tree.parent):
            _remove_of_dead_owner(tree.parent)
        elif is_of_an_earlier_start(tree.parent):
            _remove(top, tree.parent)


def _remove_of_dead_owner(folder: Path) -> None:
    """Remove a worktree of this user and machine whose process is dead, and its record."""
    with of_dead_owner(folder) as is_dead:
        repository = repository_of_mark(folder) if is_dead else None
        if repository is not None:
            _remove(repository, folder)


def _mark_of(repository: Path, folder: Path) -> dict[str, object]:
    """Return the contents of a folder's mark, which distinguishes it from folders of other origin."""
    return {
        "repository": os.fsdecode(repository),
        "folder": os.fsdecode(folder),
        "user": os.getuid(),
    }


def repository_of_mark(folder: Path) -> Path | None:
    """Return the repository of a folder's mark; None if the mark is missing, of another folder or of another user."""
    mark = folder / _MARK
    try:
        is_own = not mark.is_symlink() and mark.is_file() and is_this_users(mark.lstat())
        record = record_in(mark, LARGEST_MARK_BYTES) if is_own else {}
        repository = Path(str(record.get("repository")))
        return repository if record == _mark_of(repository, folder) else None
    except (OSError, ValueError):
        return None


def record_in(file: Path, most_bytes: int) -> dict[str, Any]:
    """Return the object in a JSON file; an empty one if the file is missing or holds no object."""
    try:
        with file.open(encoding="utf-8") as opened:
            record = json.loads(opened.read(most_bytes))
    except (OSError, ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def remove_tree(top: Path, folder: Path) -> None:
    """Remove the tree below a folder, and git's record of it."""
    tree = folder / TREE
    # Twice --force: git locks a tree while it writes the files, and an interrupt then leaves the lock.
    command = ("worktree", "remove", "--force", "--force", str(tree))
    try:
        git(top, *command)
    except UsageError:  # partly made or partly removed: git drops its record if there is no folder
        shutil.rmtree(tree, ignore_errors=True)
        with suppress(UsageError):
            git(top, *command)


def _remove(top: Path, folder: Path) -> None:
    remove_tree(top, folder)
    # The folder is removed only if it is empty: other files in it are not the plugin's.
    with suppress(OSError):
        for name in (_INDEX, _MARK, LOCK):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def top_of(root: Path, asked_by: str) -> Path:
    """Return the top of a folder's working tree. Raises UsageError with the option `asked_by` in its message."""
    try:
        return tree_of(root)
    except UsageError as error:
        raise UsageError(f"{asked_by} needs a git repository, and git finds none at {root}: {error}") from None


def commit_of(top: Path, name: str, asked_by: str) -> str:
    """Return the full hash of a user's commit. Raises UsageError with the option `asked_by` in its message."""
    if not name or name.startswith("-"):
        raise UsageError(f"{asked_by}: found {name[:40]!r}, expected a git revision such as HEAD~1 or main")
    try:
        return commit_named(top, name)
    except UsageError:
        raise UsageError(
            f"{asked_by}: {name[:80]!r} is not a commit of {top}: check the name, or fetch it (shallow clones "
            f"of CI hold only the newest commit){_HOW_TO_NAME_A_BRANCH if is_hash(name) else ''}"
        ) from None
