"""Find this user's own folders: for copies, for files that no other user may write, and for temporary files.

A temporary folder has an owner: the process that made it and keeps its `owner.lock` locked. The kernel unlocks it
when that process ends in any way, and a later process removes the folder. Its name consists of a prefix, a hash of the
machine, and random letters.

This module imports no other part of the package, so that each part may use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

TEMPORARY = "pytest-bandwidth-tmp-"
LOCK = "owner.lock"
# A folder gets its name once it is locked: one that is older than this and has none was never finished.
_LONGEST_MAKING_SECONDS = 3600.0


def cache_folder() -> Path:
    """Return the folder for files that can be made or fetched again; do not create it."""
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "pytest-bandwidth"


def what_is_wrong(folder: Path) -> str | None:
    """Create a folder if it is missing; return why it is not this user's alone to write, or None if it is."""
    try:
        with suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        found = folder.lstat()
    except OSError as error:
        return error.strerror or type(error).__name__
    if not stat.S_ISDIR(found.st_mode):
        return "found a link" if stat.S_ISLNK(found.st_mode) else "found a file"
    if not is_this_users(found):
        return f"found one of the user {found.st_uid}"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "found one that others may write to"
    return None


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder; it is removed when the context ends, or by a later process where this one is killed."""
    name, maker = f"{TEMPORARY}{_machine()}-", os.getpid()
    making = Path(tempfile.mkdtemp(prefix=f".{name}")).resolve()
    made = making.with_name(making.name[1:])
    with (making / LOCK).open("x") as lock:
        with suppress(OSError):  # a file system without locks: the folder is never swept
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Other processes look for this name only: the folder is locked before it has the name.
        making.rename(made)
        try:
            yield made
        finally:
            if os.getpid() == maker:  # not in a process that a test forked and that ends here
                shutil.rmtree(made, ignore_errors=True)


def remove_temporary_folders() -> None:
    """Remove the temporary folders of processes that were killed before they could."""
    top = Path(tempfile.gettempdir()).resolve()
    for folder in (*top.glob(f"{TEMPORARY}{_machine()}-*"), *top.glob(f".{TEMPORARY}{_machine()}-*")):
        with suppress(OSError):
            age_seconds = time.time() - folder.lstat().st_mtime
            if folder.name.startswith(".") and age_seconds <= _LONGEST_MAKING_SECONDS:
                continue
            if _has_dead_owner(folder):
                shutil.rmtree(folder, ignore_errors=True)


def _has_dead_owner(folder: Path) -> bool:
    """Return whether a folder's process is dead, and folder and lock file are this user's alone. Raises OSError."""
    found, lock = folder.lstat(), (folder / LOCK).lstat()
    is_own = stat.S_ISDIR(found.st_mode) and is_this_users(found) and not found.st_mode & 0o077
    if not (is_own and stat.S_ISREG(lock.st_mode) and is_this_users(lock)):
        return False
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.close(descriptor)
    return True


def is_this_users(found: os.stat_result) -> bool:
    """Return whether a file's or folder's owner is this user."""
    return found.st_uid == os.getuid()


@cache
def _machine() -> str:
    """Return a hash that identifies this machine: two machines may have one host name."""
    try:
        number = Path("/etc/machine-id").read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        number = ""
    return hashlib.sha256((platform.node() + number).encode("utf-8", "surrogateescape")).hexdigest()[:8]
