"""Store a history in a folder, where files are listed and added atomically, or in a bucket.

A run is one file, named by its id, and is never changed. Many are merged into one now and then (writing.py).

fsspec reaches a bucket by the implementation for its address. Credentials are those of the user's environment, as
always with fsspec. The content comes from elsewhere: only names of a history's files are taken, and each is joined to
the address here, not to the store's own prefix.

A copy of the bucket, which is read like any folder, is in this user's cache folder. A history's files never change,
so that each is fetched once. For another reader of the copy an update looks like a merge: new files appear whole, then
files disappear that the bucket no longer has.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
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
from pytest_bandwidth.storage.atomic import real_path, replacing, write_whole
from pytest_bandwidth.storage.own_folders import cache_folder, what_is_wrong

# A folder, or a bucket.
Place = Path | Address

FILES_AT_MOST = 100_000
BYTES_OF_FILE_AT_MOST = 2 * 2**30
# A later process removes a killed process's partial files after this time, when no process can still write them.
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
    """Return the folder at one moment. Raises UsageError where it is not a folder, or has files that no history has.

    A merge adds its file before it removes the merged ones, and reading a folder takes time: two equal readings have
    missed nothing.
    """
    before = _names(folder)
    for _ in range(LISTINGS_AT_MOST):
        names = _names(folder)
        if names == before:
            break
        before = names
    else:
        raise UsageError(f"{folder}: changes faster than it can be read, expected no run to write meanwhile: try again")
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
                    # A missing file was merged meanwhile: the second reading of the folder will not list it.
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
    """Raise UsageError for a file that is too large or not plain: a pipe could block, a link could leave the folder.

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
    """Remove the partial files of processes that were killed long ago."""
    for entry in folder.iterdir():
        if _PARTIAL.fullmatch(entry.name):
            with suppress(OSError):
                if time.time() - entry.lstat().st_mtime > LEFTOVER_SECONDS:
                    entry.unlink()


# ---- a bucket, and the copy of it ------------------------------------------------------------------------------------

MISSING = "a bucket's address needs fsspec: pip install 'pytest-bandwidth[bucket]'"
# An object store's PUT is whole or not at all, and its folders are only names. Any other store counts as a file
# system, on which a file is written under another name and renamed.
_OBJECT_STORES = frozenset({"s3", "s3a", "gs", "gcs", "az", "abfs", "abfss", "adl", "oci", "oss", "obs", "cos"})
# Requests mostly wait. Several threads may use asynchronous implementations only.
REQUESTS_AT_ONCE = 16
_LONGEST_ERROR = 300
LOCK_NAME = ".mirroring.lock"
ADDRESS_NAME = ".address"
# The longest wait for another process, which may fetch years of a fleet's runs.
LOCK_SECONDS = 600.0


