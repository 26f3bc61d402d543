"""Show trends of a history and the cards of its fleet, answer SQL over it, and add saved runs to it."""

from __future__ import annotations

import argparse
import math
import sys
from dataclasses import replace
from functools import partial

from pytest_bandwidth.cli.baseline import matching
from pytest_bandwidth.cli.main import print_json, terminal_width, write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history import cards as of_cards
from pytest_bandwidth.features.history.change_points import Search
from pytest_bandwidth.features.history.reading import ask, known_runs
from pytest_bandwidth.features.history.trend import (
    COMMIT_HEADINGS,
    FIGURE_WORDS,
    OVERVIEW_HEADINGS,
    Trend,
    bars,
    commit_rows,
    levels_of,
    overview_row,
    series_in,
    summary_of,
    trend_of,
    trend_plain,
)
from pytest_bandwidth.features.history.writing import append
from pytest_bandwidth.reports.text_safe import aligned, printable
from pytest_bandwidth.storage.atomic import HTML
from pytest_bandwidth.storage.saved_run import load_run

BARS_WIDE = 100


def show(options: argparse.Namespace, newest: int, search: Search) -> int:
    """Show trends as a page, JSON, one by one or in a table. newest: runs of each test; search: for change points."""
    chosen = partial(matching, patterns=options.tests)
    series = ask(options.path, lambda history: series_in(history, newest, options.device, chosen))
    measured = [trend for one in series if (trend := trend_of(one, options.figure)) is not None]
    if not measured:
        among = f" of {options.device!r}" if options.device else ""
        raise UsageError(f"{options.path}: found no figures{among}, expected runs that measured something")

    def changed() -> list[Trend]:
        found = search([(one.values, one.figure == "sectors") for one in measured])
        return [replace(one, levels=levels_of(one.values, starts)) for one, starts in zip(measured, found, strict=True)]

    if options.output is not None:
        from pytest_bandwidth.features.history.page import render_history

        write_output(options.output, render_history(measured, changed), HTML)
        return 0
    trends = changed()
    if options.json:
        print_json({"trends": [trend_plain(trend) for trend in trends]})
    elif len(trends) == 1 or options.tests:
        print("\n\n".join("\n".join(_lines(trend, options.commits)) for trend in trends))
    else:
        rows = [overview_row(trend) for trend in trends]
        print("\n".join(aligned(OVERVIEW_HEADINGS, rows, left=("device", "commit", "trend"), width=terminal_width())))
    return 0


def _lines(trend: Trend, commits: int) -> list[str]:
    """Return a trend for the terminal: its name, a sentence, its bars, and its newest commits."""
    rows = commit_rows(trend)
    left_out = len(rows) - commits
    width = terminal_width() or BARS_WIDE
    return [
        printable(f"{trend.test}  on  {trend.device}"),
        printable(summary_of(trend)),
        f"{FIGURE_WORDS[trend.figure]}, the oldest run first: {bars(trend.values, max(8, min(width, BARS_WIDE) - 42))}",
        *([f"… {left_out} commits before (--commits N shows more)"] if left_out > 0 else []),
        *aligned(COMMIT_HEADINGS, rows[-commits:], left=("commit",)),
    ]


def show_cards(options: argparse.Namespace, newest_days: int, search: Search) -> int:
    """Show the cards as a page, JSON or a table. newest_days: up to the last run's; search: for change points."""
    figure = options.figure or "gbps"
    if figure == "sectors":
        raise UsageError("--figure sectors: found counts, expected gbps or relative: every card moves the same sectors")
    chosen = partial(matching, patterns=options.tests) if options.tests else None
    days, every = ask(options.path, lambda history: of_cards.card_days_in(history, figure, newest_days, chosen))
    found = [c for c in of_cards.cards_of(days) if not options.device or options.device in (c.device, c.serial)]
    if not found:
        among = f" of {options.device!r}" if options.device else ""
        raise UsageError(
            f"{options.path}: found no cards{among}, expected a day on which three of one model were measured"
        )
    starts = search([(card.values, False) for card in found])
    cards = [replace(card, levels=levels_of(card.values, places)) for card, places in zip(found, starts, strict=True)]
    # Those that drift first, then by how far each lies from its model's median.
    cards.sort(key=lambda one: (not one.drifts, -abs(one.levels[-1].value - 1)))
    if options.json:
        print_json({"figure": figure, "every_day": every, "cards": list(map(of_cards.card_plain, cards))})
    else:
        rows = [of_cards.card_row(card) for card in cards]
        print("\n".join(aligned(of_cards.CARD_HEADINGS, rows, left=of_cards.CARD_WORDS, width=terminal_width())))
        print("\n".join(map(printable, of_cards.drift_lines(cards, every))))
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
