"""Read and replace a baseline's files: whole, one writer at a time; a failure is an error with one problem."""

from __future__ import annotations

import fcntl
import os
import socket
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from pytest_bandwidth.domain.errors import BaselineError, Problem
from pytest_bandwidth.storage.atomic import NotOnDisk, write_whole

LOCK_TIMEOUT_SECONDS = 60.0
_POLL_SECONDS = 0.01


def error(path: Path | str, line: int, message: str) -> BaselineError:
    """Return the error of one problem; line: from 1, or 0 for the file as a whole."""
    return BaselineError([Problem(str(path), line, message)])


def read_bytes(path: Path, most: int, expected: str) -> bytes:
    """Return a regular file's bytes. Raises BaselineError, with one problem, and FileNotFoundError."""
    try:
        # Non-blocking, so that a named pipe without a writer does not hold up the run.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if not stat.S_ISREG(status.st_mode):
                kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
                raise error(path, 0, f"found {kind}, expected {expected}")
            if status.st_size > most:
                raise error(path, 0, f"found {status.st_size} bytes, expected at most {most}")
            with open(descriptor, "rb", closefd=False) as stream:
                # One read of this size; a read of the limit would allocate that much memory.
                return stream.read(status.st_size + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as problem:
        message = f"found a file that cannot be read ({problem.strerror}), expected {expected}"
        raise error(path, 0, message) from None


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Hold the lock of a baseline file; the kernel releases it if this process dies.

    The lock file is in the baseline's folder, for all machines that share it. The release removes the file: otherwise
    it would stay in the user's repository. The package filelock is no alternative: depending on its version it leaves
    the file, or removes it without a check by waiting processes.
    Raises BaselineError where the folder cannot be written, or with the holder's name after the time-out.
    """
    lock = path.with_name(f".{path.name}.lock")
    descriptor = _acquire(path, lock)
    try:
        os.ftruncate(descriptor, 0)
        # For the message of a process that waits in vain; on a full disk it stays empty.
        with suppress(OSError):
            os.write(descriptor, f"process {os.getpid()} on {socket.gethostname()}".encode())
        yield
    finally:
        # Removed while held: waiting processes check whether their file is still the one in the folder.
        with suppress(OSError):
            os.unlink(lock)
        os.close(descriptor)


def _acquire(path: Path, lock: Path) -> int:
    deadline = time.monotonic() + LOCK_TIMEOUT_SECONDS
    while True:
        try:
            descriptor = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        except OSError as problem:
            raise not_writable(path, problem) from None
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with suppress(FileNotFoundError):
                if os.path.samestat(os.stat(lock, follow_symlinks=False), os.fstat(descriptor)):
                    return descriptor
        except BlockingIOError:
            if time.monotonic() >= deadline:
                holder = os.pread(descriptor, 200, 0).decode("utf-8", "replace") or "another process"
                os.close(descriptor)
                waited = f"for more than {LOCK_TIMEOUT_SECONDS:g} s"
                raise error(
                    path, 1, f"found it locked by {holder!r} {waited}, expected no other update: try later"
                ) from None
            time.sleep(_POLL_SECONDS)  # flock has no time-out: repeat it until the deadline
        except OSError as problem:
            os.close(descriptor)
            found = f"found a folder whose files cannot be locked ({problem.strerror})"
            raise error(path, 1, f"{found}, expected flock to work there") from None
        os.close(descriptor)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a file whole: at any moment, also after a power cut, the path holds the old bytes or the new.

    Mode and owner of the old file stay. Call it under `locked`.
    Raises BaselineError, with the old file untouched, where it cannot be written.
    """
    try:
        write_whole(path, data, keep=True, durable=True, partial_name=f".{path.name}.new")
    except NotOnDisk as problem:
        message = f"found that its disk failed ({problem.strerror}), expected the new file to be stored: check the disk"
        raise error(path, 1, message) from None
    except OSError as problem:
        raise not_writable(path, problem) from None


def make_folder(folder: Path, path: Path) -> None:
    """Make the folder of a new baseline. Raises BaselineError where that cannot be done."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        raise not_writable(path, problem) from None


def not_writable(path: Path, problem: OSError) -> Exception:
    """Return the error of a file that cannot be written."""
    found = f"found no way to write it ({problem.strerror})"
    return error(path, 1, f"{found}, expected a writable folder {path.parent}: nothing was changed")
