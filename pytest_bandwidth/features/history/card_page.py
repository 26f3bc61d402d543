"""Write the page of a fleet's cards over time: a row for each, those that drift first; no scripts, no network."""

from __future__ import annotations

from pytest_bandwidth.features.history.card_trend_texts import CARD_HEADINGS, CardTrends, card_rows, drift_lines
from pytest_bandwidth.reports.pages.template import Templates, policy, style_sheet
from pytest_bandwidth.reports.text_safe import one_line

TEXT_AT_MOST = 300
_TEMPLATES = Templates("pytest_bandwidth.features.history")


def render_card_trends(told: CardTrends) -> str:
    """Return the page."""
    style = style_sheet()
    sentence, *drifting = (one_line(line, TEXT_AT_MOST) for line in drift_lines(told))
    return _TEMPLATES.render(
        "card_trends.html.j2",
        policy=policy(style, []),
        style=style,
        sentence=sentence,
        drifting=drifting,
        headings=CARD_HEADINGS,
        rows=[tuple(one_line(cell, TEXT_AT_MOST) for cell in row) for row in card_rows(told)],
    )
