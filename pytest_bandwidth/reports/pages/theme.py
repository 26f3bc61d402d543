"""Choose colours and chart configuration, in one place for the page's style sheet and for every chart.

Specs name colours by token (``$bad``); `resolved` puts a palette's colours in their place. Text colours reach 4.5 : 1
on `surface` and on `raised`, marks 3 : 1 (WCAG 2.2, 1.4.3 and 1.4.11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Spec = dict[str, Any]
Palette = Mapping[str, str]

# Each colour by token: on light, on dark.
_COLOURS = {
    "surface": ("#ffffff", "#14171b"),
    "raised": ("#f5f6f7", "#1d2126"),
    "line": ("#dcdfe3", "#31373e"),
    "control": ("#858d98", "#707a86"),
    "ink": ("#1b1f24", "#e5e8eb"),
    "muted": ("#58616c", "#a0a9b4"),
    "link": ("#1d5bb8", "#8ab6f5"),
    "bad": ("#b3261e", "#ff8a80"),
    "bad-soft": ("#fcecea", "#3a1f1e"),
    "warn": ("#8a5200", "#eab55c"),
    "warn-soft": ("#fbf1de", "#352a17"),
    "good": ("#17693c", "#79cf9d"),
    "good-soft": ("#e7f4ec", "#17301f"),
    "mark": ("#4a6f9c", "#8aaed8"),
    "mark-soft": ("#d3deeb", "#2b3a4c"),
    "other": ("#9a6a24", "#d8ab68"),
    "axis": ("#8b939d", "#727b86"),
    "grid": ("#eceef0", "#252a30"),
}
LIGHT: Palette = {token: light for token, (light, _) in _COLOURS.items()}
DARK: Palette = {token: dark for token, (_, dark) in _COLOURS.items()}
FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif"
SCHEMA = "https://vega.github.io/schema/vega-lite/v6.json"


def resolved(spec: Any, palette: Palette) -> Any:
    """Return the spec with every colour token replaced; data is left as it is, whatever it spells."""
    if isinstance(spec, str):
        return palette.get(spec[1:], spec) if spec.startswith("$") else spec
    if isinstance(spec, Mapping):
        return {k: v if k in ("data", "datasets") else resolved(v, palette) for k, v in spec.items()}
    if isinstance(spec, list):
        return [resolved(item, palette) for item in spec]
    return spec


CONFIG: Spec = {
    "background": "$surface",
    "font": FONT,
    "view": {"stroke": None},
    "title": {
        "anchor": "start",
        "fontSize": 13,
        "fontWeight": 600,
        "color": "$ink",
        "subtitleColor": "$muted",
        "subtitleFontSize": 11,
        "subtitlePadding": 5,
        "offset": 8,
    },
    "axis": {
        "labelColor": "$muted",
        "titleColor": "$muted",
        "titleFontWeight": "normal",
        "titleFontSize": 11,
        "labelFontSize": 11,
        "gridColor": "$grid",
        "domainColor": "$axis",
        "tickColor": "$axis",
        "tickSize": 4,
    },
    "axisY": {"domain": False, "ticks": False, "labelLimit": 260},
    "legend": {"labelColor": "$muted", "labelFontSize": 11, "symbolSize": 60, "offset": 2},
    "header": {
        "labelColor": "$ink",
        "labelFontSize": 11,
        "labelFontWeight": 600,
        "labelAnchor": "start",
        "title": None,
    },
    "text": {"color": "$muted", "fontSize": 11},
}
