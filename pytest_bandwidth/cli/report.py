"""Render a saved run as text, HTML, CSV or Markdown, or one of its charts as SVG or PNG.

A machine without a GPU can so show what a GPU machine measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_bandwidth.cli.output import terminal_width, write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.render import render
from pytest_bandwidth.reports.terminal import header_line, summary_lines
from pytest_bandwidth.storage.own_documents import refuse_foreign
from pytest_bandwidth.storage.saved_run import load_run

# Endings of the files that -o writes.
DOCUMENTS = (".html", ".csv", ".md")
CHARTS = (".svg", ".png")
# No name is shortened where the lines go to a file or a program.
UNBOUNDED = 10**6


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="FILE.html, FILE.csv, FILE.md, or a chart: FILE.svg, FILE.png (default: text, printed)",
    )
    parser.add_argument(
        "--chart", metavar="NAME", help="which chart FILE.svg or FILE.png shows (default: the first that has data)"
    )


def run(options: argparse.Namespace) -> int:
    kind = None if options.output is None else options.output.suffix.lower()
    if options.chart is not None and kind not in CHARTS:
        found = "no -o" if kind is None else f"-o {options.output}"
        raise UsageError(f"--chart {options.chart} chooses what is drawn: found {found}, expected -o FILE.svg or .png")
    if kind is not None and kind not in (*DOCUMENTS, *CHARTS):
        expected = f"{', '.join((*DOCUMENTS, *CHARTS)[:-1])} or {CHARTS[-1]}"
        raise UsageError(f"-o {options.output}: found ending {options.output.suffix!r}, expected {expected}")
    if kind is not None:
        refuse_foreign("-o", options.output, kind.removeprefix("."))
    document, outcomes = load_run(options.run)
    if kind is None:
        print("\n".join(_lines(document, outcomes)))
    elif kind in CHARTS:
        write_output(options.output, _chart(options.run, options.chart, kind, document), kind.removeprefix("."))
    else:
        write_output(options.output, render(kind.removeprefix("."), document, outcomes), kind.removeprefix("."))
    return 0


def _lines(document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> list[str]:
    device = document["device"]
    peak = device.get("peak") or {}
    baseline = document.get("baseline_path")
    header = header_line(device["name"], peak.get("gbps"), peak.get("source"), baseline, device["kind"])
    width = terminal_width() or UNBOUNDED
    return [header, *("".join(span.text for span in line) for line in summary_lines(outcomes, width, verbose=True))]


def _chart(path: Path, chart: str | None, kind: str, document: Mapping[str, Any]) -> bytes:
    """Draw one chart of the run. Raises UsageError where the run has no data for it, or for any."""
    from pytest_bandwidth.features.html.charts.render import chart_specs, render_chart

    names = list(chart_specs(document))
    if not names:
        raise UsageError(f"{path}: found no figures to chart, expected a run that took times or counted FLOP")
    if chart is not None and chart not in names:
        raise UsageError(f"--chart: found {chart!r}, expected one that this run has data for: {', '.join(names)}")
    return render_chart(document, chart or names[0], "svg" if kind == ".svg" else "png")
