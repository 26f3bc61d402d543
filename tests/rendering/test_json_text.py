"""The JSON document as text: strict, and the same values again when it is read."""

import json
import math

import pytest

from pytest_bandwidth.rendering.json import render_json


@pytest.mark.parametrize("text", ["é\N{CLOUD}", "t\udc80.py", "\ud83d alone", 'a "quoted" \\ud800 \x00', "\u2028"])
def test_any_text_comes_back_from_a_file(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(render_json({"nodeid": text}), encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8")) == {"nodeid": text}


def test_characters_are_kept_where_utf8_has_them():
    assert "é\N{CLOUD}" in render_json({"name": "é\N{CLOUD}"})


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value):
    assert json.loads(render_json({"results": [{"gbps": value, "samples": (1.0, value)}]})) == {
        "results": [{"gbps": None, "samples": [1.0, None]}]
    }
