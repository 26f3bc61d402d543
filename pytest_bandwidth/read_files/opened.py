"""Note which files a test's process opens, and for whom: for a test, for a fixture, or for a module.

An audit hook of Python notes them. It is registered before the user's modules load, and ignores other events.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

from pytest_bandwidth.domain.code.identity import is_installed

_PACKAGE = __name__.partition(".")[0]
_MACHINERY = frozenset({"_pytest", "pytest", "pluggy", "xdist", "execnet", "coverage"})
_STARTS = frozenset({"subprocess.Popen", "os.system", "os.posix_spawn", "os.spawn", "os.exec"})
_CACHE = f"{os.sep}__pycache__{os.sep}"
_WRITES = os.O_WRONLY | os.O_TRUNC | os.O_CREAT

Signature = tuple[int, int, int, int]


@dataclass(slots=True)
class Noted:
    """Hold what was opened for one test, fixture or module. starts: a program that the user's code started."""

    files: set[str] = field(default_factory=set)
    libraries: set[str] = field(default_factory=set)
    starts: str | None = None

    def add(self, other: Noted) -> None:
        self.files |= other.files
        self.libraries |= other.libraries
        self.starts = self.starts or other.starts


class OpenedFiles:
    """Note the files that are opened below a folder.

    by_module: for the user's modules that were on the stack while no test ran, and for those being imported.
    first_seen: each file's size, time and inode when it was first opened. written: files that this process writes.
    """

    def __init__(self, root: str) -> None:
        self.root = os.path.realpath(root)
        self._roots = tuple(dict.fromkeys(os.path.join(path, "") for path in (root, self.root)))
        self._active: list[Noted] = []
        self._runs_tests = False
        # Path, flags and caller of each open since a test or set-up began: a kernel may open a file in every sample.
        self._again: set[tuple[str | bytes, int, int]] = set()
        self.by_module: dict[str, Noted] = {}
        self.by_fixture: dict[tuple[str, str], Noted] = {}
        self.of_test = Noted()
        self.first_seen: dict[str, Signature] = {}
        self.written: set[str] = set()

    def begin_test(self) -> None:
        """Forget the test before."""
        self._runs_tests = True
        self.of_test = Noted()
        self._active = [self.of_test]
        self._again.clear()

    @contextmanager
    def fixture(self, name: str, base: str) -> Iterator[None]:
        """Note the files that are opened meanwhile for a fixture, too. base: the start of its node ids."""
        noted = self.by_fixture.setdefault((name, base), Noted())
        self._active.append(noted)
        self._again.clear()
        try:
            yield
        finally:
            self._active.pop()
            self._again.clear()

    def audit(self, event: str, args: tuple[Any, ...]) -> None:
        """Handle an event of Python's audit hook."""
        if event == "open":
            self._opened(*args)
        elif event == "ctypes.dlopen":
            path = args[0]
            library = self._below(path) if isinstance(path, str) and os.sep in path else None
            if library is not None:
                self._see(library)
                for noted in self._concerned():
                    noted.files.add(library)
                    noted.libraries.add(library)
        elif event in _STARTS:
            frame = self._opening()
            if frame is not None and self._is_users(frame):
                program = str(args[0])[:200] if args else "a program"
                for noted in self._concerned():
                    noted.starts = noted.starts or program

    def note(self, path: str) -> None:
        """Note a file that the plugin reads for the test."""
        absolute = self._below(path)
        if absolute is not None:
            self._see(absolute)
            self.of_test.files.add(absolute)

    def _opened(self, path: object, _mode: object, flags: object) -> None:
        if not isinstance(path, (str, bytes)) or not isinstance(flags, int):
            return
        again = path, flags, id(sys._getframe(3).f_code)
        if again in self._again:
            return
        if self._runs_tests:
            self._again.add(again)
        absolute = self._below(os.fsdecode(path))
        if absolute is None:
            return
        if flags & _WRITES:
            if absolute not in self.first_seen:
                self.written.add(absolute)
        elif absolute not in self.written:
            if _CACHE in absolute and absolute.endswith(".pyc"):  # a compiled module: its source file
                folder, _, name = absolute.rpartition(_CACHE)
                absolute = os.path.join(folder, f"{name.partition(f'.{sys.implementation.cache_tag}')[0]}.py")
            self._see(absolute)
            for noted in self._concerned():
                noted.files.add(absolute)

    def _concerned(self) -> list[Noted]:
        """Return the notes to which a file belongs; empty where the plugin or pytest opens it for itself."""
        frame = self._opening()
        if frame is None or _is_machinery(frame):
            return []
        found = {id(noted): noted for noted in self._active}
        while frame is not None:
            importing = frame.f_code.co_name == "<module>"
            if (importing or not self._runs_tests) and self._is_users(frame):
                name = str(frame.f_globals.get("__name__"))
                noted = self.by_module.setdefault(name, Noted())
                found[id(noted)] = noted
            frame = frame.f_back
        return list(found.values())

    def _opening(self) -> FrameType | None:
        """Return the frame that opens a file: the innermost that is neither Python's own nor the hook's."""
        frame: FrameType | None = sys._getframe(1)
        while frame is not None:
            if frame.f_globals is not globals():
                name = str(frame.f_globals.get("__name__")).partition(".")[0]
                is_standard = name in sys.stdlib_module_names and name != "__main__"
                if not is_standard or self._is_users(frame):
                    return frame
            frame = frame.f_back
        return None

    def _is_users(self, frame: FrameType) -> bool:
        file = frame.f_code.co_filename
        return file.startswith(self._roots) and not is_installed(file) and not _is_machinery(frame)

    def normal(self, path: str) -> str:
        """Return an absolute path; below the root folder it begins with the root's path without links."""
        absolute = os.path.abspath(path)
        root = next((one for one in self._roots if absolute.startswith(one)), None)
        return absolute if root is None else os.path.join(self.root, absolute[len(root) :])

    def _below(self, path: str) -> str | None:
        for found in (self.normal(path), os.path.realpath(path)):
            if found.startswith(self._roots[-1]):
                return found
        return None

    def _see(self, path: str) -> None:
        if path not in self.first_seen and (found := signature_of(path)) is not None:
            self.first_seen[path] = found


def signature_of(path: str) -> Signature | None:
    """Return a file's size, time, inode and device; None for a missing file."""
    try:
        found = os.stat(path)
    except (OSError, ValueError):
        return None
    return found.st_size, found.st_mtime_ns, found.st_ino, found.st_dev


def _is_machinery(frame: FrameType) -> bool:
    name = str(frame.f_globals.get("__name__"))
    top = name.partition(".")[0]
    return top in _MACHINERY or (top == _PACKAGE and not name.startswith(f"{_PACKAGE}.suite."))


_watching: OpenedFiles | None = None


def watch(root: str) -> OpenedFiles:
    """Register the hook, once per process, since Python cannot remove it. Each call starts new notes."""
    global _watching
    first = _watching is None
    _watching = OpenedFiles(root)
    if first:
        sys.addaudithook(_audit)
    return _watching


def watching() -> OpenedFiles | None:
    """Return the notes of this process's files; None where `watch` was not called."""
    return _watching


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if event in _EVENTS and _watching is not None:
        _watching.audit(event, args)


_EVENTS = frozenset({"open", "ctypes.dlopen", *_STARTS})
