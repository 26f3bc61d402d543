"""Keep the PTX of a baseline's kernels beside it: ``code/HASH.ptx``, each a module with one kernel, in normal form.

Where files identify the code, their list is kept: ``code/HASH.files``.

Entries and devices share files: the hash is the content's. A file is of use only while it is what its name says.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.identity import DIGITS, digest
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.errors import BaselineError, Problem
from pytest_bandwidth.storage.baseline.locate import files_in, is_folder, is_named_as_baseline
from pytest_bandwidth.storage.baseline.lock import locked, make_folder, replace_file
from pytest_bandwidth.storage.baseline.reader import read
from pytest_bandwidth.storage.baseline.source import error

FOLDER = "code"
# The shipped kernels' are of 2 to 60 kB.
LARGEST_PTX_BYTES = 8 * 2**20
_NAME = re.compile(rf"([0-9a-f]{{{DIGITS}}})\.(?:ptx|files)", re.ASCII)


def folder_of(baseline: Path) -> Path:
    """Return the folder of the PTX that belongs to a baseline file, and to all others beside it."""
    return baseline.parent / FOLDER


def is_written_by_updates(path: Path, baseline: Path) -> bool:
    """Return whether updates of a baseline, a file or a folder of them, write the file; both paths resolved."""
    of_folder = is_folder(baseline)
    if path.parent == (baseline / FOLDER if of_folder else folder_of(baseline)):
        return _NAME.fullmatch(path.name) is not None
    if of_folder:
        return path.parent == baseline and is_named_as_baseline(path)
    return path == baseline


def write_ptx(baseline: Path, modules: Mapping[str, str]) -> None:
    """Write modules, by their hash, that are not there as they should be; too large ones are left out.

    One that says to be in another version of the language is as it should be: what compilers differ in is no change.

    Call it under `locked(folder_of(baseline))`, until what names them is written. Raises BaselineError.
    """
    folder = folder_of(baseline)
    for name, text in modules.items():
        path, data = folder / f"{name}.ptx", text.encode()
        if len(data) > LARGEST_PTX_BYTES or _is(path, name):
            continue
        make_folder(folder, path)
        replace_file(path, data)


def read_ptx(baseline: Path, name: str) -> str | None:
    """Return the module of that hash; None where there is none.

    Raises BaselineError for a file that is not what its name says, too large, or no file.
    """
    path = folder_of(baseline) / f"{name}.ptx"
    try:
        data = _read(path)
    except ValueError as problem:
        raise error(
            path, 1, f"found {problem}, expected a kernel's PTX: remove it, the next update writes it anew"
        ) from None
    if data is None:
        return None
    text = data.decode("utf-8", "replace")
    if ptx_digest(text) != name:
        raise error(path, 1, "found PTX of another hash than its name says: remove it, the next update writes it anew")
    return text


def write_files(baseline: Path, lists: Mapping[str, str]) -> None:
    """Write lists of files, by their hash, as `write_ptx` does modules. Raises BaselineError."""
    folder = folder_of(baseline)
    for name, text in lists.items():
        path, data = folder / f"{name}.files", text.encode()
        if len(data) > LARGEST_PTX_BYTES or _holds(path, data):
            continue
        make_folder(folder, path)
        replace_file(path, data)


def needed_files(baseline: Path, name: str) -> str:
    """Return the list of files of that hash. Raises BaselineError for a file that is missing, or is not that list."""
    path = folder_of(baseline) / f"{name}.files"
    try:
        data = _read(path)
    except ValueError as problem:
        raise error(path, 1, f"found {problem}, expected a list of files: remove it, then update again") from None
    if data is None:
        raise BaselineError(f"found no {path}, commit it with the baseline")
    text = data.decode("utf-8", "replace")
    if digest(text) != name:
        raise error(path, 1, "found another hash than its name says: remove it, the next update writes it anew")
    return text


def needed_ptx(baseline: Path, name: str) -> str:
    """Return the module of that hash. Raises BaselineError as `read_ptx` does, and where there is none."""
    found = read_ptx(baseline, name)
    if found is None:
        raise BaselineError(f"found no {folder_of(baseline) / f'{name}.ptx'}, commit it with the baseline")
    return found


def problems_of(baseline: Path, entries: Iterable[Entry]) -> list[Problem]:
    """Return what is wrong with the PTX of a baseline's entries, each file once; that one is missing is no problem."""
    problems: list[Problem] = []
    for name in sorted(ptx_hashes(entries)):
        try:
            read_ptx(baseline, name)
        except BaselineError as bad:
            problems += bad.problems
    return problems


def ptx_hashes(entries: Iterable[Entry]) -> set[str]:
    """Return the hashes of the PTX that entries name."""
    return {name for entry in entries if (name := entry.code.get("ptx")) is not None}


def file_hashes(entries: Iterable[Entry]) -> set[str]:
    """Return the hashes of callables' code that entries name: of some there is a list of files."""
    return {name for entry in entries if (name := entry.code.get("function")) is not None}


def unused_ptx(baseline: Path, without: Collection[str] = ()) -> list[Path]:
    """Return the files of code that no baseline beside this one names. without: keys of this one that shall not count.

    None where one of those baselines cannot be read: it may name any.
    """
    folder = folder_of(baseline)
    try:
        there = sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))
    except OSError:
        return []
    named: set[str] = set()
    try:
        for file in files_in(baseline.parent) if there else []:
            found: Baseline = read(file).baseline
            gone = without if file == baseline else ()
            held = [entry for key, entry in found.entries.items() if key not in gone]
            named |= ptx_hashes(held) | file_hashes(held)
    except BaselineError:
        return []
    return [path for path in there if path.stem not in named]


def prune_ptx(baseline: Path) -> list[Path]:
    """Remove the files of code that no baseline beside this one names, and return them. Raises BaselineError."""
    if not unused_ptx(baseline):
        return []
    with locked(folder_of(baseline)):
        removed = unused_ptx(baseline)
        for path in removed:
            try:
                path.unlink(missing_ok=True)
            except OSError as problem:
                raise error(path, 1, f"found no way to remove it ({problem.strerror})") from None
    return removed


def _holds(path: Path, data: bytes) -> bool:
    try:
        return _read(path) == data
    except ValueError:
        return False


def _is(path: Path, name: str) -> bool:
    try:
        data = _read(path)
    except ValueError:
        return False
    return data is not None and ptx_digest(data.decode("utf-8", "replace")) == name


def _read(path: Path) -> bytes | None:
    """Return a regular file's bytes; None where there is none. Raises ValueError for what is no such, or too large."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # a pipe would wait for its writer
    except FileNotFoundError:
        return None
    except OSError as problem:
        raise ValueError(f"a file that cannot be read ({problem.strerror})") from None
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise ValueError("no regular file")
    with open(descriptor, "rb") as stream:
        data = stream.read(LARGEST_PTX_BYTES + 1)
    if len(data) > LARGEST_PTX_BYTES:
        raise ValueError(f"more than {LARGEST_PTX_BYTES // 2**20} MiB")
    return data
