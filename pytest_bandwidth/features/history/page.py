"""Write the page of a history: every trend with its chart, and its runs by commit; one file, without network."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.features.history.trend import Measured, Trend
from pytest_bandwidth.features.history.trend_chart import run_points, trend_spec
from pytest_bandwidth.features.history.trend_texts import (
    COMMIT_HEADINGS,
    FIGURE_WORDS,
    OVERVIEW_HEADINGS,
    commit_rows,
    overview_row,
    summary_of,
)
from pytest_bandwidth.reports.pages.chart_library import MISSING, charts_available, javascript_bundle
from pytest_bandwidth.reports.pages.template import Templates, embedded, policy, style_sheet
from pytest_bandwidth.reports.pages.theme import DARK, LIGHT
from pytest_bandwidth.reports.text_safe import clean, one_line

# What a page holds at most, so that it opens on a phone.
TRENDS_AT_MOST = 200
RUNS_AT_MOST = 40_000
COMMITS_AT_MOST = 200
DEVICES_NAMED = 5
NAME_AT_MOST = 300
_TEMPLATES = Templates("pytest_bandwidth.features.history")
# The charts say what the bars say.
_OVERVIEW = OVERVIEW_HEADINGS[1:-1]


@dataclass(frozen=True, slots=True)
class _Section:
    """Hold one trend's part of the page; texts are cleaned. commits: rows of COMMIT_HEADINGS, the newest first."""

    anchor: str
    test: str
    device: str
    figure: str
    summary: str
    overview: tuple[str, ...]
    headings: tuple[str, ...]
    commits: tuple[tuple[str, ...], ...]
    left_out: int


def render_history(measured: Sequence[Measured], changed: Callable[[], Sequence[Trend]]) -> str:
    """Return the page. changed: gives the trends of what was measured; called once all is done that does not need them.

    Raises UsageError for more trends or runs than a page can hold.
    """
    runs = sum(len(one.points) for one in measured)
    if len(measured) > TRENDS_AT_MOST:
        raise UsageError(f"found {len(measured)} trends, expected at most {TRENDS_AT_MOST} on a page: choose by KEY")
    if runs > RUNS_AT_MOST:
        raise UsageError(f"found {runs} runs, expected at most {RUNS_AT_MOST} on a page: use --newest or choose by KEY")
    drawn = [run_points(one) for one in measured] if charts_available() else []
    style, script, library = style_sheet(), _TEMPLATES.script("history.js"), javascript_bundle() if drawn else ""
    trends = changed()
    columns = _filled([overview_row(trend)[1:-1] for trend in trends])
    charts = {str(i): trend_spec(trends[i], points) for i, points in enumerate(drawn)}
    return _TEMPLATES.render(
        "history.html.j2",
        policy=policy(style, [script, *([library] if library else [])]),
        style=style,
        script=script,
        library=library,
        sentence=_sentence(trends),
        facts=_facts(trends),
        headings=[_OVERVIEW[i] for i in columns],
        sections=[_section(i, trend, columns) for i, trend in enumerate(trends)],
        charts_missing=None if charts else MISSING,
        data=embedded({"charts": charts, "palettes": {"light": LIGHT, "dark": DARK}}),
    )


def _sentence(trends: Sequence[Trend]) -> str:
    changed = sum(len(trend.levels) > 1 for trend in trends)
    if len(trends) == 1:
        return "The level of this test changed" if changed else "The level of this test never changed"
    return f"{changed or 'None'} of {len(trends)} trends changed level"


def _facts(trends: Sequence[Trend]) -> list[str]:
    points = [point for trend in trends for point in trend.points]
    devices = dict.fromkeys(one_line(trend.series.device, 80) for trend in trends)
    days = sorted(point.at for point in points)
    runs, commits = len({point.run_id for point in points}), len({point.commit_name for point in points})
    return [
        listed(list(devices), DEVICES_NAMED),
        f"{runs} runs of {commits} commits",
        f"{days[0]:%Y-%m-%d} to {days[-1]:%Y-%m-%d}",
    ]


def _section(number: int, trend: Trend, columns: Sequence[int]) -> _Section:
    rows = commit_rows(trend)[::-1]
    kept, whole = _filled(rows), overview_row(trend)[1:-1]
    return _Section(
        anchor=f"trend-{number}",
        test=one_line(trend.series.test, NAME_AT_MOST) or "(unnamed)",
        device=one_line(trend.series.device, 120),
        figure=FIGURE_WORDS[trend.figure],
        summary=clean(summary_of(trend), 400),
        overview=tuple(one_line(whole[i], 120) for i in columns),
        headings=tuple(COMMIT_HEADINGS[i] for i in kept),
        commits=tuple(tuple(one_line(row[i], 80) for i in kept) for row in rows[:COMMITS_AT_MOST]),
        left_out=max(0, len(rows) - COMMITS_AT_MOST),
    )


def _filled(rows: Sequence[Sequence[str]]) -> list[int]:
    """Return the columns that hold anything in any row."""
    return [i for i in range(len(rows[0])) if any(row[i] for row in rows)]
