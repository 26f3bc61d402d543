"""Show the figures of tests over the runs that --bandwidth-history appended, and where their level changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_bandwidth.cli.main import checked
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.interpreter import gc_disabled
from pytest_bandwidth.domain.text import Address, is_address
from pytest_bandwidth.domain.values import count
from pytest_bandwidth.features.history.change_points import start_search
from pytest_bandwidth.features.history.trend import METRICS

# The newest runs of each test that are read: the time for change points grows with the square of the runs.
NEWEST_RUNS = 2000
NEWEST_WITHOUT_KEY = 100
COMMITS_SHOWN = 20
NEWEST_DAYS_OF_CARDS = 2000


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=_place, metavar="PATH", help="the folder or address given to --bandwidth-history")
    parser.add_argument("tests", nargs="*", metavar="KEY", help="tests to show: a key, or a pattern with * and ?")
    parser.add_argument("--device", metavar="NAME", help="only runs of this model or serial")
    parser.add_argument("--figure", choices=METRICS, help="which figure (default: the one that was judged)")
    parser.add_argument("--by", choices=("gpu",), help="each card ÷ its model's median, and those that drift away")
    parser.add_argument(
        "--newest",
        type=checked(count(1)),
        metavar="N",
        help="newest runs of each test to look at (2000; without KEY 100); with --by gpu: days (2000)",
    )
    parser.add_argument(
        "--commits", type=checked(count(1)), default=COMMITS_SHOWN, metavar="N", help="newest commits to list (20)"
    )
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="FILE.html: a page with charts")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--sql", metavar="SELECT", help="one question of your own over the table `history`")
    parser.add_argument("--add", type=Path, nargs="+", metavar="RUN.json", help="append saved runs")


def run(options: argparse.Namespace) -> int:
    if options.add or options.sql is not None:
        from pytest_bandwidth.features.history import show  # imports modules that other commands do not need

        return show.add(options) if options.add else show.answer(options)
    if options.output is not None and options.output.suffix.lower() != ".html":
        raise UsageError(f"-o {options.output}: found ending {options.output.suffix!r}, expected .html")
    with start_search() as search, gc_disabled():
        from pytest_bandwidth.features.history import show

        if options.by is not None:
            if options.output is not None:
                raise UsageError(f"-o {options.output}: found --by {options.by}, which has no page, expected --json")
            return show.show_cards(options, options.newest or NEWEST_DAYS_OF_CARDS, search)
        newest = options.newest or (NEWEST_RUNS if options.tests else NEWEST_WITHOUT_KEY)
        return show.show(options, newest, search)


def _place(text: str) -> Path | Address:
    return Address(text) if is_address(text) else Path(text)
