"""Keep the code of a baseline's kernels in a folder of its own, and show how a kernel's code differs from it.

``code/HASH.ptx`` is a module with one kernel, in normal form. ``code/HASH.cubin`` is the machine code that NVRTC made
of a source, with all its kernels. ``code/HASH.files`` lists the files that identify a callable. Entries and devices
share files. A file is valid while its content has the hash in its name. The plugin reads machine code only to hash it;
a GPU runs it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.baseline.files import error, locked, make_folder, read_bytes, replace_file
from pytest_bandwidth.baseline.locate import files_in, is_folder, is_named_as_baseline
from pytest_bandwidth.baseline.reader import read
from pytest_bandwidth.baseline.runs import ATTRIBUTES, SUFFIX, path_of
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import DIGITS, digest, file_list_of
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource, ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import CUBIN, LARGEST_BYTES, access_changes, ptx_diff
from pytest_bandwidth.domain.errors import BandwidthError, BaselineError, Problem
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.text import listed

FOLDER = "code"
_NAME = re.compile(rf"[0-9a-f]{{{DIGITS}}}\.(?:ptx|cubin|files)", re.ASCII)
# The name in an entry's `code`, by its file's ending. Few callables are identified by a list of files.
_NAMED_BY = {".ptx": "ptx", ".cubin": CUBIN, ".files": "function"}
_HOLDS = {".ptx": "PTX", ".cubin": "machine code", ".files": "list of files"}
# So many changed files are named.
MOST_NAMED = 3


def folder_of(baseline: Path) -> Path:
    """Return the folder of the code that belongs to a baseline file and to all others in its folder."""
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
    """Return the code files in a folder. Raises OSError where it cannot be listed."""
    return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name))


def write_code(baseline: Path, files: Mapping[str, bytes]) -> None:
    """Write files of code, by their name, that are missing or invalid; leave out too large ones.

    PTX that declares another version of the language is valid: compilers differ in it, which is no change.

    Hold `locked(folder_of(baseline))` until the baseline that names the files is written. Raises BaselineError.
    """
    folder = folder_of(baseline)
    for name, data in files.items():
        path, held = folder / name, None
        with suppress(BaselineError):
            held = _checked(path)
        if held is None and len(data) <= LARGEST_BYTES:
            make_folder(folder, path)
            replace_file(path, data)


@dataclass(frozen=True, slots=True)
class KeptCode:
    """Read the code that a baseline's entries name.

    Raises BaselineError for a file that is missing, or does not have the hash in its name.
    """

    baseline: Path

    def ptx(self, name: str) -> str:
        """Return the PTX of that hash."""
        return self._needed(f"{name}.ptx").decode("utf-8", "replace")

    def files(self, name: str) -> str:
        """Return the list of files of that hash."""
        return self._needed(f"{name}.files").decode("utf-8", "replace")

    def cubin(self, code: Mapping[str, str]) -> bytes | None:
        """Return the machine code that an entry's `code` names; None without such a name."""
        return self._needed(f"{code[CUBIN]}.cubin") if CUBIN in code else None

    def _needed(self, name: str) -> bytes:
        path = folder_of(self.baseline) / name
        if (data := _checked(path)) is None:
            raise BaselineError(f"found no {path}, commit it with the baseline")
        return data


def problems_of(baseline: Path, entries: Iterable[Entry]) -> list[Problem]:
    """Return the problems of the code files of a baseline's entries, each file once; a missing file is no problem."""
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
    """Return the code files that no baseline in the folder names. without: keys of this baseline that do not count.

    Empty where one of the baselines cannot be read: it may name any file.
    """
    named: set[str] = set()
    try:
        there = code_files(folder_of(baseline))
        for file in files_in(baseline.parent) if there else []:
            gone = without if file == baseline else ()
            named |= file_names(entry for key, entry in read(file).baseline.entries.items() if key not in gone)
    except (OSError, BaselineError):
        return []
    return [path for path in there if path.name not in named]


def prune_code(baseline: Path) -> list[Path]:
    """Remove the code files that no baseline in the folder names, and return them. Raises BaselineError."""
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


def _checked(path: Path) -> bytes | None:
    """Return a code file's content; None for a missing file. Raises BaselineError where its name has another hash."""
    what = _HOLDS[path.suffix]
    try:
        data = read_bytes(path, LARGEST_BYTES, f"a kernel's {what}")
        found = ptx_digest(data.decode("utf-8", "replace")) if path.suffix == ".ptx" else digest(data)
        if found != path.stem:
            raise error(path, 1, f"found {what} whose hash differs from its name")
    except FileNotFoundError:
        return None
    except BaselineError as bad:
        message = f"{bad.problems[0].message}: remove it, the next update writes it again"
        raise error(path, 1, message) from None
    return data


@dataclass(frozen=True, slots=True)
class CodeChange:
    """Describe how code changed; empty where it did not.

    diff: for people; accesses: the changes of loads and stores, in words; unknown: why both are missing. files: the
    changed files, in words, where files identify the code.
    """

    diff: str = ""
    accesses: str | None = None
    unknown: str | None = None
    files: str | None = None


NO_CHANGE = CodeChange()


def code_change(
    measurement: Measurement,
    entry: Entry | None,
    old_ptx: PtxSource | None,
    old_files: Callable[[str], str] | None = None,
) -> CodeChange:
    """Compare the kernel's PTX, or the files that identify it, with those that the entry names.

    old_ptx, old_files: read the entry's; None where that is impossible.
    """
    if measurement.files is not None:
        then = None if entry is None else entry.code.get("function")
        if old_files is None or then is None or measurement.code.function == then:
            return NO_CHANGE
        try:
            changes = file_list_of(measurement.files).changes_since(file_list_of(old_files(then)))
        except (BandwidthError, ValueError) as error:
            return CodeChange(unknown=f"the code changed; the changed files cannot be shown: {error}")
        return CodeChange(diff="\n".join(changes), files=listed(changes, MOST_NAMED))
    then = None if entry is None else entry.code.get("ptx")
    if old_ptx is None or then is None or measurement.ptx is None or measurement.code.ptx == then:
        return NO_CHANGE
    now = measurement.ptx
    return ptx_change(lambda: old_ptx(then), lambda: now)


def ptx_change(old: Callable[[], str], new: Callable[[], str]) -> CodeChange:
    """Compare the PTX of two kernels, each as a function that reads it, or raises BandwidthError."""
    try:
        then, now = old(), new()
    except BandwidthError as error:
        return CodeChange(unknown=f"the code changed; the changes cannot be shown: {error}")
    return CodeChange(ptx_diff(then, now), access_changes(then, now))
