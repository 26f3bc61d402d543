"""The HTML summary as a reader meets it: opened from a file, offline, by mouse and by keyboard, wide and narrow."""

import re

import pytest
import run_documents
from chromium import DESKTOP, PHONE, scroll_through

from pytest_bandwidth.features.html.page import render_html
from pytest_bandwidth.reports.pages import MISSING, charts_available

needs_charts = pytest.mark.skipif(not charts_available(), reason=MISSING)


@pytest.fixture(scope="module")
def failing():
    outcomes = [*run_documents.outcomes(119, failing=4, unjudged=6), run_documents.improved()]
    return render_html(
        run_documents.run_document(outcomes, findings=[{"code": "device", "text": "the probe is 6 % down"}])
    )


@pytest.fixture
def opened(open_page, failing):
    """The page of a run in which four failed."""
    return open_page(failing)


def figures(texts):
    """Numbers of a column that holds one unit, in the order shown."""
    return [float(re.sub(r"[^0-9.\-]", "", text.replace("−", "-"))) for text in texts if text != "–"]


def test_it_opens_with_verdict_findings_and_failures_in_the_first_screen(opened):
    page = opened.page
    assert page.locator("h1").inner_text() == "4 of 120 measurements failed"
    assert page.get_by_text("the probe is 6 % down").is_visible()
    assert page.get_by_text("need JavaScript").count() == 0
    assert page.locator(".failures li").count() == 4
    place = page.locator("h1").bounding_box()
    assert place["y"] < 200
    assert len(opened.names()) == 120


def test_sorting_by_a_figure_starts_with_the_largest_turns_round_and_keeps_rows_without_it_last(opened):
    before = opened.names()
    for word, turned in (("descending", True), ("ascending", False)):
        opened.sort_by("bandwidth_gb_s")
        found = figures(opened.column("bandwidth_gb_s"))
        assert found == sorted(found, reverse=turned)
        head = opened.page.locator("th[aria-sort]")
        assert (head.inner_text().split()[0], head.get_attribute("aria-sort")) == ("GB/s", word)
    for _ in range(2):
        opened.sort_by("change")
        changes = opened.column("change")
        known = [i for i, text in enumerate(changes) if text != "–"]
        assert 0 < len(known) < len(changes)
        assert known == list(range(len(known)))
    opened.sort_by("status")
    assert opened.names() == before
    assert opened.column("status")[:4] == ["REGRESSED"] * 4


def test_sorting_by_name_counts_numbers_as_numbers(open_page):
    opened = open_page(render_html(run_documents.run_document(run_documents.outcomes(60))))
    opened.sort_by("name")
    sizes = [int(m[1]) for m in (re.search(r"copy\[fp32-(\d+)", name) for name in opened.names()) if m]
    assert sizes == sorted(sizes)
    assert len(sizes) > 2


def test_the_filter_takes_all_words_adds_up_with_status_buttons_and_stays_when_sorted(opened):
    opened.page.locator("#find").fill("GEMM fp16")
    names = opened.names()
    assert names
    assert all("gemm" in name and "fp16" in name for name in names)
    assert opened.page.locator("#shown").inner_text() == f"{len(names)} of 120 measurements"
    opened.page.locator("#find").fill("no such test")
    assert opened.names() == []
    assert opened.page.locator("#shown").inner_text() == "0 of 120 measurements"
    opened.page.locator("#find").fill("")
    assert opened.page.locator("#shown").inner_text() == "120 measurements"
    opened.page.locator("#find").fill("registers 32")
    assert opened.column("status") == ["REGRESSED"] * 4, "reasons and messages are found, too"
    opened.page.locator("#find").fill("")
    opened.page.locator("a.count[data-status=UNDECIDED]").click()
    assert set(opened.column("status")) == {"UNDECIDED"}
    opened.page.locator(".chip[data-status=UNDECIDED]").click()
    opened.page.locator(".chip[data-status=REGRESSED]").click()
    assert set(opened.column("status")) == {"REGRESSED"}
    opened.page.locator(".chip[data-status=UNDECIDED]").click()
    assert set(opened.column("status")) == {"REGRESSED", "UNDECIDED"}
    assert opened.page.locator(".chip[aria-pressed=true]").count() == 2
    opened.page.locator("#find").fill("copy")
    before = set(opened.names())
    assert before
    assert all("copy" in name for name in before)
    opened.page.locator("tbody.rows button.test:visible").first.click()
    opened.sort_by("bandwidth_gb_s")
    assert set(opened.names()) == before
    place = opened.page.locator("tr.panel").evaluate("p => p.previousElementSibling.id + '-panel' === p.id")
    assert place is True


def test_a_panel_opens_by_keyboard_with_all_there_is_to_know(opened):
    page = opened.page
    button = page.locator("button.test").first
    place = page.locator(".place").first.inner_text()
    button.focus()
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "true"
    panel = page.locator(f"#{button.get_attribute('aria-controls')}")
    shown = panel.inner_text().replace("\xa0", " ")
    for text in ("registers 32 → 96", f"{place}:", "allowed drop", "1410 MHz"):
        assert text in shown, text
    page.keyboard.press("Enter")
    assert button.get_attribute("aria-expanded") == "false"
    assert page.locator("tr.panel").count() == 0


