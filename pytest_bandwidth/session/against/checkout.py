"""Another revision of a git repository, checked out in a temporary folder and gone when this process is.

FOLDER/owner.lock    locked by the process that uses the tree: free = that process is dead
FOLDER/tree          the worktree
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.errors import UsageError

PREFIX = "pytest-bandwidth-tree-"
GIT_SECONDS = 600
SHORT_HASH = 10
_SET_FOR_HOOKS = (
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_COMMON_DIR",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
)


@dataclass(frozen=True, slots=True)
class Revision:
    """A commit in a folder of its own. name: as given; top: the repository's own tree; tree: the commit's."""

    name: str
    commit: str
    top: str
    tree: str

    def __str__(self) -> str:
        return f"{self.name} ({self.commit[:SHORT_HASH]})"

    def counterpart(self, path: Path) -> Path | None:
        """The same path in the commit's tree; None for one outside the repository."""
        resolved, top = path.resolve(), Path(self.top)
        return Path(self.tree, resolved.relative_to(top)) if resolved.is_relative_to(top) else None


class CheckedOut:
    """A worktree with a revision in it, until `remove`."""

    def __init__(self, root: Path, name: str) -> None:
        """`root`: any folder of the repository. Raises UsageError where git has no such repository or commit."""
        top = _top(root)
        commit = _commit(top, name)
        remove_leftovers(top)
        self._folder = Path(tempfile.mkdtemp(prefix=PREFIX)).resolve()
        self._lock = FileLock(self._folder / "owner.lock")
        self.revision = Revision(name, commit, str(top), str(self._folder / "tree"))
        try:
            self._lock.acquire()
            git(top, "worktree", "add", "--detach", "--quiet", self.revision.tree, commit)
        except BaseException:
            self.remove()
            raise

    def remove(self) -> None:
        """Takes folder and git's record of it away; safe to repeat."""
        _remove(Path(self.revision.top), self._folder)
        self._lock.release(force=True)


def remove_leftovers(top: Path) -> None:
    """Takes away the worktrees of processes that were killed before they could."""
    for line in git(top, "worktree", "list", "--porcelain").splitlines():
        folder = Path(line.removeprefix("worktree ")).parent
        if not line.startswith("worktree ") or not folder.name.startswith(PREFIX):
            continue
        lock = FileLock(folder / "owner.lock")
        try:
            if folder.exists():
                lock.acquire(timeout=0)
            _remove(top, folder)
        except Timeout:
            continue  # its process is alive
        finally:
            lock.release()


def _remove(top: Path, folder: Path) -> None:
    tree = str(folder / "tree")
    # Twice --force: git keeps a tree locked while it fills it, and whoever was interrupted there leaves the lock.
    try:
        git(top, "worktree", "remove", "--force", "--force", tree)
    except UsageError:  # half made, or half removed
        shutil.rmtree(tree, ignore_errors=True)
        with suppress(UsageError):
            git(top, "worktree", "unlock", tree)
        with suppress(UsageError):
            git(top, "worktree", "prune")
    shutil.rmtree(folder, ignore_errors=True)


def _top(root: Path) -> Path:
    try:
        return Path(git(root, "rev-parse", "--show-toplevel").strip()).resolve()
    except UsageError as error:
        raise UsageError(
            f"--bandwidth-against needs a git repository, and {root} is in none that git reads: {error}"
        ) from None


def _commit(top: Path, name: str) -> str:
    if not name or name.startswith("-"):
        raise UsageError(f"--bandwidth-against: found {name[:40]!r}, expected a git revision such as HEAD~1 or main")
    try:
        return git(top, "rev-parse", "--verify", "--quiet", f"{name}^{{commit}}").strip()
    except UsageError:
        raise UsageError(
            f"--bandwidth-against: {name[:80]!r} is no commit of {top}: check the name, or fetch it (shallow clones "
            "of CI hold only the newest commit)"
        ) from None


def git(folder: Path, *args: str, seconds: float = GIT_SECONDS) -> str:
    """What git prints. Raises UsageError with what it complained about, and where it takes longer than `seconds`."""
    # No hook of the repository runs, and nobody is asked for anything.
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


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Without what git sets for its hooks: their repository and index are not to be touched."""
    return {name: value for name, value in inherited.items() if name not in _SET_FOR_HOOKS}
