"""Draws one chart of a saved run as SVG or PNG."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_bandwidth.cli.output import write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.storage.saved_run import load_run


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="FILE.svg or FILE.png")
    parser.add_argument("--chart", metavar="NAME", help="which chart (default: the first that the run has data for)")


def run(options: argparse.Namespace) -> int:
    from pytest_bandwidth.reports.charts.render import chart_specs, render_chart

    kind = options.output.suffix.lower().lstrip(".")
    if kind not in ("svg", "png"):
        raise UsageError(f"-o {options.output}: found ending {options.output.suffix!r}, expected .svg or .png")
    document, _ = load_run(options.run)
    names = list(chart_specs(document))
    if not names:
        raise UsageError(f"{options.run}: found no figures to chart, expected a run that took times or counted FLOP")
    chart = options.chart or names[0]
    if chart not in names:
        raise UsageError(f"--chart: found {chart!r}, expected one that this run has data for: {', '.join(names)}")
    write_output(options.output, render_chart(document, chart, kind))
    return 0
