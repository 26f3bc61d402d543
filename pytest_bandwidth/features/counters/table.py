"""Read a profiler's CSV defensively: rows of one width, numbers with their units, all of it bounded."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.features.counters.dram_traffic import CountersFailed

MOST_CHARACTERS = 64 * 2**20
MOST_ROWS = 200_000
MOST_CELLS = 2_000
LARGEST = 2.0**62
# With separators of thousands or without; ncu has no others whatever the locale.
_NUMBER = re.compile(r"(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]{1,20})(?:\.[0-9]{1,20})?(?:[eE][+-]?[0-9]{1,2})?")
_FEWER = "measure fewer kernels at once"


class TableFault(CountersFailed):
    """Raised for what no table of a profiler holds; `table_of` says whose table it is, and what to do.

    remedy: that of this fault; "" where another release of the profiler may have a table that can be read.
    """

    def __init__(self, found: str, remedy: str = "") -> None:
        super().__init__(found)
        self.remedy = remedy


@contextmanager
def table_of(program: str, text: str, product: str) -> Iterator[None]:
    """Name the program in what is wrong with its table, with the remedy. product: what it is installed with.

    Raises CountersFailed for it, and for a text that is too long.
    """
    try:
        if len(text) > MOST_CHARACTERS:
            raise TableFault(f"found {len(text)} characters, expected at most {MOST_CHARACTERS}", _FEWER)
        yield
    except TableFault as fault:
        remedy = fault.remedy or f"try another release of {product}, or --bandwidth-counters=off"
        raise CountersFailed(f"{program}'s table: {fault}; {remedy}") from None


def rows_of(lines: Iterable[str]) -> list[list[str]]:
    """Return the cells of every line that is not blank. Raises TableFault for what is no CSV, or too much."""
    rows: list[list[str]] = []
    try:
        for row in csv.reader(lines, strict=True):
            if row:
                rows.append(row)
            if len(rows) > MOST_ROWS or len(row) > MOST_CELLS:
                raise TableFault(f"found more than {MOST_ROWS} rows or {MOST_CELLS} columns, expected fewer", _FEWER)
    except csv.Error as error:
        raise TableFault(f"found a line that is no CSV ({error}), expected the profiler's table") from None
    return rows


def checked_width(row: Sequence[str], header: Sequence[str]) -> None:
    """Raise TableFault unless a row has the header's columns."""
    if len(row) != len(header):
        raise TableFault(
            f"found a row of {len(row)} cells ({shown(','.join(row))}), expected the header's {len(header)}"
        )


def positions(header: Sequence[str], names: Iterable[str]) -> dict[str, int]:
    """Return where each column stands. Raises TableFault where one is missing or there twice."""
    found: dict[str, int] = {}
    for name in names:
        if header.count(name) != 1:
            number = "no" if name not in header else "more than one"
            raise TableFault(f"found {number} column {name!r} in {shown(','.join(header))}, expected one")
        found[name] = header.index(name)
    return found


def number_of(text: str, what: str) -> float:
    """Return a number that is not negative. Raises TableFault for anything else; what: names it there."""
    stripped = text.strip()
    value = float(stripped.replace(",", "")) if _NUMBER.fullmatch(stripped) else math.nan
    if not 0 <= value <= LARGEST:
        raise TableFault(f"found {what} {shown(text)}, expected a number that is not negative")
    return value
