"""Check out another revision of a git repository in a temporary folder, which is removed when this process ends.

A killed process leaves the folder, which a later one removes (`storage.own_folders`), and git's record of the worktree,
which git drops by itself.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.evidence.git import commit_named, git, submodules, tree_of
from pytest_bandwidth.storage.own_folders import remove_temporary_folders, temporary_folder

TREE, _INDEX = "tree", "index"
_PACKAGE = Path(__file__).resolve().parent.parent.parent


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
        remove_temporary_folders()
        with ExitStack() as stack:
            folder = stack.enter_context(temporary_folder())
            stack.callback(remove_tree, top, folder / TREE)
            self.revision = Revision(name, commit, str(top), str(folder / TREE))
            add_tree(top, folder, commit)
            self._stack = stack.pop_all()

    def remove(self) -> None:
        """Remove the folder and git's record of it; safe to repeat."""
        self._stack.close()


def add_tree(top: Path, folder: Path, commit: str) -> None:
    """Check a commit out below a folder. Raises UsageError where git cannot."""
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


def remove_tree(top: Path, tree: Path) -> None:
    """Remove a worktree, and git's record of it. top: any tree of its repository, also this one."""
    # Twice --force: git locks a tree while it writes the files, and an interrupt then leaves the lock.
    command = ("worktree", "remove", "--force", "--force", str(tree))
    try:
        git(top, *command)
    except UsageError:  # partly made or partly removed: git drops its record if there is no folder
        shutil.rmtree(tree, ignore_errors=True)
        with suppress(UsageError):
            git(top, *command)


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
            "of CI hold only the newest commit)"
        ) from None
