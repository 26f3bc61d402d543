"""Render a saved run as text, HTML, CSV or Markdown, or one of its charts as SVG or PNG.

A machine without a GPU can so show what a GPU machine measured.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from pytest_bandwidth.cli.main import terminal_width, write_output
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.reports.formats import JSON, formats
from pytest_bandwidth.reports.terminal import header_line, summary_lines
from pytest_bandwidth.storage.atomic import refuse_foreign
from pytest_bandwidth.storage.saved_run import load_run

# No name is shortened where the lines go to a file or a program.
UNBOUNDED = 10**6


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="FILE.html, FILE.csv, FILE.md, FILE.sarif, or a chart: FILE.svg, FILE.png (default: text, printed)",
    )
    parser.add_argument(
        "--chart", metavar="NAME", help="which chart FILE.svg or FILE.png shows (default: the first that has data)"
    )


def run(options: argparse.Namespace) -> int:
    output: Path | None = options.output
    known = {f".{one.kind}": one for one in formats().values() if one.kind != JSON.kind}
    chosen = None if output is None else known.get(output.suffix.lower())
    if options.chart is not None and (chosen is None or not chosen.draws):
        found = "no -o" if output is None else f"-o {output}"
        drawn = _listed([f"FILE{ending}" for ending, one in known.items() if one.draws])
        raise UsageError(f"--chart {options.chart} chooses what is drawn: found {found}, expected -o {drawn}")
    if output is None:
        document, outcomes = load_run(options.run)
        header = header_line(document["device"], document.get("baseline_path"))
        table = summary_lines(outcomes, terminal_width() or UNBOUNDED, verbose=True)
        print("\n".join([header, *("".join(span.text for span in line) for line in table)]))
        return 0
    if chosen is None:
        raise UsageError(f"-o {output}: found ending {output.suffix!r}, expected {_listed(list(known))}")
    refuse_foreign("-o", output, chosen.file)
    document, _ = load_run(options.run)
    try:
        content = chosen.render(document, options.chart) if chosen.draws else chosen.render(document)
    except UsageError as error:
        raise UsageError(f"{options.run}: {error}") from None
    write_output(output, content, chosen.file)
    return 0


def _listed(names: Sequence[str]) -> str:
    return f"{', '.join(names[:-1])} or {names[-1]}" if len(names) > 1 else "".join(names)
