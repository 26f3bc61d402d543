"""The page of a fleet: what it says, and that nothing hides."""

from __future__ import annotations

import pytest

from pytest_bandwidth.features.fleet.overview import render_fleet


def card(number: int, state: str = "measured", **changed: object) -> dict:
    device = {"kind": "cuda", "name": "NVIDIA H100", "serial": f"GPU-{number}", "timed_on": "gpu", "memory_gib": 80}
    return {
        "name": f"gpu1 GPU {number}",
        "state": state,
        "seconds": 4.0,
        "reason": "",
        "tail": [],
        "device": device,
        "statuses": {"OK": 2},
        "unlike": None,
        **changed,
    }


def page(*cards: dict) -> str:
    return render_fleet({"environment": {"host": "head"}, "cards": cards})


@pytest.mark.parametrize(
    ("states", "sentence"),
    [
        (["measured"], "1 card measured"),
        (["measured", "failed", "missing", "missing"], "1 failed and 2 did not report, of 4 cards"),
        (["missing", "measured"], "1 did not report, of 2 cards"),
    ],
)
def test_the_headline_says_what_matters(states, sentence):
    assert f"<h1>{sentence}</h1>" in page(*[card(i, state) for i, state in enumerate(states)])


def test_the_page_says_why_a_card_is_missing():
    text = page(card(0), card(1, "missing", device=None, statuses={}, reason="the node died", tail=["a", "b"]))
    assert "<td>the node died</td>" in text
    assert "<pre>a\nb</pre>" in text


def test_text_from_a_node_is_text():
    hostile = "<script>alert(1)</script>\u202e"
    text = page(card(0, name=hostile, reason=hostile, tail=[hostile], unlike=hostile), card(1))
    assert "<script" not in text
    assert "script-src ;" in text or "script-src 'none'" in text, "no script of the page's own"
    assert "\u202e" not in text.replace("<pre>", "").split("</pre>")[1]
