"""Show how far the self-test's processes are, on standard error: a line of a terminal, or what a log keeps."""

from __future__ import annotations

import shutil
import sys
import time

from pytest_bandwidth.reports.text_safe import printable, shortened

BAR_WIDTH = 30
_START_OF_LINE = "\r\x1b[2K"


class Progress:
    """Show nothing that moves where nobody watches. of: how many processes there are to be."""

    def __init__(self, of: int) -> None:
        self._of = of
        self._begun = time.monotonic()
        self._watched = sys.stderr.isatty()

    def bar(self, done: int) -> None:
        """On a terminal: so many processes are done."""
        filled = BAR_WIDTH * done // self._of
        left = (time.monotonic() - self._begun) / done * (self._of - done) if done else None
        text = "" if left is None else f", {left:.0f} s left"
        self.show(f"[{'#' * filled}{'.' * (BAR_WIDTH - filled)}] {done}/{self._of}{text}")

    def show(self, text: str) -> None:
        """On a terminal: what is going on."""
        if self._watched:
            width = shutil.get_terminal_size().columns - 1
            self._write(f"{_START_OF_LINE}{shortened(printable(text), width)}")

    def log(self, text: str) -> None:
        """In a log: what a terminal shows by `show`."""
        if not self._watched:
            self.note(text)

    def note(self, text: str) -> None:
        """Return a line that stays."""
        self.clear()
        self._write(f"pytest-bandwidth selftest: {printable(text)}\n")

    def clear(self) -> None:
        """Take away the line that is shown."""
        if self._watched:
            self._write(_START_OF_LINE)

    def _write(self, text: str) -> None:
        print(text, end="", file=sys.stderr, flush=True)
