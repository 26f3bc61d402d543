"""Draw the two small charts of one result, as specs whose data the page fills in: its history and its samples."""

from __future__ import annotations

from pytest_bandwidth.reports.pages.chart_parts import base
from pytest_bandwidth.reports.pages.theme import Spec


def detail_specs() -> dict[str, Spec]:
    """Return `runs`, the judged figure over the baseline's runs, and `samples`, their distribution."""
    return {"runs": _runs(), "samples": _samples()}


def _runs() -> Spec:
    """Draw the runs chart of datasets runs = {position, value, kind, label}, limits = {value, text}."""
    spec = base("", "", "The baseline's runs, the oldest first, then this run and its fresh processes", 130)
    del spec["title"]
    kinds = ["baseline run", "this run", "fresh process"]
    y = {
        "field": "value",
        "type": "quantitative",
        "scale": {"zero": False, "nice": True, "padding": 8},
        "axis": {"title": None, "tickCount": 4},
    }
    legend = {"orient": "top", "title": None}
    spec["layer"] = [
        {
            "data": {"name": "limits"},
            "mark": {"type": "rule", "color": "$axis"},
            "encoding": {
                "y": y,
                "strokeDash": {"condition": {"test": "datum.text === 'limit'", "value": [3, 3]}, "value": [1, 0]},
            },
        },
        {
            "data": {"name": "limits"},
            "mark": {"type": "text", "align": "right", "baseline": "bottom", "dy": -2},
            "encoding": {"y": y, "x": {"value": {"expr": "width"}}, "text": {"field": "text"}},
        },
        {
            "data": {"name": "runs"},
            "mark": {"type": "point", "filled": True, "size": 60, "opacity": 1},
            "encoding": {
                "x": {
                    "field": "position",
                    "type": "quantitative",
                    "scale": {"zero": False, "nice": False, "padding": 12},
                    "axis": None,
                },
                "y": y,
                "color": {
                    "field": "kind",
                    "type": "nominal",
                    "scale": {"domain": kinds, "range": ["$mark", "$ink", "$other"]},
                    "legend": legend,
                },
                "shape": {
                    "field": "kind",
                    "type": "nominal",
                    "scale": {"domain": kinds, "range": ["circle", "diamond", "square"]},
                    "legend": legend,
                },
                "tooltip": [{"field": f, "type": "nominal"} for f in ("kind", "figure", "when")],
            },
        },
    ]
    return spec


def _samples() -> Spec:
    """Draw the samples chart; dataset: samples = {series: kernel | probe, gbps}."""
    spec = base("", "", "Distribution of the kernel's and the probe's samples, in GB/s", 84)
    del spec["title"]
    x = {
        "field": "gbps",
        "type": "quantitative",
        "scale": {"zero": False, "padding": 6},
        "axis": {"title": "GB/s", "tickCount": 5},
    }
    y = {
        "field": "series",
        "type": "nominal",
        "sort": ["kernel", "probe"],
        "axis": {"title": None, "labelColor": "$ink"},
    }
    spec["data"] = {"name": "samples"}
    spec["layer"] = [
        {
            "mark": {"type": "tick", "thickness": 1.5, "opacity": 0.45, "height": {"band": 0.6}},
            "encoding": {
                "x": x,
                "y": y,
                "color": {
                    "field": "series",
                    "type": "nominal",
                    "scale": {"domain": ["kernel", "probe"], "range": ["$mark", "$other"]},
                    "legend": None,
                },
            },
        },
        {
            "mark": {"type": "tick", "thickness": 2.5, "color": "$ink", "height": {"band": 0.8}},
            "encoding": {"x": {**x, "aggregate": "median"}, "y": y},
        },
    ]
    return spec