def test_the_table_works_by_keyboard_alone(opened):
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.id") == "find"
    reached = []
    for _ in range(30):
        page.keyboard.press("Tab")
        reached.append(page.evaluate("document.activeElement.className || document.activeElement.dataset.sort"))
        if reached[-1] == "test":
            break
    assert "bandwidth_gb_s" in reached
    assert reached[-1] == "test"


def test_a_link_opens_its_test(opened):
    page = opened.page
    page.locator("#find").fill("nothing like it")
    page.locator(".failures a").nth(2).click()
    row = page.locator("tr.open")
    row.wait_for()
    assert row.count() == 1
    assert f"#{row.get_attribute('id')}" == page.locator(".failures a").nth(2).get_attribute("href")
    opened.wait_in_window(row)


def test_an_address_with_a_test_opens_it_far_down_the_table(open_page):
    outcomes = run_documents.outcomes(600)
    text = render_html(run_documents.run_document(outcomes))
    last = re.findall(r'<tr id="(t-[0-9a-f]+)">', text)[-1]
    opened = open_page(text, hash=f"#{last}")
    opened.page.wait_for_selector("tr.panel")
    opened.wait_in_window(opened.page.locator(f"#{last}"), above=5)


@needs_charts
def test_charts_have_all_points_which_name_their_tests_and_open_them_at_a_click(opened):
    page = opened.page
    scroll_through(page)
    for name, least in (("roofline", 80), ("bandwidth", 120)):
        assert page.locator(f"figure[data-chart={name}] .mark-symbol.role-mark path").count() >= least, name
    figure = page.locator("figure[data-chart=roofline]")
    figure.scroll_into_view_if_needed()
    point = figure.locator(".mark-symbol.role-mark path").last
    point.hover()
    name = page.locator(".tip b").inner_text()
    assert re.match(r"test_\w+\[fp(16|32)-\d+\]", name)
    assert "FLOP/byte" in page.locator(".tip").inner_text()
    point.click()
    page.wait_for_selector("tr.panel")
    assert page.locator("tr.open button.test").inner_text() == name


@needs_charts
def test_dark_and_light_follow_the_reader_at_once(open_page, failing):
    page = open_page(failing, dark=True).page
    page.locator("figure[data-chart=roofline]").scroll_into_view_if_needed()
    chart = "document.querySelector('figure[data-chart=roofline] svg').style.backgroundColor"
    page.wait_for_function(
        f"() => document.querySelector('figure[data-chart=roofline] svg') && {chart} === 'rgb(20, 23, 27)'"
    )
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 27)"
    page.emulate_media(color_scheme="light")
    page.wait_for_function(f"() => {chart} === 'rgb(255, 255, 255)'")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"


def test_a_phone_needs_no_sideways_scrolling(open_page, failing):
    page = open_page(failing, size=PHONE, has_touch=True).page
    page.locator("button.test").first.click()
    scroll_through(page)
    assert page.evaluate("document.documentElement.scrollWidth") == PHONE[0]
    for selector in ("h1", ".facts", "tr.panel", "figure[data-chart]", "tbody.rows > tr > td"):
        for box in [element.bounding_box() for element in page.locator(selector).all()[:40]]:
            assert box is None or (box["x"] >= 0 and box["x"] + box["width"] <= PHONE[0]), selector


def test_on_paper_all_rows_are_there_and_the_tools_are_not(opened):
    page = opened.page
    page.emulate_media(media="print")
    assert page.locator(".tools").is_hidden()
    assert page.locator("tbody.rows").last.evaluate("b => getComputedStyle(b).contentVisibility") == "visible"
    # Charts shrink to the sheet, and the room kept for them with them.
    assert page.locator("figure[data-chart]").first.evaluate("f => getComputedStyle(f).minHeight") == "0px"
    assert len(page.pdf(format="A4")) > 20_000


def test_without_javascript_verdict_failures_and_table_are_readable(open_page, failing):
    page = open_page(failing, java_script_enabled=False).page
    assert page.locator(".failures li").count() == 4
    assert page.locator("tbody.rows > tr").count() == 120
    assert page.locator(".tools").is_hidden()
    assert page.get_by_text("need JavaScript").is_visible()


@pytest.mark.parametrize(("size", "dark", "failing"), [(DESKTOP, False, 4), (PHONE, True, 4), (DESKTOP, True, 0)])
def test_axe_finds_nothing(open_page, violations, size, dark, failing):
    outcomes = [*run_documents.outcomes(40, failing=failing, unjudged=failing), run_documents.improved()]
    findings = [{"code": "device", "text": "the probe is 6 % down"}] if failing else []
    page = open_page(render_html(run_documents.run_document(outcomes, findings=findings)), size=size, dark=dark).page
    page.locator("button.test").first.click()
    scroll_through(page)
    page.locator(".chip").first.click()
    assert violations(page) == []


def test_axe_finds_nothing_in_odd_runs(open_page, violations):
    page = open_page(render_html(run_documents.run_document([]))).page
    assert violations(page) == []
    page = open_page(render_html(run_documents.run_document([run_documents.counted()]))).page
    page.locator("button.test").first.click()
    assert violations(page) == []
