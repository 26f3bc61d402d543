"""The table that shows what the cards do meanwhile, and the page in the end: what they say, and that nothing hides."""

from __future__ import annotations

from dataclasses import replace

import pytest
from test_fleet_results import CARD

from pytest_bandwidth.features.fleet.cards import CardNow
from pytest_bandwidth.features.fleet.overview import LiveTable, render_fleet, table_of


def seen(number: int, state: str = "runs", test: str = "t.py::test_copy", seconds: float = 4.0) -> CardNow:
    return CardNow(replace(CARD, number=number, name=f"gpu1 GPU {number}"), state, test, seconds)


def test_those_that_run_stand_first_within_the_terminals_lines_and_columns():
    cards = [seen(0, "waits", "", 1.0), *(seen(i) for i in range(1, 4))]
    ended = [seen(4, "measured", ""), seen(5, "missing", "")]
    whole = table_of(cards, ended, 100, 40)
    assert whole[0].split() == ["node", "card", "state", "last", "test", "time"]
    assert whole[1].split() == ["gpu1", "GPU", "1", "runs", "t.py::test_copy", "4", "s"]
    assert [line.split()[3] for line in whole[1:]] == ["runs"] * 3 + ["waits", "missing", "measured"]
    short = table_of(cards, ended, 100, 6)
    assert len(short) == 5
    assert short[-1] == "… and 1 measured, 1 missing, 1 waits"
    lines = table_of([seen(0, test="t.py::\x1b[2J" + "x" * 300)], [], 60, 20)
    assert max(map(len, lines)) == 59
    assert "\x1b" not in "".join(lines)


def test_it_is_written_over_itself_and_taken_away():
    written: list[str] = []
    table = LiveTable(written.append, lambda: (80, 24))
    table.show([seen(0), seen(1)], [])
    table.show([seen(1)], [])
    table.clear()
    table.clear()
    assert not written[0].startswith("\x1b")
    assert [text[: text.index("J") + 1] for text in written[1:]] == ["\x1b[3F\x1b[J", "\x1b[2F\x1b[J"]
    assert written[0].count("\n") == 3
    unseen = LiveTable(None, lambda: (80, 24))
    unseen.show([seen(0)], [])
    unseen.clear()


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
        "gbps": {"t.py::copy": 100.0 + number, "t.py::triad": 90.0},
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


def test_the_page_names_slowest_and_fastest_cards_and_why_one_is_missing():
    text = page(card(0), card(1), card(9))
    assert "<td>t.py::copy</td><td>3</td><td>101</td>" in text
    assert "100 (-1.0 %), gpu1 GPU 0" in text
    assert "109 (7.9 %), gpu1 GPU 9" in text
    assert "NVIDIA H100: 3 cards" in text
    text = page(card(0), card(1, "missing", device=None, gbps={}, statuses={}, reason="the node died", tail=["a", "b"]))
    assert "<td>the node died</td>" in text
    assert "<pre>a\nb</pre>" in text


def test_text_from_a_node_is_text():
    hostile = "<script>alert(1)</script>\u202e"
    text = page(card(0, name=hostile, reason=hostile, tail=[hostile], unlike=hostile, gbps={hostile: 1.0}), card(1))
    assert "<script" not in text
    assert "script-src ;" in text or "script-src 'none'" in text, "no script of the page's own"
    assert "\u202e" not in text.replace("<pre>", "").split("</pre>")[1]
