"""Write saved runs for a tracker: Bencher, github-action-benchmark, Otava, OpenMetrics, or long CSV.

Only what was timed and is valid is written; what is left out is said on standard error.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from pytest_bandwidth.cli.output import refuse_own_input, write_output
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.features.exports.forms import FORMS, columns_of, refuse_unlike, timed_run
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.storage.atomic import refuse_foreign
from pytest_bandwidth.storage.saved_run import load_run, read_document

MOST_NAMED = 3
# What other programs take for it as well.
STANDARD_OUTPUT = Path("-")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN.json", help="documents that --bandwidth-json wrote")
    parser.add_argument("--format", required=True, choices=tuple(FORMS), help="whose form to write")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to (default, and for -: printed)")


def run(options: argparse.Namespace) -> int:
    output = None if options.output == STANDARD_OUTPUT else options.output
    form = FORMS[options.format]
    if output is not None:
        refuse_own_input(output, options.runs)
        refuse_foreign("-o", output, form.file)
    runs = [timed_run(read_document(load_run(path)[0]), str(path)) for path in options.runs]
    refuse_unlike(runs, options.format)
    text = form.render(runs)
    if output is None:
        sys.stdout.write(text)
    else:
        write_output(output, text, form.file)
    for one in runs:
        _say(one.name, one.left_out, "not timed, or not valid")
    if options.format == "otava":
        _say("otava", columns_of(runs)[1], "not in every run, and Otava's columns have no gaps")
    return 0


def _say(where: str, left_out: Sequence[str], why: str) -> None:
    """Name on standard error what was left out, since standard output is for results."""
    if left_out:
        named = ", ".join(left_out[:MOST_NAMED]) + (" …" if len(left_out) > MOST_NAMED else "")
        print(printable(f"{where}: {counted(len(left_out), 'result')} left out ({why}): {named}"), file=sys.stderr)
