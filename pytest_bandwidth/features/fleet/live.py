"""Show what every card of a fleet does, while it does: a table that is written over itself, where a person watches."""

from __future__ import annotations

import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import Any

import pytest

from pytest_bandwidth.domain.units import format_seconds
from pytest_bandwidth.features.fleet.cards import Seen
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable, start_of

HEADINGS = ("node", "card", "state", "last test", "time")
_UP_AND_CLEAR = "\x1b[{lines}F\x1b[J"


class LiveTable:
    """Hold what stands on the terminal now. write: takes text for it; None where nobody watches."""

    def __init__(self, write: Callable[[str], None] | None, size: Callable[[], tuple[int, int]]) -> None:
        self._write, self._size = write, size
        self._lines = 0

    @property
    def watched(self) -> bool:
        return self._write is not None

    def show(self, seen: Sequence[Seen], ended: Sequence[Seen]) -> None:
        """Write the table over the last one: the cards that run, those that wait, then those that have ended."""
        if self._write is None:
            return
        width, height = self._size()
        lines = table_of(seen, ended, width, height)
        back = _UP_AND_CLEAR.format(lines=self._lines) if self._lines else ""
        self._lines = len(lines)
        self._write(back + "".join(f"{line}\n" for line in lines))

    def clear(self) -> None:
        """Take the table away, so that what is written next stands where it began."""
        if self._write is not None and self._lines:
            self._write(_UP_AND_CLEAR.format(lines=self._lines))
            self._lines = 0


def table_of(seen: Sequence[Seen], ended: Sequence[Seen], width: int, height: int) -> list[str]:
    """Return the table in so many columns and rows of the terminal; what has no room is counted."""
    ordered = [*sorted(seen, key=lambda one: one.state), *reversed(ended)]
    room = max(1, height - 3)
    lines = aligned(HEADINGS, [_row(one) for one in ordered[:room]], left=("card", "state", "last test"))
    if left_out := ordered[room:]:
        found = Counter(one.state for one in left_out)
        lines.append(f"… and {', '.join(f'{count} {state}' for state, count in sorted(found.items()))}")
    return [start_of(printable(line), width - 1) for line in lines]


def live_table(config: pytest.Config) -> LiveTable:
    """Return the table for pytest's terminal; one that shows nothing in CI, in a file or a pipe."""
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    capture: Any = config.pluginmanager.get_plugin("capturemanager")

    def write(text: str) -> None:
        # Not through the reporter, which would count the lines towards its own.
        with nullcontext() if capture is None else capture.global_and_fixture_disabled():
            sys.stdout.write(text)
            sys.stdout.flush()

    watched = reporter is not None and reporter.isatty and not os.environ.get("CI")
    return LiveTable(write if watched else None, shutil.get_terminal_size)


def _row(one: Seen) -> tuple[str, ...]:
    card = one.card.name.removeprefix(one.card.node).strip()
    return one.card.node, card, one.state, one.test, format_seconds(one.seconds) if one.seconds else ""
