"""Show the progress of a long measurement: in one line on a terminal; a log gets only lines that should last."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from pytest_bandwidth.reports.text_safe import printable, shortened, start_of, width_of

_START_OF_LINE = "\r\x1b[2K"


def write_line(config: pytest.Config, text: str) -> None:
    """Write a line of its own among pytest's; nothing where pytest has no terminal."""
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        # With `-q` it does not notice text on the line.
        if (writer := config.get_terminal_writer()).width_of_current_line:
            writer.line()
        reporter.write_line(printable(text))
        reporter.flush()


def uncaptured(config: pytest.Config) -> AbstractContextManager[None]:
    """Let output reach the terminal in spite of pytest's output capture."""
    capture: Any = config.pluginmanager.get_plugin("capturemanager")
    return nullcontext() if capture is None else capture.global_and_fixture_disabled()


def watched_terminal(config: pytest.Config) -> Callable[[str], None] | None:
    """Return a function that writes to a terminal with a user; None in CI, for a file or pipe, or an xdist worker."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is None or hasattr(config, "workerinput") or not reporter.isatty or os.environ.get("CI"):
        return None

    def write(text: str) -> None:
        # Not through the reporter, which would count the lines towards its own.
        with uncaptured(config):
            sys.stdout.write(text)
            sys.stdout.flush()

    return write


class ProgressLine:
    """Write one line to the terminal in spite of pytest's output capture; each text replaces the last one."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._write = watched_terminal(config)
        self._width = 0 if self._write is None else config.get_terminal_writer().fullwidth
        self._showing = False

    def show(self, test: str, text: str) -> None:
        """Show what `test` is doing, where a person watches."""
        if self._write is not None:
            # A long name is shortened first, down to a third of the line, then the text's end is cut.
            name, message, width = printable(test), printable(text), self._width - 1
            line = f"{shortened(name, max(width // 3, width - width_of(message) - 2))}: {message}"
            self._write(f"{_START_OF_LINE}{line if width_of(line) <= width else f'{start_of(line, width - 1)}…'}")
            self._showing = True

    def note(self, text: str) -> None:
        """Write a line that stays, where no person watches."""
        if self._write is None and not hasattr(self._config, "workerinput"):
            with uncaptured(self._config):
                write_line(self._config, text)

    def clear(self) -> None:
        """Remove the line, if there is one."""
        if self._write is not None and self._showing:
            self._write(_START_OF_LINE)
            self._showing = False


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
    """Write a command's progress to standard error; a log gets no moving lines."""

    def __init__(self, command: str) -> None:
        self._command = command
        self._watched = sys.stderr.isatty()

    def show(self, text: str) -> None:
        """Show a state on a terminal, which the next one replaces."""
        if self._watched:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{_START_OF_LINE}{shortened(printable(text), width)}")

    def log(self, text: str) -> None:
        """Write to a log a text that a terminal shows by `show`."""
        if not self._watched:
            self.note(text)

    def note(self, text: str) -> None:
        """Write a line that stays."""
        self.clear()
        self._write(f"pytest-bandwidth {self._command}: {printable(text)}\n")

    def clear(self) -> None:
        """Remove the line that is shown."""
        if self._watched:
            self._write(_START_OF_LINE)

    def _write(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)
