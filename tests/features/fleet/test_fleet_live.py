"""The table that shows what the cards do meanwhile: what stands in it, and that it is written over itself."""

from __future__ import annotations

from dataclasses import replace

from test_fleet_results import CARD

from pytest_bandwidth.features.fleet.cards import CardNow
from pytest_bandwidth.features.fleet.overview import LiveTable, table_of


def seen(number: int, state: str = "runs", test: str = "t.py::test_copy", seconds: float = 4.0) -> CardNow:
    return CardNow(replace(CARD, number=number, name=f"gpu1 GPU {number}"), state, test, seconds)


def test_those_that_run_stand_first_and_what_has_no_room_is_counted():
    cards = [seen(0, "waits", "", 1.0), *(seen(i) for i in range(1, 4))]
    ended = [seen(4, "measured", ""), seen(5, "missing", "")]
    whole = table_of(cards, ended, 100, 40)
    assert whole[0].split() == ["node", "card", "state", "last", "test", "time"]
    assert whole[1].split() == ["gpu1", "GPU", "1", "runs", "t.py::test_copy", "4", "s"]
    assert [line.split()[3] for line in whole[1:]] == ["runs"] * 3 + ["waits", "missing", "measured"]
    short = table_of(cards, ended, 100, 6)
    assert len(short) == 5
    assert short[-1] == "… and 1 measured, 1 missing, 1 waits"


def test_no_line_is_wider_than_the_terminal_nor_writes_over_it():
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


def test_where_nobody_watches_nothing_is_shown():
    table = LiveTable(None, lambda: (80, 24))
    assert not table.watched
    table.show([seen(0)], [])
    table.clear()
