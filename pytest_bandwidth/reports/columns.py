"""Describe the figures of a result: the core's own columns, and what features and users add by a hook.

Terminal, Markdown, HTML and CSV walk the same list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import digits, format_bytes, format_percent, format_seconds
from pytest_bandwidth.domain.user_code import hooked
from pytest_bandwidth.outcomes.outcome import Outcome, number, text, whole
from pytest_bandwidth.reports.summary import signed_percent

Output = Literal["terminal", "markdown", "html", "csv", "details", "notes"]
_OUTPUTS = get_args(Output)
TABLES: tuple[Output, ...] = ("terminal", "markdown", "html", "csv")
# The axis of a change is in units of the allowed drop, so that the allowed band is equally wide in every row.
# It reaches three units to either side.
CHANGE_AXIS = 3.0
# How precisions are written in tags, in `precision=` and in parametrised test ids.
PRECISIONS = {
    **dict.fromkeys(("fp16-tensor", "fp16", "float16", "f16", "half"), "fp16"),
    **dict.fromkeys(("fp32", "float32", "f32", "single"), "fp32"),
}
# A larger gain is shown as a multiple.
_LARGEST_GAIN = 100.0


@dataclass(frozen=True, slots=True)
class SmallTable:
    """Hold a table that belongs to one result: its rows are finished text, or numbers; more: how many it leaves out."""

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[object]]
    more: int = 0


Value = str | int | float | SmallTable | None


def plain_text(value: Value) -> str:
    """Write a figure without a unit: 1,234 or 0.123."""
    if isinstance(value, int):
        return f"{value:,}"
    return digits(value) if isinstance(value, float) else str(value)


@dataclass(frozen=True, slots=True)
class Bar:
    """Draw a figure in its cell of the HTML table.

    kind: a ``share`` is a bar from 0 to 1, a ``change`` a mark on an axis whose middle third is the allowed band.
    of: returns the place, from 0 to 1; None for no drawing.
    """

    kind: Literal["share", "change"]
    of: Callable[[Outcome], float | None]


@dataclass(frozen=True, slots=True)
class Column:
    """Describe a figure of every result, and how reports show it.

    key: its name in the CSV. heading: its name for people. value: returns the figure of a result; None without one.
    text: formats a value for people. hint: the meaning of the figure. sort: returns the number by which the HTML table
    sorts texts.
    outputs: the reports that show it: ``terminal``, ``markdown``, ``html``, ``csv``; ``details`` is the HTML page's
    panel of a result, which can hold a `SmallTable` as well; ``notes`` is a line of the terminal with -v.
    narrow: for a terminal that is too narrow: the column moves ``below`` its row, is left ``out``, or is replaced by
    another column. usual: a text that needs no line below. bar: draws it in the HTML table.
    """

    key: str
    heading: str
    value: Callable[[Outcome], Value]
    text: Callable[[Any], str] = plain_text
    hint: str = ""
    outputs: Sequence[Output] = TABLES
    sort: Callable[[Outcome], float | None] | None = None
    narrow: Literal["stay", "below", "out"] | Column = "below"
    usual: str = ""
    bar: Bar | None = None

    def shown(self, outcome: Outcome) -> str:
        """Format the figure of a result for people; empty without one."""
        value = self.value(outcome)
        return "" if value is None else self.text(value)


def columns(output: Output) -> list[Column]:
    """Return the columns of a report: the core's own, then those of features and of users.

    An added column whose function raises has an empty cell there, so that no report is lost.
    """
    return [column for column in (*CORE, *map(_lenient, added_columns())) if output in column.outputs]


def added_columns() -> list[Column]:
    """Return the columns of features and users, unchanged. Raises UsageError for an invalid one."""
    added = hooked("pytest_bandwidth_columns", Column)
    known = {column.key for column in CORE}
    for column in added:
        found = f"pytest_bandwidth_columns: found the column {shown(column.key)}"
        if column.key in known:
            raise UsageError(f"{found} twice, expected a key of its own")
        if not isinstance(column.outputs, (tuple, list)) or not set(column.outputs) <= set(_OUTPUTS):
            raise UsageError(f"{found} with outputs={column.outputs!r}, expected a tuple of {', '.join(_OUTPUTS)}")
        if not all(isinstance(one, str) for one in (column.key, column.heading, column.hint, column.usual)):
            raise UsageError(f"{found}, expected texts as key, heading, hint and usual")
        if not callable(column.value) or not callable(column.text):
            raise UsageError(f"{found}, expected functions as value and text")
        known.add(column.key)
    return added


def check_figure(column: Column, outcome: Outcome) -> None:
    """Raise UsageError where an added column's figure of a result, or its text, is of another type than `Value`."""
    value = column.value(outcome)
    if not isinstance(value, Value):
        raise UsageError(
            f"the column {column.key!r}: found the figure {shown(value)}, expected a text, a number or None"
        )
    if not isinstance(value, SmallTable | None) and not isinstance(text := column.text(value), str):
        raise UsageError(f"the column {column.key!r}: found {shown(text)} as text of {shown(value)}, expected a text")


