"""Turn a baseline file's bytes into checked text, before any parser sees it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.errors import BaselineError, Problem
from pytest_bandwidth.domain.text import INVISIBLE

MAX_FILE_BYTES = 512 * 2**20
MAX_PROBLEMS = 1000

_WANTED_BYTES = b"\t\n\r" + bytes(range(0x20, 0x7F)) + bytes(range(0x80, 0x100))
_LONE_RETURN = re.compile(r"\r(?!\n)")
_LONE_NEWLINE = re.compile(r"(?<!\r)\n")


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
            raise BaselineError([*_sorted(self.found), more])

    def last(self, line: int, message: str) -> BaselineError:
        """Return the error of all so far and this one, after which reading cannot go on."""
        return BaselineError(_sorted([*self.found, Problem(self.file, line, message)]))

    def raise_all(self) -> None:
        """Raise BaselineError, by line, where anything was found."""
        if self.found:
            raise BaselineError(_sorted(self.found))


def _sorted(problems: Sequence[Problem]) -> list[Problem]:
    return sorted(problems, key=lambda problem: (problem.line, problem.message))


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


def read_source(path: Path) -> SourceText:
    """Return a file's checked text. Raises BaselineError, with one problem, for what is no UTF-8 text or too large."""
    try:
        return decode(read_bytes(path, MAX_FILE_BYTES, "a baseline file"), Problems(str(path)))
    except FileNotFoundError:
        raise error(path, 0, "found no such file, expected a baseline: --bandwidth-update makes one") from None


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
                # One read of this size; asking for the limit would set that much memory aside.
                return stream.read(status.st_size + 1)
        finally:
            os.close(descriptor)
    except FileNotFoundError:
        raise
    except OSError as problem:
        message = f"found a file that cannot be read ({problem.strerror}), expected {expected}"
        raise error(path, 0, message) from None


def decode(data: bytes, problems: Problems) -> SourceText:
    """Return the checked text of a file's bytes. Raises BaselineError."""
    if data.startswith((b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf")):
        name = "UTF-8" if data[0] == 0xEF else "UTF-16"
        raise problems.last(1, f"found a byte order mark of {name}, expected plain UTF-8: save the file without one")
    if unwanted := data.translate(None, _WANTED_BYTES):
        at = data.index(unwanted[:1])
        message = f"found the byte 0x{unwanted[0]:02x}, expected text: this is no YAML file"
        raise problems.last(data.count(b"\n", 0, at) + 1, message)
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as problem:
        message = f"found the byte 0x{data[problem.start]:02x}, expected UTF-8 text"
        raise problems.last(data.count(b"\n", 0, problem.start) + 1, message) from None
    newline = "\n"
    if "\r" in text:
        text, newline = _with_unix_line_ends(text, problems), "\r\n"
    # Of ASCII, `_WANTED_BYTES` let pass nothing else that is invisible.
    if not data.isascii() and (match := INVISIBLE.search(text)):
        line = text.count("\n", 0, match.start()) + 1
        raise problems.last(line, f"found the character U+{ord(match[0]):04X}, expected visible text")
    return SourceText(text, newline)


def _with_unix_line_ends(text: str, problems: Problems) -> str:
    if text.count("\r") == text.count("\r\n") == text.count("\n"):
        return text.replace("\r\n", "\n")
    match = _LONE_RETURN.search(text) or _LONE_NEWLINE.search(text)
    assert match is not None  # the counts differ
    kind = "a lone carriage return" if match[0] == "\r" else "line ends of two kinds"
    line = text.count("\n", 0, match.start()) + 1
    raise problems.last(line, f"found {kind}, expected the same line ends throughout: convert the file")
