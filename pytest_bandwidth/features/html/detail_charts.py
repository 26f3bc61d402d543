"""Draw the two small charts of one result: the judged figure over the baseline's runs, and the samples.

The page holds one spec of each chart, and the data of every result.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import sub
from typing import Any

from pytest_bandwidth.domain.statistics import quantile
from pytest_bandwidth.domain.text import short_commit
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.judging.limits import floor_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.pages.chart_parts import base
from pytest_bandwidth.reports.pages.theme import Spec
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.reports.values import Plain, mapping, number, sequence, text

# The samples of all results share this many figures, so that a page's size depends little on how many were taken.
SAMPLES_IN_ALL = 200_000
SAMPLES_EACH = (20, 120)
# Samples are kept to this share of their median: finer than any timer resolves, and small in the page.
SAMPLE_STEP = 1e-4


def samples_each(results: int) -> int:
    """Return how many samples of each series a page with so many results shows."""
    least, most = SAMPLES_EACH
    return max(least, min(most, SAMPLES_IN_ALL // max(1, 2 * results)))


def runs_of(outcome: Outcome) -> dict[str, Any]:
    """Return data of the runs chart: GB/s, or percent of the probe; empty where there is nothing to compare with."""
    verdict, baseline = outcome.verdict, outcome.baseline or {}
    figure, own = figure_name(outcome), own_figure(outcome)
    scale = 100.0 if figure == "relative" else 1.0
    runs = [_history_run(run, figure, scale) for run in sequence(baseline, "runs")]
    limits = _limits(outcome, scale)
    if own is None or not (limits or any(runs)):
        return {}
    fresh = sequence(verdict, "confirmations") if text(verdict, "figure") else ()
    return {
        "unit": "% of the probe" if figure == "relative" else "GB/s",
        "runs": [run for run in runs if run],
        "own": _four(own * scale),
        "fresh": [_four(value * scale) for value in fresh[:20]],
        "limits": limits,
    }


def _limits(outcome: Outcome, scale: float) -> list[tuple[float, str]]:
    verdict = outcome.verdict
    reference, allowed = number(verdict, "reference"), number(verdict, "allowed_drop")
    if reference is None:
        return []
    floor = floor_of(text(verdict, "rule"))
    if floor is None:
        limits = [(_four(reference * scale), reference_name(outcome))]
        return limits if allowed is None else [*limits, (_four(reference * (1 - allowed) * scale), "limit")]
    if floor == "min_utilization":
        if not outcome.utilization or outcome.gbps is None:
            return []
        # A floor on a share of the peak, in GB/s: the peak is the row's own GB/s over its own share.
        reference = reference * outcome.gbps / outcome.utilization
    return [(_four(reference * scale), "floor")]


def _history_run(run: Plain, figure: str, scale: float) -> tuple[float, str] | None:
    """Return (value, when and at which commit), None where the run does not hold the figure."""
    value = number(run, figure)
    if value is None and figure == "relative":
        gbps, probe = number(run, "gbps"), number(run, "probe_gbps")
        value = gbps / probe if gbps is not None and probe else None
    if value is None:
        return None
    stamps = (one_line(text(run, "at"), 40), one_line(short_commit(text(run, "commit")), 16))
    return _four(value * scale), ", ".join(stamp for stamp in stamps if stamp)


def samples_of(outcome: Outcome, at_most: int) -> dict[str, tuple[float, list[int]]]:
    """Pack GB/s of the kernel's and the probe's samples as (unit, steps): ascending, each a step above the last.

    Where there are too many, evenly spaced quantiles of them.
    """
    series = {
        "kernel": _rates(outcome.samples, outcome.bytes_moved),
        "probe": _rates(outcome.probe_samples, number(outcome.probe, "bytes_moved") or 0.0),
    }
    return {name: _thinned(values, at_most) for name, values in series.items() if values}


def _rates(seconds: Iterable[float], bytes_moved: float) -> list[float]:
    gigabytes = bytes_moved / 1e9
    return [gigabytes / s for s in seconds if s > 0] if 0 < bytes_moved < 1e30 else []


def _thinned(values: Sequence[float], at_most: int) -> tuple[float, list[int]]:
    ordered = sorted(values)
    if len(ordered) > at_most:
        ordered = [quantile(ordered, i / (at_most - 1)) for i in range(at_most)]
    unit = float(f"{quantile(ordered, 0.5) * SAMPLE_STEP:.6g}")
    places = [round(value / unit) for value in ordered]
    return unit, list(map(sub, places, [0, *places[:-1]]))


def own_figure(outcome: Outcome) -> float | None:
    """Return this run's value of the figure that was judged: GB/s, or a share of the probe."""
    return outcome.relative if figure_name(outcome) == "relative" else outcome.gbps


def reference_name(outcome: Outcome) -> str:
    """Say what a row was compared with: a floor, old code that ran here, or the baseline's stored figures."""
    rule, by = text(outcome.verdict, "rule"), mapping(outcome.verdict, "facts").get("by")
    if floor_of(rule) is not None:
        return "floor"
    with_old_code = (Rule.OLD_KERNEL, Rule.PAIRS)
    return "old code" if rule in with_old_code or by in with_old_code else "baseline"


def figure_name(outcome: Outcome) -> str:
    """Return ``relative`` or ``gbps``; floors on a share of the peak are shown in GB/s."""
    verdict = outcome.verdict
    on_probe = text(verdict, "figure") == "relative" or floor_of(text(verdict, "rule")) == "min_relative"
    return "relative" if on_probe else "gbps"


def _four(value: float) -> float:
    return float(f"{value:.4g}") if abs(value) < 1e4 else float(f"{value:.5g}")


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
