"""Over a hundred texts that try to run, in every place of a run, in a real browser: nothing does."""

import pytest
from chromium import PHONE, scroll_through
from hostile import HOSTILE, hostile_document

from pytest_bandwidth.features.html import page as html_module
from pytest_bandwidth.features.html.page import render_html
from pytest_bandwidth.reports.pages import charts_available

STRAYS = """() => [...document.querySelectorAll('*')].filter((e) =>
  ['IFRAME', 'OBJECT', 'EMBED', 'IMG', 'VIDEO', 'AUDIO', 'LINK', 'BASE', 'MARQUEE', 'TEMPLATE'].includes(e.tagName)
  || [...e.attributes].some((a) => /^on/i.test(a.name) || /^\\s*(javascript|data|vbscript):/i.test(a.value))
).map((e) => e.outerHTML.slice(0, 200))"""

VALUES = """() => Object.fromEntries(
  [...document.querySelectorAll('#about dt')].map((name) => [name.textContent, name.nextElementSibling.textContent])
)"""
OWN = ("kind", "name", "serial", "run id", "commit", "started at")
# The shortest of their places.
SHOWN_WHOLE = 100


@pytest.fixture(scope="module")
def hostile():
    return render_html(hostile_document())


@pytest.fixture(scope="module")
def hostile_without_charts():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(html_module, "charts_available", lambda: False)
        return render_html(hostile_document())


def test_nothing_runs_in_a_page_with_all_its_charts(open_page, hostile):
    opened = open_page(hostile)
    page = opened.page
    address = page.url
    # every fifth: hundreds of charts at once show nothing more; the next test opens all panels
    page.evaluate("document.querySelectorAll('button.test').forEach((button, i) => i % 5 || button.click())")
    scroll_through(page)
    if charts_available():
        for point in page.locator("figure[data-chart=bandwidth] .mark-symbol.role-mark path").all()[:10]:
            point.hover(force=True)
    page.locator("#find").fill("<script>")
    for key in ("name", "bandwidth_gb_s", "status"):
        page.locator(f"th button[data-sort={key}]").click()
    page.locator("#find").fill("")
    assert page.evaluate("window.pwned") is None
    assert page.evaluate("Object.prototype.pwned") is None
    assert page.evaluate(STRAYS) == []
    assert page.url == address


def test_each_text_is_shown_as_itself(open_page, hostile_without_charts):
    assert sum("window.pwned=1" in text for text in HOSTILE) >= 50
    page = open_page(hostile_without_charts).page
    page.evaluate("document.querySelectorAll('button.test').forEach((button) => button.click())")
    full = page.locator("tr.panel .full").evaluate_all("all => all.map((p) => p.textContent)")
    for index, text in enumerate(HOSTILE):
        if text.isprintable() and 0 < len(text) <= 3000:
            assert f"{text} {index}" in full, text
    assert page.locator("tr.panel").count() == len(HOSTILE)
    assert page.evaluate("window.pwned") is None
    assert page.evaluate(STRAYS) == []


@pytest.mark.slow
def test_no_text_runs_as_the_devices_or_the_runs_own(open_page, monkeypatch):
    """One after the other in one window. A result's own places, which are written as these are, have them all."""
    monkeypatch.setattr(html_module, "charts_available", lambda: False)
    opened = None
    for text in HOSTILE[::3]:
        opened = open_page(render_html(hostile_document([text])), instead_of=opened)
        page = opened.page
        assert page.evaluate("window.pwned") is None, text
        assert page.evaluate("Object.prototype.pwned") is None, text
        assert page.evaluate(STRAYS) == [], text
        assert page.evaluate("document.scripts.length") == 2, text  # the page's own, and its data
        if text.isprintable() and 0 < len(text) <= SHOWN_WHOLE:
            values = page.evaluate(VALUES)
            assert {values[name] for name in OWN} == {text}


def test_long_names_break_nothing_on_a_phone(open_page, hostile_without_charts):
    page = open_page(hostile_without_charts, size=PHONE).page
    page.evaluate("document.querySelectorAll('button.test').forEach((button) => button.click())")
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]


def test_a_hostile_address_opens_nothing(open_page, hostile):
    page = open_page(hostile, hash="#%E0%A4%A<script>window.pwned=1</script>").page
    assert page.evaluate("window.pwned") is None
    assert page.locator("tr.panel").count() == 0
