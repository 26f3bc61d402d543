"""Show each card of a fleet beside its model's median over time, and the cards that drift away from it."""

from __future__ import annotations

import argparse

from pytest_bandwidth.cli.baseline.files import matching
from pytest_bandwidth.cli.output import print_json, terminal_width, write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.card_trend import card_trend, series_of_cards
from pytest_bandwidth.features.history.card_trend_texts import (
    CARD_HEADINGS,
    CARD_WORDS,
    CardTrends,
    card_rows,
    cards_plain,
    drift_lines,
)
from pytest_bandwidth.features.history.commands.change_points import Search
from pytest_bandwidth.features.history.store import History, ask
from pytest_bandwidth.features.history.store.cards import CardDays, card_days_in, tests_in
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.own_documents import HTML


def show(options: argparse.Namespace, newest_days: int, search: Search) -> int:
    """Show the cards as a page, JSON or a table. newest_days: up to the last run's; search: for change points."""
    if options.output is not None and options.output.suffix.lower() != ".html":
        raise UsageError(f"-o {options.output}: found ending {options.output.suffix!r}, expected .html")
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
    told = CardTrends(
        figure, [card_trend(card, places) for card, places in zip(cards, starts, strict=True)], found.every
    )
    if options.output is not None:
        from pytest_bandwidth.features.history.card_page import render_card_trends

        write_output(options.output, render_card_trends(told), HTML)
    elif options.json:
        print_json(cards_plain(told))
    else:
        print("\n".join(aligned(CARD_HEADINGS, card_rows(told), left=CARD_WORDS, width=terminal_width())))
        print("\n".join(map(printable, drift_lines(told))))
    return 0
