"""A line that shows what a long measurement is doing; where nobody watches, only what a log should hold."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest

from pytest_bandwidth.reports.text_safe import printable, shortened

_START_OF_LINE = "\r\x1b[2K"


class Progress:
    """Writes to the terminal behind pytest's output capture, over itself."""

    def __init__(self, config: pytest.Config) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        writer = None if reporter is None or hasattr(config, "workerinput") else config.get_terminal_writer()
        self._reporter = reporter if writer is not None else None
        watched = writer is not None and writer._file.isatty() and not os.environ.get("CI")
        self._writer = writer if watched else None
        self._capture = config.pluginmanager.get_plugin("capturemanager")
        self._showing = False

    def teller(self, test: str) -> Callable[[str], None]:
        """A function that shows what `test` is doing."""
        return lambda text: self._show(printable(test), printable(text))

    def noter(self, test: str) -> Callable[[str], None]:
        """A function that writes to the log what `test` is doing, where no line shows it."""
        return lambda text: self._note(f"bandwidth: {test} {text}")

    def clear(self) -> None:
        """Takes the line away, if there is one."""
        if self._showing:
            self._write(_START_OF_LINE)
            self._showing = False

    def _show(self, test: str, text: str) -> None:
        if self._writer is not None:
            self._write(f"{_START_OF_LINE}{_line_of(test, text, self._writer.fullwidth - 1)}")
            self._showing = True

    def _note(self, text: str) -> None:
        if self._writer is None and self._reporter is not None:
            with self._uncaptured():
                self._reporter.ensure_newline()
                self._reporter.write_line(printable(text))
                self._reporter.flush()

    def _write(self, text: str) -> None:
        writer: Any = self._writer
        with self._uncaptured():
            writer._file.write(text)
            writer._file.flush()

    def _uncaptured(self) -> AbstractContextManager[None]:
        return nullcontext() if self._capture is None else self._capture.global_and_fixture_disabled()


def _line_of(test: str, text: str, width: int) -> str:
    """Both in one line: a long name gives way, down to a third of it, then the text's end does."""
    line = f"{shortened(test, max(width // 3, width - len(text) - 2))}: {text}"
    return line if len(line) <= width else f"{line[: width - 1]}…"
