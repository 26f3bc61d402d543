"""Show what a long measurement is doing: one line on a terminal, in a log only what should last."""

from __future__ import annotations

import os
import shutil
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_bandwidth.reports.text_safe import printable, shortened, start_of, width_of

_START_OF_LINE = "\r\x1b[2K"
BAR_WIDTH = 30


def write_line(config: pytest.Config, text: str) -> None:
    """Write a line of its own among pytest's; nothing where pytest has no terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        # That knows of no text after `-q`.
        if (writer := config.get_terminal_writer()).width_of_current_line:
            writer.line()
        reporter.write_line(printable(text))
        reporter.flush()


class ProgressLine:
    """Write to the terminal behind pytest's output capture, over itself."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
        self._shows = reporter is not None and not hasattr(config, "workerinput")
        self._watched = self._shows and reporter.isatty and not os.environ.get("CI")
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._width = config.get_terminal_writer().fullwidth if self._watched else 0
        self._showing = False

    def show(self, test: str, text: str) -> None:
        """Show what `test` is doing, where a person watches."""
        if self._watched:
            # A long name gives way, down to a third of the line, then the text's end does.
            name, said, width = printable(test), printable(text), self._width - 1
            line = f"{shortened(name, max(width // 3, width - width_of(said) - 2))}: {said}"
            self._write(f"{_START_OF_LINE}{line if width_of(line) <= width else f'{start_of(line, width - 1)}…'}")
            self._showing = True

    def note(self, text: str) -> None:
        """Write a line that stays, where no person watches."""
        if self._shows and not self._watched:
            with self._uncaptured():
                write_line(self._config, text)

    def clear(self) -> None:
        """Take the line away, if there is one."""
        if self._showing:
            self._write(_START_OF_LINE)
            self._showing = False

    def _write(self, text: str) -> None:
        # Not through the reporter, which would count the line towards its own.
        with self._uncaptured():
            sys.stdout.write(text)
            sys.stdout.flush()

    def _uncaptured(self) -> AbstractContextManager[None]:
        return nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled()


@dataclass(frozen=True, slots=True)
class Progress:
    """Report what one test's measuring or judging is doing; without a line, do nothing."""

    test: str = ""
    line: ProgressLine | None = None

    def show(self, text: str) -> None:
        """Show a state that the next one replaces."""
        if self.line is not None:
            self.line.show(self.test, text)

    def note(self, text: str) -> None:
        """Keep a sentence in a log, such as a long wait."""
        if self.line is not None:
            self.line.note(f"bandwidth: {self.test} {text}")


class ConsoleProgress:
    """Write how far a command is to standard error; in a log nothing that moves. of: how many the bar is of."""

    def __init__(self, of: int = 1, command: str = "selftest") -> None:
        self._of = of
        self._command = command
        self._begun = time.monotonic()
        self._watched = sys.stderr.isatty()

    def bar(self, done: int) -> None:
        """Show on a terminal that so many processes are done."""
        filled = BAR_WIDTH * done // self._of
        left = (time.monotonic() - self._begun) / done * (self._of - done) if done else None
        text = "" if left is None else f", {left:.0f} s left"
        self.show(f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done}/{self._of}{text}")

    def show(self, text: str) -> None:
        """Show on a terminal what is going on."""
        if self._watched:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{_START_OF_LINE}{shortened(printable(text), width)}")

    def log(self, text: str) -> None:
        """Keep in a log what a terminal shows by `show`."""
        if not self._watched:
            self.note(text)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._write(f"pytest-bandwidth {self._command}: {printable(text)}\n")

    def clear(self) -> None:
        """Take away the line that is shown."""
        if self._watched:
            self._write(_START_OF_LINE)

    def _write(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)
