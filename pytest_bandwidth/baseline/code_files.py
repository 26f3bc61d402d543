"""Keep the code of a baseline's kernels in a folder of its own, each file named by its content's hash.

``code/HASH.ptx`` is a module with one kernel, in normal form. ``code/HASH.cubin`` is the machine code that NVRTC made
of a source, with all its kernels. ``code/HASH.files`` lists the files that identify a callable. Entries and devices
share files. A file is of use while it is what its name says. The plugin reads machine code to hash it, and only a GPU
runs it.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from pytest_bandwidth.baseline.locate import files_in, is_folder, is_named_as_baseline
from pytest_bandwidth.baseline.lock import locked, make_folder, replace_file
from pytest_bandwidth.baseline.reader import read
from pytest_bandwidth.baseline.runs import ATTRIBUTES, SUFFIX, path_of
from pytest_bandwidth.baseline.source import error
from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.code.identity import DIGITS, digest
from pytest_bandwidth.domain.code.machine_code import CUBIN, LARGEST_BYTES
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.errors import BaselineError, Problem

FOLDER = "code"
_NAME = re.compile(rf"[0-9a-f]{{{DIGITS}}}\.(?:ptx|cubin|files)", re.ASCII)
# The files that an entry's `code` names, by the ending. Few callables are identified by a list of files.
_NAMED_BY = {".ptx": "ptx", ".cubin": CUBIN, ".files": "function"}
_HOLDS = {".ptx": "PTX", ".cubin": "machine code", ".files": "list of files"}


def folder_of(baseline: Path) -> Path:
    """Return the folder of the code that belongs to a baseline file, and to all others beside it."""
    return baseline.parent / FOLDER


def is_written_by_updates(path: Path, baseline: Path) -> bool:
    """Return whether updates of a baseline, a file or a folder of them, write the file; both paths resolved."""
    of_folder = is_folder(baseline)
    if path.parent == (baseline / FOLDER if of_folder else folder_of(baseline)):
        return _NAME.fullmatch(path.name) is not None
    if of_folder:
        return path.parent == baseline and (is_named_as_baseline(path) or path.name.endswith((SUFFIX, ATTRIBUTES)))
    return path in (baseline, path_of(baseline), baseline.with_name(ATTRIBUTES))


def code_files(folder: Path) -> list[Path]:
    """Return the files of code in a folder of them. Raises OSError where it cannot be listed."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def write_code(baseline: Path, files: Mapping[str, bytes]) -> None:
    """Write files of code, by their name, that are not there as they should be; too large ones are left out.

    PTX that says to be in another version of the language is as it should be: what compilers differ in is no change.

    Call it under `locked(folder_of(baseline))`, until what names them is written. Raises BaselineError.
    """
    folder = folder_of(baseline)
    for name, data in files.items():
        path = folder / name
        if len(data) > LARGEST_BYTES or _is(path):
            continue
        make_folder(folder, path)
        replace_file(path, data)


def read_ptx(baseline: Path, name: str) -> str | None:
    """Return the PTX of that hash; None where there is none.

    Raises BaselineError for a file that is not what its name says, too large, or no file.
    """
    data = _checked(folder_of(baseline) / f"{name}.ptx")
    return None if data is None else data.decode("utf-8", "replace")


def needed_files(baseline: Path, name: str) -> str:
    """Return the list of files of that hash. Raises BaselineError for a file that is missing, or is not that list."""
    path = folder_of(baseline) / f"{name}.files"
    data = _checked(path)
    if data is None:
        raise _missing(path)
    return data.decode("utf-8", "replace")


def needed_ptx(baseline: Path, name: str) -> str:
    """Return the PTX of that hash. Raises BaselineError as `read_ptx` does, and where there is none."""
    found = read_ptx(baseline, name)
    if found is None:
        raise _missing(folder_of(baseline) / f"{name}.ptx")
    return found


def needed_cubin(baseline: Path, code: Mapping[str, str]) -> bytes | None:
    """Return the machine code that an entry's `code` names; None where it names none.

    Raises BaselineError where the file is missing, not what its name says, too large, or no file.
    """
    if CUBIN not in code:
        return None
    path = folder_of(baseline) / f"{code[CUBIN]}.cubin"
    found = _checked(path)
    if found is None:
        raise _missing(path)
    return found


def problems_of(baseline: Path, entries: Iterable[Entry]) -> list[Problem]:
    """Return what is wrong with the code of a baseline's entries, each file once; that one is missing is no problem."""
    problems: list[Problem] = []
    for name in sorted(file_names(entries)):
        try:
            _checked(folder_of(baseline) / name)
        except BaselineError as bad:
            problems += bad.problems
    return problems


def file_names(entries: Iterable[Entry]) -> set[str]:
    """Return the names of the files of code that entries name."""
    return {
        f"{entry.code[name]}{ending}" for entry in entries for ending, name in _NAMED_BY.items() if name in entry.code
    }


def unused_code(baseline: Path, without: Collection[str] = ()) -> list[Path]:
    """Return the files of code that no baseline beside this one names. without: keys of this one that shall not count.

    None where one of those baselines cannot be read: it may name any.
    """
    named: set[str] = set()
    try:
        there = code_files(folder_of(baseline))
        for file in files_in(baseline.parent) if there else []:
            found: Baseline = read(file).baseline
            gone = without if file == baseline else ()
            named |= file_names(entry for key, entry in found.entries.items() if key not in gone)
    except (OSError, BaselineError):
        return []
    return [path for path in there if path.name not in named]


def prune_code(baseline: Path) -> list[Path]:
    """Remove the files of code that no baseline beside this one names, and return them. Raises BaselineError."""
    if not unused_code(baseline):
        return []
    with locked(folder_of(baseline)):
        removed = unused_code(baseline)
        for path in removed:
            try:
                path.unlink(missing_ok=True)
            except OSError as problem:
                raise error(path, 1, f"found no way to remove it ({problem.strerror})") from None
    return removed


def _missing(path: Path) -> BaselineError:
    return BaselineError(f"found no {path}, commit it with the baseline")


def _checked(path: Path) -> bytes | None:
    """Return what a file of code holds; None where there is none. Raises BaselineError where it is not what it says."""
    what = _HOLDS[path.suffix]
    try:
        data = _read(path)
    except ValueError as problem:
        raise error(
            path, 1, f"found {problem}, expected a kernel's {what}: remove it, the next update writes it anew"
        ) from None
    if data is not None and _hash(path, data) != path.stem:
        raise error(
            path, 1, f"found {what} of another hash than its name says: remove it, the next update writes it anew"
        )
    return data


def _is(path: Path) -> bool:
    try:
        return _checked(path) is not None
    except BaselineError:
        return False


def _hash(path: Path, data: bytes) -> str:
    return ptx_digest(data.decode("utf-8", "replace")) if path.suffix == ".ptx" else digest(data)


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
        data = stream.read(LARGEST_BYTES + 1)
    if len(data) > LARGEST_BYTES:
        raise ValueError(f"more than {LARGEST_BYTES // 2**20} MiB")
    return data
