"""Measure what the HTML summary costs: to render, and in Chromium to show, sort, filter and open.

    python benchmarks/report.py [--results 200,1000,5000] [--repeat 3] [--no-browser]

A new process renders each page, imports included, as `pytest-bandwidth report` does. "First render" has an empty cache
and makes the chart library as well; "render" uses the library that the first one kept. The runs are invented
(tests/support/run_documents.py), with 60 samples and 5 baseline runs each. The script prints the smallest of the
repeats as well as the median, since the machine may be shared. Limits: 1,000 results in 2 s, 5,000 in 8 s; 1.5 MB for
200, 15 MB for 5,000; first paint 2 s and sort 0.3 s for 5,000.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent / "tests" / "support")]

RENDER = """
import json, sys, time
document = json.load(open(sys.argv[1], encoding="utf-8"))
begin = time.perf_counter()
from pytest_bandwidth.features.html.page import render_html
page = render_html(document)
print(time.perf_counter() - begin)
open(sys.argv[2], "w", encoding="utf-8").write(page)
"""
# Sorts until the new order is painted: two frames after the click.
PAINTED = "await new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)));"
BEGIN = "async () => { const find = document.getElementById('find'); const begin = performance.now();"
STEPS = {
    "sort": "document.querySelector('th button[data-sort=bandwidth_gb_s]').click();",
    "sort by name": "document.querySelector('th button[data-sort=name]').click();",
    "filter": "find.value = 'gemm'; find.dispatchEvent(new Event('input'));",
    "open a row": "document.querySelector('tr:not([hidden]) button.test').click();",
}


def render_seconds(document: Path, page: Path, cache: Path) -> float:
    """Return the seconds of a fresh process from import to text; the page is left behind."""
    command = [sys.executable, "-c", RENDER, str(document), str(page)]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return float(subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout)


def render_rows(document: Path, page: Path, folder: Path, repeat: int) -> dict[str, list[float]]:
    """Measure first and later renders, each with caches of its own."""
    rows: dict[str, list[float]] = {"first render": [], "render": []}
    for _ in range(repeat):
        with tempfile.TemporaryDirectory(dir=folder) as cache:
            for name in rows:
                rows[name].append(render_seconds(document, page, Path(cache)))
    return rows


def browser_seconds(page: Path, repeat: int) -> dict[str, list[float]]:
    """Return the seconds by step in fresh tabs; empty where there is no browser."""
    from chromium import CHROMIUM, FLAGS

    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        return {}
    if CHROMIUM is None:
        return {}
    found: dict[str, list[float]] = {}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=list(FLAGS))
        for _ in range(repeat):
            for name, seconds in _visit(browser, page).items():
                found.setdefault(name, []).append(seconds)
        browser.close()
    return found


def _visit(browser: Any, page: Path) -> dict[str, float]:
    context = browser.new_context(offline=True, viewport={"width": 1280, "height": 900})
    tab = context.new_page()
    tab.goto(page.as_uri())
    tab.wait_for_selector("button.test")
    timing = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
    seconds = {"first paint": tab.evaluate(timing) / 1e3}
    for name, step in STEPS.items():
        script = f"{BEGIN} {step} {PAINTED} return performance.now() - begin; }}"
        seconds[name] = tab.evaluate(script) / 1e3
    context.close()
    return seconds


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--results", default="200,1000,5000")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args(arguments)
    import run_documents

    with tempfile.TemporaryDirectory() as folder:
        for count in (int(part) for part in options.results.split(",")):
            outcomes = run_documents.outcomes(count, failing=count // 50, unjudged=count // 20, samples=60)
            document, page = Path(folder) / "run.json", Path(folder) / f"{count}.html"
            document.write_text(json.dumps(run_documents.run_document(outcomes)), encoding="utf-8")
            rows = render_rows(document, page, Path(folder), options.repeat)
            if not options.no_browser:
                rows |= browser_seconds(page, options.repeat)
            print(f"{count} results: {page.stat().st_size / 1e6:.2f} MB")
            for name, seconds in rows.items():
                print(f"  {name:12} median {median(seconds):6.3f} s   least {min(seconds):6.3f} s")


if __name__ == "__main__":
    main()
