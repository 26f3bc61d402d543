"""Renders what --bandwidth-json saved, so that a machine without a GPU can show what a GPU machine measured."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_bandwidth.cli.output import write_output
from pytest_bandwidth.cli.tables import terminal_width
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.reports.terminal import header_line, printable, summary_lines
from pytest_bandwidth.storage.saved_run import load_run

# No name is shortened where the lines go to a file or a program.
UNBOUNDED = 10**6


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="FILE.html, FILE.csv or FILE.md (default: text, printed)"
    )


def run(options: argparse.Namespace) -> int:
    document, outcomes = load_run(options.run)
    if options.output is None:
        print("\n".join(_lines(document, outcomes)))
        return 0
    write_output(options.output, _rendered(options.output, document, outcomes))
    return 0


def _lines(document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> list[str]:
    device = document["device"]
    peak = device.get("peak") or {}
    baseline = document.get("baseline_path")
    header = header_line(device["name"], peak.get("gbps"), peak.get("source"), baseline, device["kind"])
    lines = [printable(header)]
    width = terminal_width() or UNBOUNDED
    return [*lines, *("".join(span.text for span in line) for line in summary_lines(outcomes, width, verbose=True))]


def _rendered(output: Path, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> str:
    """A file's text by the ending of its name; each renderer is imported where it is needed."""
    kind = output.suffix.lower()
    if kind == ".html":
        from pytest_bandwidth.reports.html.page import render_html

        return render_html(document)
    if kind == ".csv":
        from pytest_bandwidth.reports.csv import render_csv

        return render_csv(outcomes)
    if kind == ".md":
        from pytest_bandwidth.reports.github import job_summary

        return job_summary(document)
    raise UsageError(f"-o {output}: found ending {output.suffix!r}, expected .html, .csv or .md")
