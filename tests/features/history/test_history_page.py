"""The page of a history: what stands in it, and what it refuses to hold."""

from __future__ import annotations

from collections import Counter

import pytest
from histories import page_of, point, trend
from hostile import HOSTILE
from html_pages import Page

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history import page as history_html
from pytest_bandwidth.features.history.trend import (
    Series,
    bars,
    commit_rows,
    overview_row,
    summary_of,
    trend_of,
)
from pytest_bandwidth.reports.pages import charts_available


def test_levels_commits_and_changes_are_told_and_bars_show_steps():
    one = trend()
    assert [(level.start, level.stop, round(level.value, 3)) for level in one.levels] == [(0, 10, 0.9), (10, 20, 0.85)]
    assert one.levels[1].change == pytest.approx(-0.0556, abs=1e-4)
    rows = commit_rows(one)
    assert [row[1:3] for row in rows] == [(f"c{i}", "2") for i in range(10)]
    assert [(row[1], row[-1]) for row in rows if row[-1]] == [("c5", "−5.6 %")]
    assert summary_of(one).endswith("1 change of level, the last −5.6 % at c5 (2026-01-03): now 85.0 % of probe")
    assert bars([1.0, 1.0, 2.0, 2.0], 4) == "▁▁██"
    assert bars([1.0, 2.0] * 8 + [3.0, 4.0] * 8, 2) == "▁█"
    assert set(bars([1.0, 1.001, 0.999], 8)) <= set("▄▅")


@pytest.mark.parametrize("starts", [(), (17,), (18,)])
def test_the_newest_commit_is_the_last_of_all(starts):
    one = trend(starts=starts)
    last = commit_rows(one)[-1]
    assert overview_row(one)[3:6] == last[3:6]
    assert bool(last[-1]) == any(start >= 18 for start in starts)


def test_the_figure_is_what_was_judged_else_what_a_slow_device_moves_least():
    def chosen(**changes) -> str | None:
        found = trend_of(Series("t", "cuda", "d", (point(0, **changes),)), None)
        return found and found.figure

    assert chosen() == "relative"
    assert chosen(judged_on="gbps") == "gbps"
    assert chosen(judged_on=None) == "relative"
    assert chosen(judged_on=None, relative=None) == "gbps"
    assert chosen(judged_on=None, relative=None, gbps=None, sectors=8) == "sectors"
    assert chosen(relative=None, gbps=0.0) is None
    found = trend_of(Series("t", "cuda", "d", (point(0), point(1, relative=None), point(2, relative=0.0))), "relative")
    assert found is not None
    assert [one.run_id for one in found.points] == ["r0"], "those without the figure are no points"


def test_the_page_holds_overview_charts_and_commits():
    page = page_of([trend(), trend(test="tests/t.py::test_triad", starts=())])
    assert "<h1>1 of 2 trends changed level</h1>" in page
    assert '<a class="test" href="#trend-0">tests/t.py::test_copy</a>' in page
    assert "<td>−5.6 %</td><td>c5</td>" in page
    assert page.index("<td>c9</td>") < page.index("<td>c0</td>")
    assert "http://" not in page.replace("http://www.w3.org", "").split("<script>")[0]
    if charts_available():
        layers = Page(page).data["charts"]["0"]["layer"]
        assert len(layers[-1]["data"]["values"]) == 20
        assert [level["text"] for level in layers[0]["data"]["values"]] == ["", "−5.6 % at c5"]


def test_without_charts_it_says_what_to_install(monkeypatch):
    monkeypatch.setattr(history_html, "charts_available", lambda: False)
    page = page_of([trend()])
    assert "pip install &#39;pytest-bandwidth[report]&#39;" in page
    assert "<figure" not in page


@pytest.mark.parametrize(("name", "most"), [("TRENDS_AT_MOST", 1), ("RUNS_AT_MOST", 39)])
def test_more_than_a_page_holds_is_refused(monkeypatch, name, most):
    monkeypatch.setattr(history_html, name, most)
    with pytest.raises(UsageError, match=f"expected at most {most} on a page"):
        page_of([trend(), trend()])


def test_hostile_texts_stay_text():
    hostile = [trend(6, (), test=t, device=t, commit=t, serial=t, status=t[:30]) for t in HOSTILE]
    page = Page(page_of(hostile[: history_html.TRENDS_AT_MOST]))
    names = Counter(tag for tag, _ in page.elements)
    assert names.pop("script") <= 3
    known = "html head meta title style body header main section h1 h2 h3 div p a table thead tbody tr th td "
    assert set(names) <= set((known + "figure details summary span dl dt dd").split())
    attributes = {name for _, given in page.elements for name in given}
    assert [name for name in attributes if name.startswith("on") or name in ("src", "srcdoc", "formaction")] == []
    links = [given["href"] for _, given in page.elements if "href" in given]
    assert all(link.startswith("#") for link in links)
    assert len(page.data.get("charts", {})) in (0, min(len(HOSTILE), history_html.TRENDS_AT_MOST))