def _lenient(column: Column) -> Column:
    def value(outcome: Outcome) -> Value:
        with suppress(Exception):  # a user's function may raise any error
            return column.value(outcome)
        return None

    def text_of(value: Any) -> str:
        with suppress(Exception):  # a user's function may raise any error
            return str(column.text(value))
        return ""

    return replace(column, value=value, text=text_of)


def with_texts(columns: Iterable[Column], outcomes: Sequence[Outcome]) -> list[tuple[Column, list[str]]]:
    """Return each column that is not empty, with its texts: some are empty without a baseline or a peak."""
    cells = ((column, [column.shown(outcome) for outcome in outcomes]) for column in columns)
    return [(column, texts) for column, texts in cells if any(texts)]


def of_verdict(name: str) -> Callable[[Outcome], float | None]:
    """Return a function that reads a number from a result's verdict."""
    return lambda outcome: number(outcome.verdict, name)


def percent(value: float) -> str:
    return format_percent(value, 1)


def _peak_share(outcome: Outcome) -> float | None:
    return outcome.valid_utilization if outcome.utilization_of == "peak" else None


def sol_text(outcome: Outcome) -> str | None:
    """Format the share of the speed of light, and what limits the least time: 85.0 % by FLOP."""
    return None if outcome.valid_sol is None else f"{percent(outcome.valid_sol)} by {outcome.sol_by}"


def _share(outcome: Outcome) -> str | None:
    # For the probe, the judged share, from rounds, as in all other reports.
    shown = outcome.valid_relative if outcome.utilization_of == "probe" else outcome.valid_utilization
    return None if shown is None else f"{format_percent(shown)} of {outcome.utilization_of}"


def _change(outcome: Outcome) -> float | None:
    drop = number(outcome.verdict, "drop")
    return None if drop is None else -drop


def _change_mark(outcome: Outcome) -> float | None:
    drop, allowed = number(outcome.verdict, "drop"), number(outcome.verdict, "allowed_drop")
    if drop is None or allowed is None or allowed <= 0:
        return None
    return 0.5 + max(-1.0, min(1.0, -drop / allowed / CHANGE_AXIS)) / 2


def _change_text(change: float) -> str:
    # A typing error in a file must not give more digits than usual.
    return f"{change * 100:+.1f} %" if change < _LARGEST_GAIN else f"{1 + change:.3g}×"


def _against(outcome: Outcome) -> str | None:
    change, reference = _change(outcome), number(outcome.verdict, "reference")
    if change is None or reference is None:
        return None
    in_gbps = text(outcome.verdict, "figure") == "gbps"
    known = f"{digits(reference)} GB/s" if in_gbps else f"{format_percent(reference)} of probe"
    return f"{_change_text(change)} on {known}"


def precision_of(outcome: Outcome) -> str | None:
    """Return the precision by its usual name (fp32, fp16, …), from the tags, else as measured."""
    named = outcome.tags.get("precision", outcome.precision)
    return PRECISIONS.get(named.lower(), named.lower()) if isinstance(named, str) else None


def _operation(outcome: Outcome) -> str:
    named = outcome.tags.get("operation")
    if isinstance(named, str):
        return named
    test = outcome.nodeid.partition("[")[0].rsplit("::", 1)[-1]
    return test.removeprefix("test_")


def _size(name: str) -> Callable[[Outcome], int | None]:
    return lambda outcome: whole(outcome.tags.get(name))


def _data(key: str, value: Callable[[Outcome], Value]) -> Column:
    """Return a column of the CSV alone."""
    return Column(key, key, value, outputs=("csv",))


