"""Keep the history's folder: list the files that belong to it, and add one whole or not at all.

A run is one file, named by its id, and is never changed. Many are merged into one now and then: `writing.merge`.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.storage.atomic import replacing

FILES_AT_MOST = 100_000
BYTES_OF_FILE_AT_MOST = 2 * 2**30
# What a killed process left half-written is swept away by a later one, when nobody can be writing it any more.
LEFTOVER_SECONDS = 24 * 3600.0
LISTINGS_AT_MOST = 20

_RUN = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\.parquet")
_MERGED_PREFIX = "merged-"
_PARTIAL = re.compile(r"\..+\.partial")


@dataclass(frozen=True, slots=True)
class Listing:
    """List the folder's files by name. runs: of one run each; merged: of many."""

    runs: tuple[Path, ...]
    merged: tuple[Path, ...]

    @property
    def files(self) -> tuple[Path, ...]:
        return (*self.merged, *self.runs)


def listing(folder: Path) -> Listing:
    """Return the folder as it was at one moment. Raises UsageError where it is none, or holds what no history does.

    A merge adds its file before it removes those that it holds, and reading a folder takes no instant: two readings
    that agree have missed nothing.
    """
    before = _names(folder)
    for _ in range(LISTINGS_AT_MOST):
        names = _names(folder)
        if names == before:
            break
        before = names
    else:
        raise UsageError(f"{folder}: changes faster than it can be read, expected a history at rest: try again")
    merged = [name for name in names if is_merged(name)]
    runs = [name for name in names if not is_merged(name)]
    return Listing(tuple(folder / name for name in runs), tuple(folder / name for name in merged))


def _names(folder: Path) -> list[str]:
    names = []
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if is_of_a_history(entry.name):
                    names.append(entry.name)
                    # One that is gone was merged since: the second reading of the folder will not list it.
                    with suppress(FileNotFoundError):
                        found = entry.stat(follow_symlinks=False)
                        check_file(entry.path, plain=stat.S_ISREG(found.st_mode), size=found.st_size)
    except OSError as error:
        raise UsageError(f"{folder}: cannot be read as a history: {error.strerror}, expected a folder") from None
    check_count(folder, len(names))
    return sorted(names)


def is_of_a_history(name: str) -> bool:
    """Return whether a file of that name belongs to a history."""
    return _RUN.fullmatch(name) is not None


def is_merged(name: str) -> bool:
    """Return whether a history's file of that name holds many runs."""
    return name.startswith(_MERGED_PREFIX)


def check_count(where: object, files: int) -> None:
    """Raise UsageError where a history has more files than are read."""
    if files > FILES_AT_MOST:
        raise UsageError(f"{where}: found {files} files, expected at most {FILES_AT_MOST}")


def check_file(where: object, *, plain: bool, size: int) -> None:
    """Raise UsageError for what is not opened: only plain files are, no pipe to wait for, no link out of the folder.

    size: bytes.
    """
    if not plain:
        raise UsageError(f"{where}: found no plain file, expected one that --bandwidth-history wrote")
    if size > BYTES_OF_FILE_AT_MOST:
        raise UsageError(f"{where}: larger than {BYTES_OF_FILE_AT_MOST // 2**30} GiB, expected a run of a history")


def name_of_merged(runs: Sequence[Path]) -> str:
    """Return a merged file's name: it sorts by its oldest run, and two merges of the same runs share it."""
    digest = hashlib.sha256("\n".join(file.name for file in runs).encode()).hexdigest()[:16]
    return f"{_MERGED_PREFIX}{runs[0].stem[:60]}-{digest}.parquet"


def add(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a hidden file, and rename it to the target when it is on the disk."""
    with replacing(target, durable=True) as partial:
        write(partial)


def sweep(folder: Path) -> None:
    """Remove what processes that were killed long ago left half-written."""
    for entry in folder.iterdir():
        if _PARTIAL.fullmatch(entry.name):
            with suppress(OSError):
                if time.time() - entry.lstat().st_mtime > LEFTOVER_SECONDS:
                    entry.unlink()
