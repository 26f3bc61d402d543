"""Check out another revision of a git repository in a temporary folder, which goes when this process does.

FOLDER/owner.lock    locked by the process that uses the tree: free = that process is dead
FOLDER/mark.json     whose folder it is: repository, host, boot, user
FOLDER/tree          the worktree
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import stat
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import SHORT_HASH
from pytest_bandwidth.session.git import commit_named, git, is_hash, repository_of, tree_of

PREFIX = "pytest-bandwidth-tree-"
LARGEST_MARK_BYTES = 65_536
_HAS_OWNERS = hasattr(os, "getuid")
_PACKAGE = Path(__file__).resolve().parent.parent.parent
_HOW_TO_NAME_A_BRANCH = "; a branch of such a name is refs/heads/NAME"
_LOCK, _MARK, _TREE = "owner.lock", "mark.json", "tree"


@dataclass(frozen=True, slots=True)
class Revision:
    """Hold a commit in a folder of its own. name: as given; top: the repository's own tree; tree: the commit's."""

    name: str
    commit: str
    top: str
    tree: str

    def __str__(self) -> str:
        return f"{self.name} ({self.commit[:SHORT_HASH]})"

    def counterpart(self, path: Path) -> Path | None:
        """Return the same path in the commit's tree; None for one outside the repository."""
        resolved, top = path.resolve(), Path(self.top)
        return Path(self.tree, resolved.relative_to(top)) if resolved.is_relative_to(top) else None

    @property
    def holds_plugin(self) -> bool:
        """Return whether this package itself stands in the commit's tree: one that may count and sample otherwise."""
        return self.counterpart(_PACKAGE) is not None


class CheckedOut:
    """Hold a worktree with a revision in it, until `remove`."""

    def __init__(self, root: Path, name: str, shown: str | None = None) -> None:
        """Check `name` out. root: any folder of the repository. shown: what messages call it, if not by that name.

        Raises UsageError where git has no such commit.
        """
        top = top_of(root, "--bandwidth-against")
        commit = commit_of(top, name, "--bandwidth-against")
        remove_leftovers(top)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self._lock = FileLock(self._folder / _LOCK, mode=0o600)
        self.revision = Revision(shown or name, commit, str(top), str(self._folder / _TREE))
        try:
            # Locked and marked before git knows of the tree: from then on other processes look at the folder.
            self._lock.acquire()
            (self._folder / _MARK).write_text(json.dumps(_mark_of(top, self._folder)), encoding="utf-8")
            git(top, "worktree", "add", "--detach", "--quiet", self.revision.tree, commit)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the folder and git's record of it; safe to repeat."""
        _remove(Path(self.revision.top), self._folder)
        self._lock.release(force=True)


def remove_leftovers(top: Path) -> None:
    """Remove the worktrees of processes that were killed before they could.

    Only those that carry this user's, repository's, host's and boot's mark. A folder that is not there may be one of
    another container or host that shares the repository: its record stays, until git drops it after three months.
    """
    for line in git(top, "worktree", "list", "--porcelain").splitlines():
        tree = Path(line.removeprefix("worktree "))
        if not line.startswith("worktree ") or tree.name != _TREE or not _is_own(top, tree.parent):
            continue
        lock = FileLock(tree.parent / _LOCK)
        with suppress(Timeout):  # its process is alive
            lock.acquire(timeout=0)
            try:
                _remove(top, tree.parent)
            finally:
                lock.release()


def _mark_of(top: Path, folder: Path) -> dict[str, object]:
    """Return what tells this process's folders from all others."""
    return {
        "repository": os.fsdecode(repository_of(top)),
        "folder": os.fsdecode(folder),
        "host": platform.node(),
        "boot": _boot(),
        "user": os.getuid() if _HAS_OWNERS else None,
    }


def _boot() -> str | None:
    """Return the kernel's name for the time since it started (Linux): two machines may have one host name."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _is_own(top: Path, folder: Path) -> bool:
    """Return whether a process of this user, host and boot made the folder for a worktree. Creates nothing."""
    try:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or not _is_this_users(found) or (_HAS_OWNERS and found.st_mode & 0o077):
            return False
        files = [(folder / name).lstat() for name in (_LOCK, _MARK)]
        if not all(stat.S_ISREG(file.st_mode) and _is_this_users(file) for file in files):
            return False
        with (folder / _MARK).open(encoding="utf-8") as file:
            return bool(json.loads(file.read(LARGEST_MARK_BYTES)) == _mark_of(top, folder))
    except (OSError, ValueError, RecursionError):
        return False


def _is_this_users(found: os.stat_result) -> bool:
    return not _HAS_OWNERS or found.st_uid == os.getuid()


def _remove(top: Path, folder: Path) -> None:
    tree = folder / _TREE
    # Twice --force: git keeps a tree locked while it fills it, and an interrupt there leaves the lock.
    command = ("worktree", "remove", "--force", "--force", str(tree))
    try:
        git(top, *command)
    except UsageError:  # half made, or half removed: git drops its record where there is no folder
        shutil.rmtree(tree, ignore_errors=True)
        with suppress(UsageError):
            git(top, *command)
    # Not the folder with all that is in it: what others put there is theirs.
    with suppress(OSError):
        for name in (_MARK, _LOCK):
            (folder / name).unlink(missing_ok=True)
        folder.rmdir()


def top_of(root: Path, asked_by: str) -> Path:
    """Return the top of the working tree that a folder lies in. Raises UsageError that names who asked."""
    try:
        return tree_of(root)
    except UsageError as error:
        raise UsageError(f"{asked_by} needs a git repository, and {root} is in none that git reads: {error}") from None


def commit_of(top: Path, name: str, asked_by: str) -> str:
    """Return the full hash of the commit that a user named. Raises UsageError that names who asked."""
    if not name or name.startswith("-"):
        raise UsageError(f"{asked_by}: found {name[:40]!r}, expected a git revision such as HEAD~1 or main")
    try:
        return commit_named(top, name)
    except UsageError:
        raise UsageError(
            f"{asked_by}: {name[:80]!r} is no commit of {top}: check the name, or fetch it (shallow clones "
            f"of CI hold only the newest commit){_HOW_TO_NAME_A_BRANCH if is_hash(name) else ''}"
        ) from None
