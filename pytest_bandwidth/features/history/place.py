"""Keep a history where it lies: in a folder, whose files are listed and added whole; or in a bucket.

A run is one file, named by its id, and is never changed. Many are merged into one now and then (writing.py).

A bucket is reached by fsspec, which finds what knows the address. Credentials are those of the user's environment, as
always with fsspec. The content comes from elsewhere: only names of a history's files are taken, and each is joined to
the address here, not to the store's own prefix.

A copy of the bucket, which is read as any folder is, lies in this user's cache folder. A history's files never change,
so that each is fetched once. Who reads the copy at the same time sees a folder in which others merge: new files appear
whole, then those go that the bucket no longer has.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import stat
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.domain.units import format_bytes
from pytest_bandwidth.storage.atomic import real_path, replacing, write_whole
from pytest_bandwidth.storage.own_folders import cache_folder, what_is_wrong

# A folder, or a bucket.
Place = Path | Address

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


# ---- a bucket, and the copy of it ------------------------------------------------------------------------------------

MISSING = "a bucket's address needs fsspec: pip install 'pytest-bandwidth[bucket]'"
# An object store's PUT is whole or not at all, and its folders are only names. Anything else is taken for a file
# system, on which a file is written under another name and renamed.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "obs", "cos"})
# A request is mostly waiting. Implementations that are no asynchronous ones may not be used by several threads.
REQUESTS_AT_ONCE = 16
_LONGEST_ERROR = 300
LOCK_NAME = ".mirroring.lock"
ADDRESS_NAME = ".address"
# Another process that fetches years of a fleet's runs is waited for so long.
LOCK_SECONDS = 600.0


class Bucket:
    """Reach one address. Whatever goes wrong is a UsageError, one line that names the address without its secrets.

    address: as it was given.
    """

    def __init__(self, address: Address) -> None:
        if importlib.util.find_spec("fsspec") is None:
            raise UsageError(f"{address}: {MISSING}")
        if "::" in address.url:
            raise UsageError(f"{address}: found a chain of addresses, expected one: s3://bucket/history")
        if re.search("[?#]", address.url):
            # Some file systems take it for a part of the folder's name, which would then show a secret.
            raise UsageError(f"{address}: found a query or fragment, expected none: credentials are the environment's")
        if not address.url.partition("://")[2].strip("/"):
            raise UsageError(f"{address}: found no folder, expected an address like s3://bucket/history")
        from fsspec.core import url_to_fs

        self.address, self._root = address, ""
        with self._in_one_line("cannot be opened"):
            self._files, root = url_to_fs(address.url)
        self._root = root.rstrip("/")
        protocol = self._files.protocol
        named = {protocol} if isinstance(protocol, str) else set(protocol)
        self._is_object_store = not _OBJECT_STORES.isdisjoint(named)

    def __str__(self) -> str:
        return str(self.address)

    def names(self) -> frozenset[str]:
        """List the names of a history that are taken; none where there is no folder yet, in a bucket that is there."""
        return frozenset(self._entries())

    def sizes(self) -> dict[str, int]:
        """List the history's files as `names` does: bytes by name. Raises UsageError for what no history holds, too."""
        entries = self._entries()
        check_count(self, len(entries))
        sizes = {}
        for name, entry in entries.items():
            size, plain = entry.get("size"), entry.get("type") == "file"
            if plain and not isinstance(size, int):
                raise UsageError(f"{self}/{name}: found no size, expected a store that tells how large its files are")
            sizes[name] = int(size or 0)
            check_file(f"{self}/{name}", plain=plain, size=sizes[name])
        return sizes

    def fetch(self, sizes: Mapping[str, int], folder: Path) -> bool:
        """Copy files into a folder, each whole or not at all; return False if one was removed or changed."""

        def fetch_one(name: str) -> bool:
            try:
                with replacing(folder / name) as partial:
                    self._files.get_file(f"{self._root}/{name}", str(partial))
                    if partial.stat().st_size != sizes[name]:
                        raise FileNotFoundError(name)
            except FileNotFoundError:
                return False
            return True

        with self._in_one_line("cannot be read"):
            return all(self._each(fetch_one, sizes))

    def put(self, file: Path, name: str) -> None:
        """Give a copy of the file that name: it is there whole or not at all."""
        target = f"{self._root}/{name}"
        with self._in_one_line("cannot be written to"):
            if self._is_object_store:
                self._files.put_file(str(file), target)
                return
            self._files.makedirs(self._root, exist_ok=True)
            partial = f"{self._root}/.{name}.{os.urandom(4).hex()}.partial"
            try:
                self._files.put_file(str(file), partial)
                self._files.mv(partial, target)
            except BaseException:
                with suppress(Exception):
                    self._files.rm_file(partial)
                raise

    def remove(self, names: Iterable[str]) -> None:
        """Remove files; some may be gone already."""

        def remove_one(name: str) -> None:
            with suppress(FileNotFoundError):
                self._files.rm_file(f"{self._root}/{name}")

        with self._in_one_line("cannot be removed from"):
            self._each(remove_one, names)

    def _entries(self) -> dict[str, Mapping[str, Any]]:
        """Return what the store says of each name of a history."""
        with self._in_one_line("cannot be listed"):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._root, detail=True)
            except FileNotFoundError as error:
                # fsspec's own error names the folder; that of a store which has not the bucket does not.
                if self._is_object_store and self._root not in str(error):
                    raise
                return {}
        found = {}
        for entry in entries:
            whole = str(entry["name"])
            # What a console makes as a folder is an empty file whose name ends with a slash.
            if entry.get("type") == "file" and whole.lstrip("/") == self._root.lstrip("/"):
                raise UsageError(f"{self}: found a file, expected a folder for the history")
            name = whole.rstrip("/").rpartition("/")[2]
            if is_of_a_history(name):
                found[name] = entry
        return found

    def _each(self, call: Callable[[str], object], names: Iterable[str]) -> list[object]:
        pool = ThreadPoolExecutor(REQUESTS_AT_ONCE if getattr(self._files, "async_impl", False) else 1)
        try:
            return list(pool.map(call, names))
        finally:
            # After an error, or Ctrl-C, nobody needs the others.
            pool.shutdown(cancel_futures=True)

    @contextmanager
    def _in_one_line(self, what: str) -> Iterator[None]:
        """Turn the errors of fsspec's implementations, of a dozen libraries, into a UsageError of one line."""
        try:
            with warnings.catch_warnings():
                # Of those libraries: where the user makes errors of warnings, they are of the user's code.
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, TimeoutError):
                text = f"no answer in time ({text})"
            said = self.address.without_secrets(text)[:_LONGEST_ERROR]
            raise UsageError(f"{self}: {what}: {said}") from error


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
        with os.scandir(folder) as entries:
            known = {entry.name: entry.stat().st_size for entry in entries if is_of_a_history(entry.name)}
        wanted = {name: size for name, size in sizes.items() if known.get(name) != size}
        needed, free = sum(wanted.values()), shutil.disk_usage(folder).free
        if needed > free:
            raise UsageError(
                f"{bucket}: found {format_bytes(needed)} to fetch, expected no more than the {format_bytes(free)} that "
                f"are free for {folder}: set XDG_CACHE_HOME"
            )
        whole = bucket.fetch(wanted, folder)
        if whole and seen is not None and seen <= sizes.keys():
            for name in known.keys() - sizes.keys():
                (folder / name).unlink(missing_ok=True)
            sweep(folder)
            return
        seen = set(sizes)
    raise UsageError(f"{bucket}: changes faster than it can be read, expected a history at rest: try again")


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
