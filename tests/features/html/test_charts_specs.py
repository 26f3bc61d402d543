"""Chart specs: what they draw, that Vega-Lite takes them, and that their SVG and PNG are harmless files."""

from __future__ import annotations

import json
import re
import struct
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from typing import Any

import pytest
import run_documents
from hostile import hostile_document

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.html import charts
from pytest_bandwidth.features.html.charts import NAMED_ROWS_AT_MOST, chart_specs, render_chart
from pytest_bandwidth.reports.pages import DARK, LIGHT, charts_available, resolved

needs_vl_convert = pytest.mark.skipif(
    not charts_available(), reason="vl-convert-python is not installed: pip install 'pytest-bandwidth[report]'"
)


@pytest.fixture(scope="module")
def document() -> dict[str, Any]:
    return run_documents.run_document(run_documents.outcomes(80, failing=3, unjudged=4))


def points_of(spec: dict[str, Any]) -> list[dict[str, Any]]:
    """The points of results; roofs, rules and labels have no row."""
    layers = [spec, *spec.get("layer", [])]
    found = [v for layer in layers for v in layer.get("data", {}).get("values", []) if "row" in v]
    return list({json.dumps(v, sort_keys=True): v for v in found}.values())


def test_the_roofline_places_each_result_and_draws_failed_ones_last_never_by_colour_alone(
    document: dict[str, Any],
) -> None:
    specs = chart_specs(document)
    assert list(specs) == ["roofline", "bandwidth"]
    points = points_of(specs["roofline"])
    computing = [r for r in document["results"] if r["flop"]]
    assert len(points) == len(computing)
    for point in points:
        result = document["results"][point["row"]]
        assert point["gflops"] == pytest.approx(result["flop"] / result["seconds"] / 1e9)
        assert point["intensity"] == pytest.approx(result["flop"] / (result["bytes_read"] + result["bytes_written"]))
    layer = chart_specs(document)["roofline"]["layer"][-1]
    endings = [v["ending"] for v in layer["data"]["values"]]
    assert endings[-1] == "failed"
    assert endings == sorted(endings, key=["passed", "improved", "not judged", "failed"].index)
    assert layer["encoding"]["shape"]["field"] == layer["encoding"]["color"]["field"] == "ending"


def test_roofs_meet_at_the_ridge_and_without_a_peak_there_is_the_probe_alone(document: dict[str, Any]) -> None:
    spec = chart_specs(document)["roofline"]
    corners = [v for layer in spec["layer"] for v in layer["data"]["values"] if v.get("roof", "").endswith("fp32")]
    # 20 TFLOP/s over 1000 GB/s: the ridge is at 20 FLOP/byte
    ridge = next(c for c in corners if c["intensity"] == pytest.approx(20))
    assert ridge["gflops"] == pytest.approx(20_000)
    assert max(c["gflops"] for c in corners) == pytest.approx(20_000)
    spec = chart_specs({**document, "device": {**document["device"], "peak": None}})["roofline"]
    roofs = {v["roof"] for layer in spec["layer"] for v in layer["data"]["values"] if "roof" in v}
    assert roofs == {"probe"}


def test_few_results_are_named_rows_of_names_apart_and_many_a_scatter() -> None:
    few = run_documents.run_document(run_documents.outcomes(NAMED_ROWS_AT_MOST))
    many = run_documents.run_document(run_documents.outcomes(NAMED_ROWS_AT_MOST + 1))
    assert len({p["name"] for p in points_of(chart_specs(few)["bandwidth"])}) == NAMED_ROWS_AT_MOST
    spec = chart_specs(many)["bandwidth"]
    assert len(points_of(spec)) == NAMED_ROWS_AT_MOST + 1
    assert spec["layer"][-1]["encoding"]["x"]["scale"]["type"] == "log"
    assert chart_specs(run_documents.run_document([run_documents.counted()])) == {}, "what is counted has no rate"
    outcome = run_documents.outcomes(1)[0]
    spec = chart_specs(run_documents.run_document([outcome, replace(outcome, nodeid=f"other/{outcome.nodeid}")]))[
        "bandwidth"
    ]
    names = [p["name"] for p in spec["data"]["values"]]
    assert names[1] == f"{names[0]} (2)"


@pytest.mark.parametrize("peak", [1000.0, None])
def test_the_row_that_is_furthest_from_what_the_device_can_do_comes_first(peak: float | None) -> None:
    document = run_documents.run_document(run_documents.outcomes(10))
    if peak is None:
        document["device"]["peak"] = None
    spec = chart_specs(document)["bandwidth"]
    points = spec["data"]["values"]
    shares = [point["gbps"] / (peak or point["probe"]) for point in points]
    assert shares == sorted(shares)
    assert spec["layer"][-1]["encoding"]["y"]["sort"] == [point["name"] for point in points]
    assert f"furthest from {'the peak' if peak else 'its probe'} first" in spec["title"]["subtitle"]


def test_colour_tokens_in_data_stay_text() -> None:
    spec = {"mark": {"color": "$bad"}, "data": {"values": [{"test": "$bad"}]}, "datasets": {"a": ["$bad"]}}
    assert resolved(spec, DARK) == {
        "mark": {"color": DARK["bad"]},
        "data": {"values": [{"test": "$bad"}]},
        "datasets": {"a": ["$bad"]},
    }


@pytest.mark.parametrize("palette", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_reach_wcag_aa(palette: dict[str, str]) -> None:
    for ground in ("surface", "raised"):
        for text in ("ink", "muted", "link", "bad", "warn", "good"):
            assert contrast(palette[text], palette[ground]) >= 4.5, (text, ground)
    for severity in ("bad", "warn", "good"):
        assert contrast(palette[severity], palette[f"{severity}-soft"]) >= 4.5
    for mark in ("mark", "other", "axis", "control"):
        assert contrast(palette[mark], palette["surface"]) >= 3, mark


def contrast(one: str, other: str) -> float:
    """Contrast ratio (WCAG 2.2, definition of relative luminance)."""

    def luminance(colour: str) -> float:
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@needs_vl_convert
def test_every_chart_becomes_svg_and_png(document: dict[str, Any]) -> None:
    for name, spec in chart_specs(document).items():
        svg = ElementTree.fromstring(render_chart(document, name, "svg"))
        symbols = [e for e in svg.iter() if "mark-symbol" in e.get("class", "")]
        marks = [path for one in symbols for path in one.iter("{http://www.w3.org/2000/svg}path")]
        assert len(marks) >= len(points_of(spec)), name
    png = render_chart(document, "bandwidth", "png")
    assert png[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", png[16:24])[0] > 600


@needs_vl_convert
def test_an_svg_of_hostile_names_holds_no_script_and_no_link() -> None:
    document = hostile_document()
    for name in chart_specs(document):
        for element in ElementTree.fromstring(render_chart(document, name, "svg")).iter():
            tag = element.tag.rsplit("}", 1)[-1]
            assert tag not in ("script", "foreignObject", "a", "use", "image", "iframe", "animate", "set"), tag
            assert not any(re.match(r"(.*\}href|on.*)$", key) for key in element.attrib)


def test_an_unknown_chart_is_named_with_those_there_are_and_without_vl_convert_what_to_install(
    document: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="found 'pie', expected one that this run has data for: roofline, bandwidth"):
        render_chart(document, "pie", "svg")
    monkeypatch.setattr(charts, "charts_available", lambda: False)
    with pytest.raises(UsageError, match=r"pip install 'pytest-bandwidth\[report\]'"):
        render_chart(document, "roofline", "svg")
