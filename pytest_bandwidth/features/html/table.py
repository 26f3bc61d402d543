"""Lay out the table of the HTML summary: its columns, and each result as a row of finished text."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_bandwidth.domain.units import digits, format_bytes, format_percent, format_seconds
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.features.traffic.accesses_text import accesses_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.attention import Severity, attention_key, severity_of
from pytest_bandwidth.reports.summary import signed_percent
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.reports.values import number, text
from pytest_bandwidth.storage.saved_run import RunDocument

NAME_AT_MOST = 160
# With 5,000 rows in groups of 50, Chromium sorts in a quarter of the time that one group takes.
GROUP_ROWS = 50
CellKind = Literal["plain", "share", "change"]
# The change is drawn in units of the allowed drop, so that leaving the band looks alike in every row.
# The axis reaches to three times of it on either side.
CHANGE_AXIS = 3.0


@dataclass(frozen=True, slots=True)
class Cell:
    """Hold a cell. text: as shown; sort: its number, None where there is none; mark: of the little drawing.

    mark of a share: 0 … 1 of the bar; of a change: 0 … 1 of an axis whose middle third is what is allowed.
    """

    text: str
    sort: float | None = None
    mark: float | None = None


@dataclass(frozen=True, slots=True)
class Column:
    """Hold a column. key: name in the page's data; hint: what the figure means, for titles and screen readers."""

    key: str
    title: str
    hint: str
    kind: CellKind
    width: str
    cell: Callable[[Outcome], Cell]


@dataclass(frozen=True, slots=True)
class Row:
    """Hold one result. index: its place in the document; anchor: the element's id, alike in every run of the test."""

    index: int
    anchor: str
    status: str
    severity: Severity
    name: str
    place: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """Hold rows in order of attention, and the columns that hold anything at all."""

    columns: tuple[Column, ...]
    rows: tuple[Row, ...]

    @property
    def groups(self) -> list[tuple[Row, ...]]:
        """Return rows in groups that a browser lays out only when they come into sight."""
        return [self.rows[start : start + GROUP_ROWS] for start in range(0, len(self.rows), GROUP_ROWS)]


def table_of(run: RunDocument) -> Table:
    """Return the table of a run."""
    columns = [(column, [column.cell(outcome) for outcome in run.outcomes]) for column in COLUMNS]
    filled = [(column, cells) for column, cells in columns if any(cell.sort is not None for cell in cells)]
    anchors = _anchors(run.outcomes)
    rows = [
        _row(run, index, outcome, anchors[index], tuple(cells[index] for _, cells in filled))
        for index, outcome in enumerate(run.outcomes)
    ]
    rows.sort(key=lambda row: attention_key(run.outcomes[row.index], strict=run.strict))
    return Table(tuple(column for column, _ in filled), tuple(rows))


def _row(run: RunDocument, index: int, outcome: Outcome, anchor: str, cells: tuple[Cell, ...]) -> Row:
    place, _, test = outcome.nodeid.partition("::")
    if not test:
        place, test = "", outcome.nodeid
    name = f"{test} @ {outcome.label}" if outcome.label else test
    status = Status[outcome.status]
    return Row(
        index=index,
        anchor=anchor,
        status=outcome.status,
        severity=severity_of(status, strict=run.strict),
        name=one_line(name, NAME_AT_MOST) or "(unnamed)",
        place=one_line(place, NAME_AT_MOST),
        cells=cells,
    )


def _anchors(outcomes: Sequence[Outcome]) -> list[str]:
    seen: dict[str, int] = {}
    anchors = []
    for outcome in outcomes:
        digest = hashlib.sha256(outcome.key.encode("utf-8", "replace")).hexdigest()[:10]
        seen[digest] = count = seen.get(digest, 0) + 1
        anchors.append(f"t-{digest}" if count == 1 else f"t-{digest}-{count}")
    return anchors


