"""Write files whole or not at all: a path holds the old content or the new, never a part.

No output replaces a file that this package did not write, or that has another form's ending.
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

# Errors of file systems that cannot, or must not, sync a folder. Any other error means that the disk fails.
_NO_SYNC_OF_FOLDERS = (errno.EINVAL, errno.ENOTSUP, errno.EROFS, errno.EACCES)
# A file names its writer within so many bytes.
_LOOKED_AT_BYTES = 4096


class NotOnDisk(OSError):
    """Raised where a file has its name, but may lose it at a power cut: the disk failed."""


def real_path(path: Path) -> Path:
    """Return the path without symbolic links; a path in a loop of links stays, and opening it fails.

    For such a loop `Path.resolve` raises RuntimeError before Python 3.13, and that is no OSError.
    """
    return Path(os.path.realpath(path))


@contextmanager
def replacing(path: Path, *, durable: bool = False, partial_name: str | None = None) -> Iterator[Path]:
    """Yield the path of a new hidden file in the folder of `path`; the file replaces `path` at the end of the block.

    After an exception the hidden file is removed, and `path` is unchanged.
    durable: also after a power cut; costs two waits for the disk. partial_name: the hidden file's name, for callers
    that hold a lock: the next writer overwrites the file of a killed one. By default each writer has its own name.
    Raises OSError that names `path`; NotOnDisk where `path` is written, but may be lost.
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
    """Write a file as `replacing` does, which documents the other parameters.

    mode: the file's, less the umask. keep: keep the mode and owner of the replaced file, and a link to it.
    A pipe or a device is opened and written: a replacement would put a regular file in the place of ``/dev/null``.
    """
    if path.exists() and not path.is_file():
        with open(path, "wb") as stream:
            stream.write(data)
        return
    target = real_path(path) if keep and path.is_symlink() else path
    with replacing(target, durable=durable, partial_name=partial_name) as partial:
        # A new file, never an existing one, nor a link's target.
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
    """Raise UsageError where the file that an option names is another program's, by its ending or its content.

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
            f"{option}: found {target}, which pytest-bandwidth did not write in this form, expected another file: this "
            "one would be lost"
        )
