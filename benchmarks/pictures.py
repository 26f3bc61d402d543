"""Draw README's pictures of a saved run: the terminal's summary as SVG, and the HTML report as PNG, by Chromium.

    python benchmarks/pictures.py run.json    # of --bandwidth-json

Both go into docs/, or into the folder of -o.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import tempfile
from dataclasses import asdict
from html import escape
from pathlib import Path

from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.features.html.page import render_html
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.terminal import MARKUP, Span, TerminalLine, header_line, summary_lines
from pytest_bandwidth.reports.wording import message_lines
from pytest_bandwidth.storage.saved_run import RunDocument, load_run, read_document

DOCS = Path(__file__).resolve().parents[1] / "docs"
COLUMNS, CHARACTER, LINE, MARGIN = 132, 7.83, 18, 16
INK, SURFACE = "#d4d8dd", "#14171b"
COLOURS = {"red": "#ff8a80", "yellow": "#eab55c", "green": "#79cf9d", "cyan": "#6fc7d9"}
PAGE = (1100, 800)
CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = ("--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--virtual-time-budget=5000")


def terminal_lines(run: RunDocument, outcomes: list[Outcome]) -> list[TerminalLine]:
    """Return what a run prints: its first line, each failure, and the summary."""
    head = header_line(asdict(run.device), run.baseline_path)
    lines: list[TerminalLine] = [(Span(head),), ()]
    for outcome in outcomes:
        if run.fails(outcome):
            first, *others = message_lines(outcome)
            lines += [(Span(first, MARKUP[Status(outcome.status)]),), *((Span(text),) for text in others), ()]
    return lines + summary_lines(outcomes, COLUMNS)


def svg(lines: list[TerminalLine]) -> str:
    """Draw lines of a terminal; what is longer than its columns goes on below."""
    wrapped = [part for line in lines for part in _wrapped(line)]
    width, height = 2 * MARGIN + COLUMNS * CHARACTER, 2 * MARGIN + LINE * len(wrapped)
    texts = [
        f'<text x="{MARGIN}" y="{MARGIN + LINE * number + 13}">{"".join(map(_drawn, line))}</text>'
        for number, line in enumerate(wrapped)
    ]
    font = "ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace"
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:.0f} {height}" font-family="{font}" '
            f'font-size="13" fill="{INK}">',
            f'<rect width="100%" height="100%" rx="6" fill="{SURFACE}"/>',
            *texts,
            "</svg>\n",
        ]
    )


def _wrapped(line: TerminalLine) -> list[TerminalLine]:
    text = "".join(span.text for span in line)
    if len(text) <= COLUMNS:
        return [line]
    markup = line[0].markup
    return [(Span(text[start : start + COLUMNS], markup),) for start in range(0, len(text), COLUMNS)]


def _drawn(span: Span) -> str:
    colour = next((COLOURS[name] for name in span.markup if name in COLOURS), None)
    look = f' fill="{colour}"' if colour else ""
    look += ' font-weight="bold"' if "bold" in span.markup else ' opacity="0.7"' if "light" in span.markup else ""
    text = escape(span.text).replace(" ", "\N{NO-BREAK SPACE}")  # of others a picture shows one
    return f"<tspan{look}>{text}</tspan>" if look else text


def photograph(page: str, file: Path) -> None:
    """Save the top of a page as PNG."""
    if CHROMIUM is None:
        raise SystemExit("pictures.py: found no Chromium, expected one on the path or in $CHROMIUM")
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "report.html").write_text(page, encoding="utf-8")
        size = f"--window-size={PAGE[0]},{PAGE[1]}"
        command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder}", size, f"--screenshot={file}", f"{folder}/report.html"]
        subprocess.run(command, check=True, capture_output=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("run", type=Path, metavar="RUN.json", help="a document that --bandwidth-json wrote")
    parser.add_argument("-o", type=Path, default=DOCS, metavar="FOLDER", help="for terminal.svg and report.png (docs)")
    options = parser.parse_args()
    document, outcomes = load_run(options.run)
    (options.o / "terminal.svg").write_text(svg(terminal_lines(read_document(document), outcomes)), encoding="utf-8")
    photograph(render_html(document), options.o / "report.png")


if __name__ == "__main__":
    main()
