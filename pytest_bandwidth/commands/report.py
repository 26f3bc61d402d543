"""Renders what --bandwidth-json saved, so that a machine without a GPU can show what a GPU machine measured."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.saved_run import load_run


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help="FILE.html, FILE.csv or FILE.md (default: text)"
    )


def run(options: argparse.Namespace) -> int:
    document, outcomes = load_run(options.run)
    kind = "" if options.output is None else options.output.suffix
    if kind == "":
        from pytest_bandwidth.rendering.terminal import summary_lines

        for line in summary_lines(outcomes, 120, verbose=True):
            print("".join(span.text for span in line))
        return 0
    if kind == ".html":
        from pytest_bandwidth.rendering.html import render_html

        text = render_html(document)
    elif kind == ".csv":
        from pytest_bandwidth.rendering.csv import render_csv

        text = render_csv(outcomes)
    elif kind == ".md":
        from pytest_bandwidth.rendering.github import job_summary

        text = job_summary(document)
    else:
        raise UsageError(f"-o {options.output}: found ending {kind!r}, expected .html, .csv or .md")
    options.output.write_text(text, encoding="utf-8")
    print(f"wrote {options.output}", file=sys.stderr)
    return 0
