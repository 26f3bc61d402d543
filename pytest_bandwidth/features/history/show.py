"""Show trends of a history and the cards of its fleet, answer SQL over it, and add saved runs to it."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from pytest_bandwidth.cli.baseline.files import matching
from pytest_bandwidth.cli.output import print_json, terminal_width, write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.cards import (
    CARD_HEADINGS,
    CARD_WORDS,
    CardTrends,
    card_rows,
    card_trend,
    cards_plain,
    drift_lines,
    render_card_trends,
    series_of_cards,
)
from pytest_bandwidth.features.history.change_points import Search
from pytest_bandwidth.features.history.store import History, append, ask, known_runs
from pytest_bandwidth.features.history.store.queries import CardDays, card_days_in, names_in, series_in, tests_in
from pytest_bandwidth.features.history.trend import Measured, Series, Trend, measured_of, trend_of
from pytest_bandwidth.features.history.trend_texts import (
    COMMIT_HEADINGS,
    FIGURE_WORDS,
    OVERVIEW_HEADINGS,
    bars,
    commit_rows,
    overview_row,
    summary_of,
    trend_plain,
)
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.own_documents import HTML
from pytest_bandwidth.storage.saved_run import load_run

BARS_WIDE = 100


def show(options: argparse.Namespace, newest: int, search: Search) -> int:
    """Return trends as a page, JSON, one by one or in a table. newest: runs of each test; search: for change points."""
    measured = _measured(options, newest)

    def changed() -> list[Trend]:
        starts = search([(one.values, one.figure == "sectors") for one in measured])
        return [trend_of(one, places) for one, places in zip(measured, starts, strict=True)]

    if options.output is not None:
        return _write_page(options.output, measured, changed)
    trends = changed()
    if options.json:
        print_json({"trends": [trend_plain(trend) for trend in trends]})
    elif len(trends) == 1 or options.tests:
        print("\n\n".join("\n".join(_lines(trend, options.commits)) for trend in trends))
    else:
        rows = [overview_row(trend) for trend in trends]
        print("\n".join(aligned(OVERVIEW_HEADINGS, rows, left=("device", "commit", "trend"), width=terminal_width())))
    return 0


def _write_page(output: Path, measured: Sequence[Measured], changed: Callable[[], Sequence[Trend]]) -> int:
    from pytest_bandwidth.features.history.page import render_history

    write_output(output, render_history(measured, changed), HTML)
    return 0


def _lines(trend: Trend, commits: int) -> list[str]:
    """Return a trend for the terminal: its name, a sentence, its bars, and its newest commits."""
    rows = commit_rows(trend)
    left_out = len(rows) - commits
    width = terminal_width() or BARS_WIDE
    return [
        printable(f"{trend.series.test}  on  {trend.series.device}"),
        printable(summary_of(trend)),
        f"{FIGURE_WORDS[trend.figure]}, the oldest run first: {bars(trend.values, max(8, min(width, BARS_WIDE) - 42))}",
        *([f"… {left_out} commits before (--commits N shows more)"] if left_out > 0 else []),
        *aligned(COMMIT_HEADINGS, rows[-commits:], left=("commit",)),
    ]


def _measured(options: argparse.Namespace, newest: int) -> list[Measured]:
    def series(history: History) -> list[Series]:
        names = names_in(history, newest, options.device)
        wanted = set(matching(sorted({name.test for name in names}), options.tests))
        chosen = [name for name in names if name.test in wanted]
        return series_in(history, chosen, newest, options.device)

    found = ask(options.path, series)
    measured = [one for every in found if (one := measured_of(every, options.figure)) is not None]
    if not measured:
        among = f" of {options.device!r}" if options.device else ""
        raise UsageError(f"{options.path}: found no figures{among}, expected runs that measured something")
    return measured


def show_cards(options: argparse.Namespace, newest_days: int, search: Search) -> int:
    """Show the cards as a page, JSON or a table. newest_days: up to the last run's; search: for change points."""
    figure = options.figure or "gbps"
    if figure == "sectors":
        raise UsageError("--figure sectors: found counts, expected gbps or relative: every card moves the same sectors")

    def days(history: History) -> CardDays:
        tests = matching(tests_in(history), options.tests) if options.tests else None
        return card_days_in(history, figure, newest_days, tests)

    found = ask(options.path, days)
    cards = [
        card
        for card in series_of_cards(found.days)
        if not options.device or options.device in (card.device, card.serial)
    ]
    if not cards:
        among = f" of {options.device!r}" if options.device else ""
        raise UsageError(
            f"{options.path}: found no cards{among}, expected a day on which three of one model were measured"
        )
    starts = search([(card.values, False) for card in cards])
    shown = CardTrends(
        figure, [card_trend(card, places) for card, places in zip(cards, starts, strict=True)], found.every
    )
    if options.output is not None:
        write_output(options.output, render_card_trends(shown), HTML)
    elif options.json:
        print_json(cards_plain(shown))
    else:
        print("\n".join(aligned(CARD_HEADINGS, card_rows(shown), left=CARD_WORDS, width=terminal_width())))
        print("\n".join(map(printable, drift_lines(shown))))
    return 0


def answer(options: argparse.Namespace) -> int:
    names, rows = ask(options.path, lambda history: history.answer(options.sql))
    if options.json:
        print_json({"columns": names, "rows": [[_json_value(value) for value in row] for row in rows]})
    else:
        texts = [["" if value is None else str(value) for value in row] for row in rows]
        words = [name for i, name in enumerate(names) if any(isinstance(row[i], str) for row in rows)]
        print("\n".join(aligned(names, texts, left=words)))
    return 0


def _json_value(value: object) -> object:
    if isinstance(value, float) and not math.isfinite(value):  # NaN and infinities, which JSON has not
        return None
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def add(options: argparse.Namespace) -> int:
    known = known_runs(options.path)
    for path in options.add:
        document, outcomes = load_run(path)
        if not outcomes:
            raise UsageError(f"{path}: found no results, expected a run that measured something")
        if document["run_id"] in known:
            raise UsageError(f"{path}: {document['run_id']} is there already, expected a run that the history has not")
        try:
            added = append(options.path, document, outcomes)
        except UsageError as error:
            raise UsageError(f"{path}: {error}") from None
        print(f"added {printable(added.name)}", file=sys.stderr)
    return 0
