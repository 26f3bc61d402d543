"""Keep the history's folder: tell which files belong to it, and add one whole or not at all.

A run is one file, named by its id, and is never changed. Many of them are merged into one now and then: `merging`.
"""

from __future__ import annotations

import os
import re
import stat
import time
from collections.abc import Callable
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
    merged = [name for name in names if name.startswith(_MERGED_PREFIX)]
    runs = [name for name in names if not name.startswith(_MERGED_PREFIX)]
    return Listing(tuple(folder / name for name in runs), tuple(folder / name for name in merged))


def _names(folder: Path) -> list[str]:
    try:
        with os.scandir(folder) as entries:
            names = sorted(_checked(entry) for entry in entries if _RUN.fullmatch(entry.name))
    except OSError as error:
        raise UsageError(f"{folder}: cannot be read as a history: {error.strerror}, expected a folder") from None
    if len(names) > FILES_AT_MOST:
        raise UsageError(f"{folder}: found {len(names)} files, expected at most {FILES_AT_MOST}")
    return names


def _checked(entry: os.DirEntry[str]) -> str:
    """Return the entry's name; only plain files are opened: no pipe to wait for, no link out of the folder."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:  # merged and removed since; the second reading of the folder will not list it
        return entry.name
    if not stat.S_ISREG(found.st_mode):
        raise UsageError(f"{entry.path}: found no plain file, expected one that --bandwidth-history wrote")
    if found.st_size > BYTES_OF_FILE_AT_MOST:
        raise UsageError(f"{entry.path}: larger than {BYTES_OF_FILE_AT_MOST // 2**30} GiB, expected a run of a history")
    return entry.name


def run_file(folder: Path, run_id: str) -> Path:
    return folder / f"{run_id}.parquet"


def merged_file(folder: Path, first_run: str, digest: str) -> Path:
    """Return a merged file's name: it sorts by its oldest run, and two merges of the same runs share it."""
    return folder / f"{_MERGED_PREFIX}{first_run[:60]}-{digest}.parquet"


def add(target: Path, write: Callable[[Path], None]) -> None:
    """Let `write` fill a hidden file beside the target and gives it the name when it is on the disk."""
    with replacing(target, durable=True) as partial:
        write(partial)


def sweep(folder: Path) -> None:
    """Remove what processes that were killed long ago left half-written."""
    for entry in folder.iterdir():
        if _PARTIAL.fullmatch(entry.name):
            with suppress(OSError):
                if time.time() - entry.lstat().st_mtime > LEFTOVER_SECONDS:
                    entry.unlink()
