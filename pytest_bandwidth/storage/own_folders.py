"""Find this user's own folders: for copies, for files that no other user may write, and for temporary files.

A temporary folder has an owner: the process that made it and keeps its `owner.lock` locked. The kernel unlocks it
when that process ends in any way, and a later process removes the folder. Its name consists of a prefix, a hash of the
machine, a hash of the machine's last start, and random letters.

This module imports no other part of the package, so that each part may use it.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import re
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
_NAME = re.compile(
    r"(?P<making>\.?)(?P<prefix>pytest-bandwidth-[a-z]+-)(?P<machine>\w{8})-(?P<boot>\w{8})-\w+", re.ASCII
)
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


class OwnedFolder:
    """Hold a new temporary folder, which this process owns until `release`."""

    def __init__(self, prefix: str) -> None:
        """Make the folder. prefix: of its name."""
        name = f"{prefix}{_machine()}-{_boot()}-"
        making = Path(tempfile.mkdtemp(prefix=f".{name}")).resolve()
        self.path = making.with_name(making.name[1:])
        self._descriptor: int | None = os.open(making / LOCK, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        with suppress(OSError):  # a file system without locks: the folder is never swept
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # Other processes look for this name only: the folder is locked before it has the name.
        making.rename(self.path)

    def release(self) -> None:
        """Give up the folder in this process; a forked process does not unlock its parent's. Safe to repeat."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    """Make a folder; it is removed when the context ends, or by a later process where this one is killed."""
    made, maker = OwnedFolder(TEMPORARY), os.getpid()
    try:
        yield made.path
    finally:
        if os.getpid() == maker:  # not in a process that a test forked and that ends here
            shutil.rmtree(made.path, ignore_errors=True)
            made.release()


def remove_temporary_folders() -> None:
    """Remove the temporary folders of processes that were killed before they could."""
    for folder in left_folders(TEMPORARY):
        with of_dead_owner(folder) as is_dead:
            if is_dead:
                shutil.rmtree(folder, ignore_errors=True)


def left_folders(prefix: str) -> list[Path]:
    """Return the folders of that prefix that processes on this machine made; the processes may still run."""
    found: list[Path] = []
    with suppress(OSError):
        top = Path(tempfile.gettempdir()).resolve()
        with os.scandir(top) as entries:  # links are not followed
            for entry in entries:
                name = _NAME.fullmatch(entry.name)
                if name is None or name["prefix"] != prefix or name["machine"] != _machine():
                    continue
                with suppress(OSError):
                    age_seconds = time.time() - entry.stat(follow_symlinks=False).st_mtime
                    if not name["making"] or age_seconds > _LONGEST_MAKING_SECONDS:
                        found.append(top / entry.name)
    return found


def is_of_an_earlier_start(folder: Path) -> bool:
    """Return whether a folder was made before this machine's last start, by its name."""
    found = _NAME.fullmatch(folder.name)
    return found is not None and found["machine"] == _machine() and found["boot"] != _boot()


@contextmanager
def of_dead_owner(folder: Path) -> Iterator[bool]:
    """Take over a folder whose process is dead; yield False where the process lives, or for any other folder.

    The folder's name must be this machine's, and the folder and its lock file this user's alone. Creates no file.
    """
    descriptor, name = None, _NAME.fullmatch(folder.name)
    is_here = name is not None and name["machine"] == _machine()
    try:
        found, lock = folder.lstat(), (folder / LOCK).lstat()
        is_own = is_here and stat.S_ISDIR(found.st_mode) and is_this_users(found) and not found.st_mode & 0o077
        if is_own and stat.S_ISREG(lock.st_mode) and is_this_users(lock):
            descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        is_dead = descriptor is not None
    except OSError:
        is_dead = False
    try:
        yield is_dead
    finally:
        if descriptor is not None:
            os.close(descriptor)


def is_this_users(found: os.stat_result) -> bool:
    """Return whether a file's or folder's owner is this user."""
    return found.st_uid == os.getuid()


@cache
def _machine() -> str:
    """Return a hash that identifies this machine: two machines may have one host name."""
    return _digest(platform.node() + _text_of("/etc/machine-id"))


@cache
def _boot() -> str:
    """Return a hash that identifies this machine's last start (Linux)."""
    return _digest(_text_of("/proc/sys/kernel/random/boot_id"))


def _text_of(file: str) -> str:
    try:
        return Path(file).read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogateescape")).hexdigest()[:8]
