"""Keep a copy of a history in a bucket, in this user's cache folder, so that it is read as any folder is.

A history's files never change, so that each is fetched once. Who reads the copy at the same time sees a
folder in which others merge: new files appear whole, then those go that the bucket no longer has.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.features.history.store.bucket import Bucket
from pytest_bandwidth.features.history.store.files import LISTINGS_AT_MOST, is_of_a_history, sweep
from pytest_bandwidth.storage.atomic import real_path, write_whole
from pytest_bandwidth.storage.own_folders import cache_folder, what_is_wrong

LOCK_NAME = ".mirroring.lock"
ADDRESS_NAME = ".address"
# Another process that fetches years of a fleet's runs is waited for so long.
LOCK_SECONDS = 600.0


@contextmanager
def mirrored(address: Address) -> Iterator[Path]:
    """Give a folder that holds what the bucket holds. Raises UsageError, which names the address, not the folder."""
    bucket = Bucket(address)
    with locked_copy(address, LOCK_SECONDS) as folder:
        fetch_all(bucket, folder)
    with naming(address, folder):
        yield folder


@contextmanager
def locked_copy(address: Address, seconds: float) -> Iterator[Path]:
    """Give the folder for the address's copy, made if it is missing, which no other process changes.

    Raises filelock's Timeout where `seconds` is 0 and another process holds it; UsageError.
    """
    folder = _folder_for(address)
    lock = FileLock(folder / LOCK_NAME, timeout=seconds, mode=0o600)
    try:
        lock.acquire()
    except Timeout:
        if not seconds:
            raise
        raise UsageError(f"{address}: another process has been fetching it for {seconds:.0f} s: try again") from None
    try:
        with naming(address, folder):
            yield folder
    finally:
        lock.release()


@contextmanager
def naming(address: Address, folder: Path) -> Iterator[None]:
    """Let errors that name the folder, or a file of it, name the address in its place."""
    try:
        yield
    except UsageError as error:
        raise UsageError(str(error).replace(str(folder), str(address))) from None


def fetch_all(bucket: Bucket, folder: Path) -> None:
    """Make the folder hold what the bucket holds. Raises UsageError, OSError.

    A listing takes several requests. A merge that comes between two of them may hide runs, whose merged file the next
    listing has: what one listing has, the next must have too, or a merge went on.
    """
    seen: set[str] | None = None
    for _ in range(LISTINGS_AT_MOST):
        sizes = bucket.sizes()
        known = _sizes_in(folder)
        wanted = {name: size for name, size in sizes.items() if known.get(name) != size}
        _check_room(bucket, folder, sum(wanted.values()))
        whole = bucket.fetch(wanted, folder)
        if whole and seen is not None and seen <= sizes.keys():
            for name in known.keys() - sizes.keys():
                (folder / name).unlink(missing_ok=True)
            sweep(folder)
            return
        seen = set(sizes)
    raise UsageError(f"{bucket}: changes faster than it can be read, expected a history at rest: try again")


def _sizes_in(folder: Path) -> dict[str, int]:
    with os.scandir(folder) as entries:
        return {entry.name: entry.stat().st_size for entry in entries if is_of_a_history(entry.name)}


def _check_room(bucket: Bucket, folder: Path, needed: int) -> None:
    free = shutil.disk_usage(folder).free
    if needed > free:
        raise UsageError(
            f"{bucket}: found {format_bytes(needed)} to fetch, expected no more than the {format_bytes(free)} that are "
            f"free for {folder}: set XDG_CACHE_HOME"
        )


def _folder_for(address: Address) -> Path:
    """Return the folder of the address's copy. By its name without secrets: a new key is no new history."""
    top = real_path(cache_folder())
    folder = top / "history" / hashlib.sha256(str(address).encode()).hexdigest()[:16]
    try:
        top.parent.mkdir(parents=True, exist_ok=True)
        for one in (top, folder.parent, folder):
            if (wrong := what_is_wrong(one)) is not None:
                raise UsageError(
                    f"{address}: {one} is not a folder of this user's, for copies that nobody else writes to "
                    f"({wrong}): remove it, or set XDG_CACHE_HOME"
                )
        if not (folder / ADDRESS_NAME).exists():
            write_whole(folder / ADDRESS_NAME, f"{address}\n".encode(), mode=0o600)
    except OSError as error:
        raise UsageError(
            f"{address}: cannot be copied to {folder}: {error.strerror}, expected a folder to write in: "
            "set XDG_CACHE_HOME"
        ) from None
    return folder
