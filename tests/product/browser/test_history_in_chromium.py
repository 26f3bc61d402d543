"""The page of a history in a real browser: charts, dark mode, a phone's width, accessibility."""

import pytest
from chromium import DESKTOP, PHONE, scroll_through
from histories import page_of, trend

from pytest_bandwidth.reports.pages import MISSING, charts_available


@pytest.fixture(scope="module")
def history():
    return page_of([trend(), trend(test="tests/a_folder/test_stream.py::test_triad[float32-16777216]", starts=())])


@pytest.mark.parametrize(("size", "dark"), [(DESKTOP, False), (PHONE, True)], ids=["desktop", "phone"])
def test_it_opens_draws_fits_and_is_accessible(open_page, history, violations, size, dark):
    page = open_page(history, size=size, dark=dark).page
    assert page.locator("h1").inner_text() == "1 of 2 trends changed level"
    scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
    assert page.get_by_text("need JavaScript").count() == 0
    page.locator("summary").first.click()
    assert page.get_by_text("c9").first.is_visible()
    assert violations(page) == []


@pytest.mark.skipif(not charts_available(), reason=MISSING)
def test_a_point_tells_its_run_and_changes_are_named(open_page, history):
    page = open_page(history).page
    scroll_through(page)
    assert page.locator("figure").first.get_by_text("−5.6 % at c5").count() == 1
    point, tip = page.locator("figure").first.locator(".mark-symbol.role-mark path").first, page.locator(".tip")
    for _ in range(20):  # a chart that is still drawn moves the point away from the pointer
        page.mouse.move(0, 0)
        point.hover(force=True)
        if tip.is_visible():
            break
        page.wait_for_timeout(200)
    tip.wait_for()
    assert "of probe" in tip.inner_text()
    assert "OK" in tip.inner_text()


def test_without_javascript_the_tables_are_there(open_page, history):
    page = open_page(history, java_script_enabled=False).page
    assert page.get_by_text("need JavaScript").is_visible()
    page.locator("summary").first.click()
    assert page.get_by_text("c9").first.is_visible()