def _bandwidth(outcome: Outcome) -> Cell:
    return _figure(outcome.gbps, digits)


def _peak_share(outcome: Outcome) -> Cell:
    if outcome.utilization_of != "peak":
        return Cell("–")
    return _share(outcome.valid_utilization)


def _probe_share(outcome: Outcome) -> Cell:
    return _share(outcome.valid_relative)


def _change(outcome: Outcome) -> Cell:
    drop, allowed = number(outcome.verdict, "drop"), number(outcome.verdict, "allowed_drop")
    if drop is None:
        return Cell("–")
    mark = None
    if allowed is not None and allowed > 0:
        mark = 0.5 + max(-1.0, min(1.0, -drop / allowed / CHANGE_AXIS)) / 2
    return Cell(signed_percent(-drop), -drop, mark)


def _detects(outcome: Outcome) -> Cell:
    return _figure(number(outcome.verdict, "detects"), lambda v: format_percent(v, 1))


def _time(outcome: Outcome) -> Cell:
    return _figure(outcome.seconds, format_seconds)


def _moved(outcome: Outcome) -> Cell:
    return Cell(format_bytes(outcome.bytes_moved), float(min(outcome.bytes_moved, 10**18)))


def _sectors(outcome: Outcome) -> Cell:
    """Return the worst access of a kernel whose traffic was counted."""
    known = [number(access, "sectors_per_request") for _, access in accesses_of(outcome.detail)]
    return _figure(max((s for s in known if s is not None), default=None), digits)


def _access(outcome: Outcome) -> Cell:
    """Return the patterns of loads, stores and atomics, said once where they agree; sorted by how bad the worst is."""
    found = [text(access, "pattern") for _, access in accesses_of(outcome.detail)]
    shown = " / ".join(dict.fromkeys(one_line(pattern, 40) for pattern in found if pattern))
    return Cell(shown or "–", _sectors(outcome).sort if shown else None)


def _dram(outcome: Outcome) -> Cell:
    if outcome.dram_read is None or outcome.dram_written is None:
        return Cell("–")
    moved = outcome.dram_read + outcome.dram_written
    ratio = "" if outcome.dram_ratio is None else f" ({outcome.dram_ratio:.2f}×)"
    return Cell(f"{format_bytes(moved)}{ratio}", float(min(moved, 10**18)))


def _figure(value: float | None, show: Callable[[float], str]) -> Cell:
    return Cell("–") if value is None else Cell(show(value), value)


def _share(value: float | None) -> Cell:
    if value is None:
        return Cell("–")
    return Cell(format_percent(value, 1), value, max(0.0, min(1.0, value)))


COLUMNS = (
    Column("gbps", "GB/s", "achieved bandwidth", "plain", "4rem", _bandwidth),
    Column("peak", "of peak", "share of the device's peak bandwidth", "share", "7.6rem", _peak_share),
    Column(
        "probe",
        "of probe",
        "share of what a plain read, write, copy or add reached in the same rounds",
        "plain",
        "4.5rem",
        _probe_share,
    ),
    Column("change", "change", "against the baseline; the band is what is allowed", "change", "9rem", _change),
    Column("detects", "detects", "the drop that is found 95 times in 100", "plain", "3.6rem", _detects),
    Column("time", "time", "median seconds of one run", "plain", "4.8rem", _time),
    Column(
        "sectors",
        "sect./req.",
        "most 32-byte sectors that a load or store asks for per request",
        "plain",
        "4.8rem",
        _sectors,
    ),
    Column(
        "access",
        "access",
        "how neighbouring threads' addresses lie: loads / stores / atomics",
        "plain",
        "15rem",
        _access,
    ),
    Column("moved", "moved", "bytes read and written by one run", "plain", "4.8rem", _moved),
    Column("dram", "DRAM", "bytes that DRAM moved, by hardware counters, and ÷ the declared", "plain", "8rem", _dram),
)
