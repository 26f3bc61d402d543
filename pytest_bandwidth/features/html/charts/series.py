"""Chart results that belong together: FP32 beside FP16, and one operation over many sizes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.pages.chart_parts import TIP_OF_ROW, WIDE_ONLY, base, log_encoding, unique
from pytest_bandwidth.reports.pages.theme import Spec
from pytest_bandwidth.reports.related import precision_pairs, size_sweeps
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.storage.saved_run import RunDocument

PAIRS_AT_MOST = 40
SWEEPS_AT_MOST = 24
TEXT_ROOM = 1.9


def pairs_spec(run: RunDocument) -> Spec | None:
    """Return GB/s of each operation in FP32 and FP16, with both ratios; None where there is no such pair."""
    pairs = precision_pairs(run.outcomes)
    if not pairs:
        return None
    rows = {id(outcome): index for index, outcome in enumerate(run.outcomes)}
    names = unique([one_line(pair.name, 60) for pair in pairs[:PAIRS_AT_MOST]])
    points: list[dict[str, Any]] = []
    spans: list[dict[str, Any]] = []
    for name, pair in zip(names, pairs, strict=False):
        ratios = _ratio_text(pair.bandwidth_ratio, pair.time_ratio)
        ends = [pair.fp32.gbps or 0.0, pair.fp16.gbps or 0.0]
        spans.append({"pair": name, "low": min(ends), "high": max(ends), "ratio": ratios})
        for precision, outcome in (("FP32", pair.fp32), ("FP16", pair.fp16)):
            points.append(
                {
                    "row": rows[id(outcome)],
                    "pair": name,
                    "precision": precision,
                    "gbps": outcome.gbps,
                    "FP16 ÷ FP32": ratios,
                }
            )
    spec = base(
        "FP32 and FP16",
        _legend("ratios: FP16 ÷ FP32", len(pairs), PAIRS_AT_MOST),
        f"GB/s of {len(spans)} operations in both",
        14 + 22 * len(spans),
    )
    # The ratios stand at the right of the larger half and need room there.
    scale: Spec = {"domain": [0, TEXT_ROOM * max(span["high"] for span in spans)], "nice": True}
    y: Spec = {"field": "pair", "type": "nominal", "sort": names, "axis": {"title": None, "labelColor": "$ink"}}
    spec["layer"] = [
        {
            "data": {"values": spans},
            "mark": {"type": "rule", "color": "$axis", "strokeWidth": 2},
            "encoding": {"y": y, "x": _gbps("low", scale), "x2": {"field": "high"}},
        },
        {
            "data": {"values": spans},
            "name": WIDE_ONLY,
            "mark": {"type": "text", "align": "left", "dx": 9},
            "encoding": {"y": y, "x": _gbps("high", scale), "text": {"field": "ratio"}},
        },
        {
            "data": {"values": points},
            "mark": {"type": "point", "filled": True, "size": 70, "opacity": 1, "cursor": "pointer"},
            "encoding": {
                "y": y,
                "x": _gbps("gbps", scale),
                **_by_precision(["FP32", "FP16"]),
                "tooltip": TIP_OF_ROW,
            },
        },
    ]
    return spec


def sweeps_spec(run: RunDocument) -> Spec | None:
    """Return GB/s over bytes moved, one small chart for each operation; None where none has three sizes."""
    sweeps = size_sweeps(run.outcomes)
    if not sweeps:
        return None
    rows = {id(outcome): index for index, outcome in enumerate(run.outcomes)}
    names = list(dict.fromkeys(sweep.name for sweep in sweeps))
    shown = {name: one_line(name, 40) for name in names[:SWEEPS_AT_MOST]}
    points: list[dict[str, Any]] = [
        _sweep_point(rows[id(outcome)], shown[sweep.name], sweep.precision, outcome)
        for sweep in sweeps
        if sweep.name in shown
        for outcome in sweep.outcomes
    ]
    precisions = list(dict.fromkeys(p["precision"] for p in points))
    spec = base(
        "Size sweeps", _legend("", len(names), SWEEPS_AT_MOST), f"GB/s over bytes moved of {len(shown)} operations", 96
    )
    del spec["width"], spec["height"], spec["autosize"]
    spec |= {
        "data": {"values": points},
        "columns": 3,
        "facet": {"field": "sweep", "type": "nominal", "sort": list(shown.values()), "header": {"labelLimit": 190}},
        "spacing": {"row": 14, "column": 18},
        "spec": {
            "width": 190,
            "height": 96,
            "mark": {"type": "line", "point": {"filled": True, "size": 34}, "strokeWidth": 1.5, "cursor": "pointer"},
            "encoding": {
                "x": log_encoding("bytes", "bytes moved", [p["bytes"] for p in points], "~s"),
                "y": _gbps("gbps") | {"axis": {"title": "GB/s", "tickCount": 4}},
                **_by_precision(precisions),
                "tooltip": TIP_OF_ROW,
            },
        },
    }
    return spec


def _sweep_point(row: int, name: str, precision: str, outcome: Outcome) -> dict[str, Any]:
    return {
        "row": row,
        "sweep": name,
        "precision": one_line(precision, 12).upper() or "unnamed",
        "bytes": outcome.bytes_moved,
        "gbps": outcome.gbps,
    }


def _by_precision(present: Iterable[str]) -> dict[str, Spec]:
    """Return colour and shape by precision, FP32 and FP16 always alike."""
    known = {"FP32": ("$mark", "circle"), "FP16": ("$other", "square")}
    rest = [name for name in present if name not in known]
    looks = known | {
        name: (("$ink", "$muted")[i % 2], ("diamond", "triangle-up")[i // 2 % 2]) for i, name in enumerate(rest)
    }
    domain = [name for name in looks if name in set(present)]
    legend = None if len(domain) == 1 else {"orient": "top", "title": None}
    return {
        channel: {
            "field": "precision",
            "type": "nominal",
            "scale": {"domain": domain, "range": [looks[name][which] for name in domain]},
            "legend": legend,
        }
        for which, channel in enumerate(("color", "shape"))
    }


def _gbps(field: str, scale: Mapping[str, Any] = MappingProxyType({"zero": True})) -> Spec:
    return {"field": field, "type": "quantitative", "scale": dict(scale), "axis": {"title": "GB/s", "tickCount": 5}}


def _ratio_text(bandwidth: float | None, time: float | None) -> str:
    parts = []
    if bandwidth is not None:
        parts.append(f"{bandwidth:.2f} × GB/s")
    if time is not None:
        parts.append(f"{time:.2f} × time")
    return ", ".join(parts)


def _legend(words: str, found: int, at_most: int) -> str:
    cut = "" if found <= at_most else f"the first {at_most} of {found}"
    return "; ".join(part for part in (words, cut) if part)