def _field(name: str) -> Column:
    """Return a column of the CSV alone, of a field of `Outcome`."""
    return _data(name, lambda outcome: getattr(outcome, name) or None)


CORE = (
    _data("operation", _operation),
    _data("precision", precision_of),
    *(_data(name, _size(name)) for name in ("M", "N", "K")),
    *(_field(name) for name in ("nodeid", "label", "status", "reason_code", "reason")),
    Column("bandwidth_gb_s", "GB/s", lambda outcome: outcome.gbps, digits, hint="achieved bandwidth", narrow="stay"),
    Column(
        "of_peak",
        "of peak",
        _peak_share,
        percent,
        hint="share of the device's peak bandwidth",
        outputs=("markdown", "html"),
        bar=Bar("share", _peak_share),
    ),
    _data("utilization", lambda outcome: outcome.valid_utilization),
    _data("utilization_of", lambda outcome: None if outcome.valid_utilization is None else outcome.utilization_of),
    _data("sol", lambda outcome: outcome.valid_sol),
    _data("sol_by", lambda outcome: None if outcome.valid_sol is None else outcome.sol_by),
    Column("share", "share", _share, outputs=("terminal",), narrow="stay"),
    Column(
        "speed_of_light",
        "speed of light",
        # With the declared bytes as the limit it is the share of the peak, which other columns show.
        lambda outcome: None if outcome.sol_by == "declared bytes" else sol_text(outcome),
        hint="least possible time for its bytes or FLOP ÷ measured time, if that is not the share of the peak",
        outputs=("terminal", "markdown", "html"),
        sort=lambda outcome: outcome.valid_sol,
    ),
    Column(
        "relative",
        "of probe",
        lambda outcome: outcome.valid_relative,
        percent,
        hint="share of the bandwidth that a plain read, write, copy or add reached in the same rounds",
        outputs=("markdown", "html", "csv"),
    ),
    _data("probe_gb_s", lambda outcome: outcome.probe_gbps),
    _data("noise", lambda outcome: outcome.noise),
    _data("samples", lambda outcome: len(outcome.samples)),
    _field("method"),
    _data("flop", lambda outcome: outcome.flop),
    _data("arithmetic_intensity", lambda outcome: outcome.arithmetic_intensity),
    _data("ridge_point", lambda outcome: outcome.ridge_point),
    _field("regime"),
    Column(
        "bound_by",
        "bound by",
        lambda outcome: (outcome.regime or "").removesuffix("-bound"),
        outputs=("terminal",),
        narrow="out",
    ),
    _data("judged_on", lambda outcome: text(outcome.verdict, "figure")),
    *(_data(name, of_verdict(name)) for name in ("observed", "reference", "drop")),
    Column(
        "change",
        "change",
        _change,
        signed_percent,
        hint="against the baseline; the band shows the allowed change",
        outputs=("markdown", "html"),
        bar=Bar("change", _change_mark),
    ),
    Column(
        "against",
        "against baseline",
        _against,
        outputs=("terminal",),
        narrow=Column(
            "change",
            "change",
            lambda outcome: None if number(outcome.verdict, "reference") is None else _change(outcome),
            _change_text,
            outputs=(),
            narrow="stay",
        ),
    ),
    Column("allowed_drop", "allowed drop", of_verdict("allowed_drop"), percent, outputs=("markdown", "csv")),
    Column(
        "detects",
        "detects",
        of_verdict("detects"),
        lambda drop: f"≥ {drop * 100:.1f} %",
        hint="the drop that is found 95 times in 100",
        narrow="stay",
    ),
    *(_data(name, of_verdict(name)) for name in ("tolerance", "runs")),
    _field("file"),
    _field("line"),
    Column(
        "time_ms",
        "time",
        lambda outcome: None if outcome.seconds is None else outcome.seconds * 1e3,
        lambda milliseconds: format_seconds(milliseconds / 1e3),
        hint="median seconds of one run",
        outputs=("html", "csv"),
    ),
    _data("bytes_read", lambda outcome: outcome.bytes_read),
    _data("bytes_written", lambda outcome: outcome.bytes_written),
    Column(
        "bytes_moved",
        "moved",
        lambda outcome: outcome.bytes_moved,
        format_bytes,
        hint="bytes read and written by one run",
        outputs=("html",),
    ),
)