class Bucket:
    """Access one address. Every error becomes a UsageError, one line that names the address without its secrets.

    address: as it was given.
    """

    def __init__(self, address: Address) -> None:
        if importlib.util.find_spec("fsspec") is None:
            raise UsageError(f"{address}: {MISSING}")
        if "::" in address.url:
            raise UsageError(f"{address}: found a chain of addresses, expected one: s3://bucket/history")
        if re.search("[?#]", address.url):
            # Some file systems treat it as a part of the folder's name, which would then show a secret.
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
        """List the names of a history's files; empty where the bucket exists and the folder does not yet."""
        return frozenset(self._entries())

    def sizes(self) -> dict[str, int]:
        """Return bytes by name of the files that `names` lists. Raises UsageError, also for files of no history."""
        entries = self._entries()
        check_count(self, len(entries))
        sizes = {}
        for name, entry in entries.items():
            size, plain = entry.get("size"), entry.get("type") == "file"
            if plain and not isinstance(size, int):
                raise UsageError(f"{self}/{name}: found no size, expected a store that gives the size of each file")
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
        """Copy the file into the bucket under that name, atomically."""
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
        """Return the store's details of each file of a history by name."""
        with self._in_one_line("cannot be listed"):
            self._files.invalidate_cache()
            try:
                entries = self._files.ls(self._root, detail=True)
            except FileNotFoundError as error:
                # fsspec's own error names the folder; a store's error for a missing bucket does not.
                if self._is_object_store and self._root not in str(error):
                    raise
                return {}
        found = {}
        for entry in entries:
            whole = str(entry["name"])
            # A folder made in a web console is an empty file whose name ends with a slash.
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
            # After an error, or Ctrl-C, the other requests are useless.
            pool.shutdown(cancel_futures=True)

    @contextmanager
    def _in_one_line(self, what: str) -> Iterator[None]:
        """Turn the errors of fsspec's implementations, of a dozen libraries, into a UsageError of one line."""
        try:
            with warnings.catch_warnings():
                # Warnings of those libraries: a user who turns warnings into errors means those of the user's code.
                warnings.simplefilter("ignore")
                yield
        except Exception as error:
            text = " ".join(str(error).split()) or type(error).__name__
            if isinstance(error, TimeoutError):
                text = f"no answer in time ({text})"
            shown = self.address.without_secrets(text)[:_LONGEST_ERROR]
            raise UsageError(f"{self}: {what}: {shown}") from error


@contextmanager
def mirrored(address: Address) -> Iterator[Path]:
    """Yield a folder with the bucket's files. Raises UsageError, which names the address, not the folder."""
    bucket = Bucket(address)
    with locked_copy(address, LOCK_SECONDS) as folder:
        fetch_all(bucket, folder)
    with naming(address, folder):
        yield folder


@contextmanager
def locked_copy(address: Address, seconds: float) -> Iterator[Path]:
    """Yield the folder for the address's copy, made if it is missing, and locked against other processes.

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
    """Replace the folder by the address in errors that name the folder, or a file of it."""
    try:
        yield
    except UsageError as error:
        raise UsageError(str(error).replace(str(folder), str(address))) from None


def fetch_all(bucket: Bucket, folder: Path) -> None:
    """Make the folder's files those of the bucket. Raises UsageError, OSError.

    A listing takes several requests. A merge between two of them may hide runs, whose merged file the next listing has.
    If a file of one listing is missing in the next, a merge was in progress.
    """
    seen: set[str] | None = None
    for _ in range(LISTINGS_AT_MOST):
        sizes = bucket.sizes()
        with os.scandir(folder) as entries:
            known = {entry.name: entry.stat().st_size for entry in entries if is_of_a_history(entry.name)}
        wanted = {name: size for name, size in sizes.items() if known.get(name) != size}
        whole = bucket.fetch(wanted, folder)
        if whole and seen is not None and seen <= sizes.keys():
            for name in known.keys() - sizes.keys():
                (folder / name).unlink(missing_ok=True)
            sweep(folder)
            return
        seen = set(sizes)
    raise UsageError(f"{bucket}: changes faster than it can be read, expected no run to write meanwhile: try again")


def _folder_for(address: Address) -> Path:
    """Return the folder of the address's copy, by the name without secrets: a new key is not a new history."""
    top = real_path(cache_folder())
    folder = top / "history" / hashlib.sha256(str(address).encode()).hexdigest()[:16]
    try:
        top.parent.mkdir(parents=True, exist_ok=True)
        for one in (top, folder.parent, folder):
            if (wrong := what_is_wrong(one)) is not None:
                raise UsageError(
                    f"{address}: {one}, the folder of copies, is not this user's alone ({wrong}): remove it, or set "
                    "XDG_CACHE_HOME"
                )
        if not (folder / ADDRESS_NAME).exists():
            write_whole(folder / ADDRESS_NAME, f"{address}\n".encode(), mode=0o600)
    except OSError as error:
        raise UsageError(
            f"{address}: cannot be copied to {folder}: {error.strerror}, expected a folder to write in: "
            "set XDG_CACHE_HOME"
        ) from None
    return folder
