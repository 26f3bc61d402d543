"""Draws one chart of a saved run as SVG or PNG."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.saved_run import load_run


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", required=True, help="FILE.svg or FILE.png")
    parser.add_argument("--chart", default="roofline", help="which chart (default: roofline; an unknown one lists all)")


def run(options: argparse.Namespace) -> int:
    from pytest_bandwidth.rendering.charts import chart_specs, render_chart

    document, _ = load_run(options.run)
    kind = options.output.suffix.lstrip(".")
    if kind not in ("svg", "png"):
        raise UsageError(f"-o {options.output}: found ending {kind!r}, expected .svg or .png")
    names = list(chart_specs(document))
    if options.chart not in names:
        raise UsageError(f"--chart {options.chart}: this run has {', '.join(names) or 'no charts'}")
    options.output.write_bytes(render_chart(document, options.chart, kind))
    print(f"wrote {options.output}", file=sys.stderr)
    return 0
