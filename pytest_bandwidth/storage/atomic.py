"""Write files whole or not at all: a path holds what was there before or what is new, never a part.

No output goes over a file which this package did not write, or that has another form's ending.
"""

from __future__ import annotations

import errno
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError

# What file systems that cannot sync a folder, or may not, answer. Anything else is a disk that fails.
_NO_SYNC_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EACCES)
# Where a file says what wrote it.
_LOOKED_AT_BYTES = 4096


class NotOnDisk(OSError):
    """Raised where a file has its name, but a power cut may take that away again: the disk failed."""


def real_path(path: Path) -> Path:
    """Return the path without symbolic links; one of a loop of links stays, for what opens it to refuse.

    `Path.resolve` raises RuntimeError for such a loop before Python 3.13, which is no OSError.
    """
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path: Path, *, durable: bool = False, partial_name: str | None = None) -> Iterator[Path]:
    """Give the path of a hidden file beside `path`, not there yet; what is written to it becomes `path` in the end.

    After an exception the hidden file is gone and `path` as it was.
    durable: also after a power cut; costs two waits for the disk. partial_name: of the hidden file, for callers that
    hold a lock: what a killed writer left is then overwritten by the next. Without, each writer's is its own.
    Raises OSError that names `path`; NotOnDisk with `path` written.
    """
    partial = path.parent / (partial_name or f".{path.name}.{os.urandom(4).hex()}.partial")
    try:
        if partial_name is not None:
            partial.unlink(missing_ok=True)
        yield partial
        if durable:
            _sync(partial)
        os.replace(partial, path)
    except BaseException as problem:
        with suppress(OSError):
            partial.unlink()
        if isinstance(problem, OSError) and str(problem.filename) == str(partial):
            raise OSError(problem.errno, problem.strerror, str(path)) from problem
        raise
    if durable:
        try:
            _sync(path.parent)  # a rename is on the disk when its folder is
        except OSError as problem:
            if problem.errno not in _NO_SYNC_OF_FOLDERS:
                raise NotOnDisk(problem.errno, problem.strerror, str(path.parent)) from None


def write_whole(
    path: Path,
    data: bytes,
    *,
    mode: int = 0o666,
    keep: bool = False,
    durable: bool = False,
    partial_name: str | None = None,
) -> None:
    """Write a file in the manner of `replacing`, which says the rest.

    mode: the file's, less the umask. keep: mode and owner of the file that is replaced stay, and so does a link to it.
    A pipe or a device is written to; replacing it would leave the machine with a file for a ``/dev/null``.
    """
    if path.exists() and not path.is_file():
        with open(path, "wb") as stream:
            stream.write(data)
        return
    target = real_path(path) if keep and path.is_symlink() else path
    with replacing(target, durable=durable, partial_name=partial_name) as partial:
        # A new file, never one that somebody laid there, nor what a link leads to.
        descriptor = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as stream:
            if keep:
                with suppress(FileNotFoundError):
                    old, new = os.stat(target), os.fstat(descriptor)
                    if (old.st_uid, old.st_gid) != (new.st_uid, new.st_gid):
                        with suppress(PermissionError):
                            os.fchown(descriptor, old.st_uid, old.st_gid)
                    os.fchmod(descriptor, stat.S_IMODE(old.st_mode))
            stream.write(data)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class FileForm:
    """Describe files of one form: the endings that they may have, and a regular expression for how they begin."""

    endings: tuple[str, ...]
    begins: str


HTML = FileForm((".html", ".htm"), r'<!doctype html>(?s:.*)<meta name="generator" content="pytest-bandwidth">')


def refuse_foreign(option: str, target: Path, form: FileForm) -> None:
    """Raise UsageError where the file that an option names is another program's, by its ending or by what it holds.

    A file without an ending, an empty one, a pipe and a device may be written to.
    """
    ending, is_file = target.suffix, target.is_file()
    if ending and ending.lower() not in form.endings and (is_file or not target.exists()):
        raise UsageError(f"{option}: found {target} with the ending {ending}, expected {' or '.join(form.endings)}")
    if not is_file:
        return
    with target.open("rb") as file:
        held = file.read(_LOOKED_AT_BYTES).decode("latin-1")
    if held and not re.match(form.begins, held):
        raise UsageError(
            f"{option}: found {target}, which pytest-bandwidth did not write in this form, expected another file: it "
            "would be lost"
        )
