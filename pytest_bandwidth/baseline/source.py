"""Turn a baseline file's bytes into checked text, before any parser sees it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import BaselineError, Problem
from pytest_bandwidth.domain.text import INVISIBLE

MAX_FILE_BYTES = 512 * 2**20
MAX_PROBLEMS = 1000

_WANTED_BYTES = b"\t\n\r" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_LONE_RETURN = re.compile(r"\r(?!\n)")
_LONE_NEWLINE = re.compile(r"(?<!\r)\n")


class Unreadable(Exception):
    """Raised where reading cannot go on after this one problem."""

    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line
        self.message = message


class Problems:
    """Collect what is wrong with one file; bounded, so that a hostile file cannot fill memory."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.found: list[Problem] = []

    def add(self, line: int, message: str) -> None:
        """Note a problem. Raises BaselineError with all so far once there are too many to be worth reading."""
        self.found.append(Problem(self.file, line, message))
        if len(self.found) >= MAX_PROBLEMS:
            more = Problem(self.file, line, f"stopped here: the file has {MAX_PROBLEMS} problems or more")
            raise BaselineError([*self._sorted(), more])

    def raise_all(self) -> None:
        """Raise BaselineError, by line, where anything was found."""
        if self.found:
            raise BaselineError(self._sorted())

    def _sorted(self) -> list[Problem]:
        return sorted(self.found, key=lambda problem: (problem.line, problem.message))


@dataclass(frozen=True, slots=True)
class SourceText:
    """Hold a file's text with ``\\n`` line ends, and the line end that the file itself uses."""

    text: str
    newline: str = "\n"

    def encode(self, text: str) -> bytes:
        """Return the bytes of a new text in this file's own line ends."""
        return (text if self.newline == "\n" else text.replace("\n", self.newline)).encode("utf-8")


def error(path: Path | str, line: int, message: str) -> BaselineError:
    """Return the error of one problem; line: from 1, or 0 for the file as a whole."""
    return BaselineError([Problem(str(path), line, message)])


def listed(names: Iterable[str]) -> str:
    return ", ".join(sorted(names))


def read_source(path: Path) -> SourceText:
    """Return a file's checked text. Raises BaselineError, with one problem, for what is no UTF-8 text or too large."""
    try:
        # Non-blocking, so that a named pipe without a writer does not hold up the run.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        raise error(path, 0, "found no such file, expected a baseline: --bandwidth-update makes one") from None
    except OSError as problem:
        raise error(
            path, 0, f"found a file that cannot be opened ({problem.strerror}), expected a readable one"
        ) from None
    try:
        data = _regular_bytes(path, descriptor)
    except OSError as problem:
        raise error(
            path, 0, f"found a file that cannot be read ({problem.strerror}), expected a readable one"
        ) from None
    finally:
        os.close(descriptor)
    try:
        return decode(data)
    except Unreadable as problem:
        raise error(path, problem.line, problem.message) from None


def _regular_bytes(path: Path, descriptor: int) -> bytes:
    status = os.fstat(descriptor)
    if not stat.S_ISREG(status.st_mode):
        kind = "a folder" if stat.S_ISDIR(status.st_mode) else "a device or pipe"
        raise error(path, 0, f"found {kind}, expected a baseline file")
    if status.st_size > MAX_FILE_BYTES:
        raise error(path, 0, f"found {status.st_size} bytes, expected at most {MAX_FILE_BYTES}")
    with open(descriptor, "rb", closefd=False) as stream:
        # One read of this size; asking for the limit would set that much memory aside.
        return stream.read(status.st_size + 1)


def decode(data: bytes) -> SourceText:
    """Return the checked text of a file's bytes. Raises Unreadable."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        name = "UTF-8" if data[0] == 0xEF else "UTF-16"
        raise Unreadable(1, f"found a byte order mark of {name}, expected plain UTF-8: save the file without one")
    if unwanted := data.translate(None, _WANTED_BYTES):
        at = data.index(unwanted[:1])
        raise Unreadable(
            data.count(b"\n", 0, at) + 1, f"found the byte 0x{unwanted[0]:02x}, expected text: this is no YAML file"
        )
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        at = problem.start
        raise Unreadable(
            data.count(b"\n", 0, at) + 1, f"found the byte 0x{data[at]:02x}, expected UTF-8 text"
        ) from None
    source = _with_unix_line_ends(text)
    # Of ASCII, `_WANTED_BYTES` let pass nothing else that is invisible.
    if not data.isascii() and (match := INVISIBLE.search(source.text)):
        line = source.text.count("\n", 0, match.start()) + 1
        raise Unreadable(line, f"found the character U+{ord(match[0]):04X}, expected visible text")
    return source


def _with_unix_line_ends(text: str) -> SourceText:
    if "\r" not in text:
        return SourceText(text)
    returns, pairs = text.count("\r"), text.count("\r\n")
    if returns == pairs == text.count("\n"):
        return SourceText(text.replace("\r\n", "\n"), "\r\n")
    match = _LONE_RETURN.search(text) or _LONE_NEWLINE.search(text)
    assert match is not None  # the counts differ
    kind = "a lone carriage return" if match[0] == "\r" else "line ends of two kinds"
    line = text.count("\n", 0, match.start()) + 1
    raise Unreadable(line, f"found {kind}, expected the same line ends throughout: convert the file")
