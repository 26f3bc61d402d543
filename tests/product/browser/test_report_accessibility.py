"""axe-core over the HTML summary in every dress: no serious violation, nor any lesser one.

axe-core comes with the PyPI package axe-playwright-python (dependency group `browser`), so CI needs no npm.
"""

import importlib.util
from pathlib import Path

import pytest
import run_documents
from chromium import DESKTOP, PHONE, end_without, scroll_through

from pytest_bandwidth.features.html.page import render_html


@pytest.fixture(scope="module")
def axe():
    found = importlib.util.find_spec("axe_playwright_python")
    if found is None or found.origin is None:
        end_without("accessibility is judged by axe-core, which is not installed: pip install axe-playwright-python")
    return Path(found.origin).with_name("axe.min.js").read_text(encoding="utf-8")


def violations(page, axe):
    page.evaluate(axe)
    found = page.evaluate("() => axe.run(document, { resultTypes: ['violations'] })")["violations"]
    return [
        f"{v['impact']} {v['id']}: {[n['target'] for n in v['nodes']][:5]} {v['nodes'][0]['failureSummary']}"
        for v in found
    ]


@pytest.mark.parametrize(
    ("size", "dark", "failing"),
    [
        (DESKTOP, False, 4),
        (PHONE, True, 4),
        (DESKTOP, True, 0),
    ],
)
def test_axe_finds_nothing(open_page, axe, size, dark, failing):
    outcomes = [*run_documents.outcomes(40, failing=failing, unjudged=failing), run_documents.improved()]
    findings = [{"code": "device", "text": "the probe is 6 % down"}] if failing else []
    page = open_page(render_html(run_documents.run_document(outcomes, findings=findings)), size=size, dark=dark).page
    page.locator("button.test").first.click()
    scroll_through(page)
    page.locator(".chip").first.click()
    assert violations(page, axe) == []


def test_axe_finds_nothing_in_odd_runs(open_page, axe):
    page = open_page(render_html(run_documents.run_document([]))).page
    assert violations(page, axe) == []
    page = open_page(render_html(run_documents.run_document([run_documents.counted()]))).page
    page.locator("button.test").first.click()
    assert violations(page, axe) == []
