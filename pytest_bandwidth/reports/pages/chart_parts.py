"""Make pieces that several charts share: frame, axes, and how a result looks by the way it ended."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.pages.theme import CONFIG, SCHEMA, Spec
from pytest_bandwidth.reports.summary import severity_of
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.storage.saved_run import RunDocument

NAME_AT_MOST = 80
# How results end, in words; failures are drawn last, so that they lie on top.
ENDINGS = {"plain": "passed", "good": "improved", "warn": "not judged", "bad": "failed"}
# Layers of this name go where there is no room for their texts.
WIDE_ONLY = "wide-only"


def base(title: str, subtitle: str, description: str, height: int) -> Spec:
    """Return the part of a spec that every chart starts from."""
    return {
        "$schema": SCHEMA,
        "title": {"text": title, "subtitle": subtitle} if subtitle else title,
        "description": description,
        "width": 560,
        "height": height,
        "autosize": {"type": "fit-x", "contains": "padding"},
        "config": CONFIG,
    }


def ending_encoding(present: set[str]) -> dict[str, Spec]:
    """Return colour and shape by how a result ended: never by colour alone. No legend where all ended alike."""
    domain = [ending for ending in ENDINGS.values() if ending in present]
    colours = {ending: f"${'mark' if severity == 'plain' else severity}" for severity, ending in ENDINGS.items()}
    shapes = {"passed": "circle", "improved": "triangle-up", "not judged": "diamond", "failed": "square"}
    legend = None if len(domain) == 1 else {"orient": "top", "title": None, "symbolOpacity": 1}
    return {
        channel: {
            "field": "ending",
            "type": "nominal",
            "scale": {"domain": domain, "range": [marks[ending] for ending in domain]},
            "legend": legend,
        }
        for channel, marks in (("color", colours), ("shape", shapes))
    }


def log_encoding(field: str, title: str, values: Iterable[float], label: str) -> Spec:
    """Return a logarithmic axis over positive values with a few round ticks; `label`: a d3 number format."""
    known = list(values)
    low, high = min(known), max(known)
    low, high = low / 1.25, high * 1.25
    return {
        "field": field,
        "type": "quantitative",
        "scale": {"type": "log", "domain": [low, high], "nice": False},
        "axis": {"title": title, "values": log_ticks(low, high), "format": label},
    }


def log_ticks(low: float, high: float) -> list[float]:
    """Return powers of ten between two positive values, few enough to be read; with 2 and 5 where those are near."""
    decades = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    if len(decades) > 4:
        step = math.ceil(len(decades) / 7)
        return [float(f"1e{power}") for power in decades if power % step == 0 and low <= float(f"1e{power}") <= high]
    marks = [float(f"{digit}e{power}") for power in decades for digit in (1, 2, 5)]
    return [mark for mark in marks if low <= mark <= high]


def identity(run: RunDocument, index: int, outcome: Outcome) -> dict[str, Any]:
    """Return which result a point shows, by its place in the document, and how that ended."""
    return {"row": index, "ending": ENDINGS[severity_of(Status[outcome.status], strict=run.strict)]}


def test_name(outcome: Outcome) -> str:
    """Return the test without its file, with its label."""
    name = outcome.nodeid.partition("::")[2] or outcome.nodeid
    return one_line(f"{name} @ {outcome.label}" if outcome.label else name, NAME_AT_MOST)


def gravest_last(points: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return points in the order of drawing: what failed lies on top."""
    order = list(ENDINGS.values())
    return sorted(points, key=lambda p: order.index(p["ending"]))


def tooltip(*fields: str) -> list[Spec]:
    return [{"field": field, "type": "nominal"} for field in fields]


# The page's script fills it from the table.
TIP_OF_ROW = tooltip("row")


def unique(names: Sequence[str]) -> list[str]:
    """Return the names with a number after each that came before: an axis would draw equal ones as one."""
    seen: dict[str, int] = {}
    told_apart = []
    for name in names:
        seen[name] = count = seen.get(name, 0) + 1
        told_apart.append(name if count == 1 else f"{name} ({count})")
    return told_apart
