"""`pytest-bandwidth history --by gpu`: each card beside its model's median, over real stores of invented runs."""

from __future__ import annotations

import json
import random
from dataclasses import replace
from datetime import date, timedelta
from pathlib import Path

import pytest
from run_documents import GPU, outcome, run_of

from pytest_bandwidth.features.history import cards as of_cards
from pytest_bandwidth.features.history import writing
from pytest_bandwidth.features.history.cards import CardDay, cards_of
from pytest_bandwidth.features.history.trend import levels_of
from pytest_bandwidth.features.history.writing import append

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")
pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[history]'")

CARDS, DAYS, TESTS = 5, 12, 3
DRIFTING, SLOW = 1, 3


def add_run(folder: Path, card: int, day: int, gbps: float, noise: random.Random, commit: str | None = None) -> None:
    device = replace(GPU, serial=f"GPU-{card}")
    keys = [f"t.py::test_{test}" for test in range(TESTS)]
    rows = [outcome(key, gbps * noise.gauss(1, 0.002), device=device) for key in keys]
    environment = {
        "started_at": f"2026-03-{1 + day:02d}T04:{card:02d}:00Z",
        "commit": commit or f"c{day // 4}",
        "host": f"node{card}",
    }
    append(folder, run_of(*rows, device=device, environment=environment), rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Five cards, each commit a quarter slower than the last on all of them; from the seventh day on one loses 4 %."""
    path, noise = tmp_path_factory.mktemp("store") / "history", random.Random(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(writing, "RUNS_BEFORE_MERGE", 25)  # some of the runs are merged, and some are not
        for day in range(DAYS):
            for card in range(CARDS):
                own = {DRIFTING: 0.96 if day >= 6 else 1.0, SLOW: 0.95}.get(card, 1.0)
                add_run(path, card, day, 800.0 * own * 0.75 ** (day // 4), noise)
        add_run(path, 9, 0, 100.0, noise, commit="other")  # no other card was measured on that
    return path


def by_card(command, folder, *arguments) -> dict:
    said = command("history", folder, *arguments, "--by", "gpu", "--json")
    assert (said.status, said.err) == (0, "")
    return {card["serial"]: card for card in json.loads(said.out)["cards"]}


def test_the_card_that_drifts_is_named_and_the_fleets_own_changes_are_not(command, folder):
    said = command("history", folder, "--by", "gpu")
    assert (said.status, said.err) == (0, "")
    head, *rows = said.out.splitlines()
    assert head.startswith("card   host   device ")
    assert head.endswith("finding  trend")
    assert [row.split()[0] for row in rows[:2]] == ["GPU-1", "GPU-3"]
    assert [row.split()[0] for row in rows[:CARDS] if "drifts" in row] == ["GPU-1"]
    assert rows[CARDS] == "5 cards of 1 model, 2026-03-01 to 2026-03-12: 1 drifts away from the median of its model"
    assert rows[CARDS + 1].startswith("GPU-1 in node1 drifts: −")
    assert "since 2026-03-07, now 96." in rows[CARDS + 1]


def test_json_has_each_cards_share_and_levels_of_chosen_days_tests_and_cards(command, folder):
    cards = by_card(command, folder)
    drifting, slow = cards["GPU-1"], cards["GPU-3"]
    assert (drifting["days"], len(drifting["stretches"]), drifting["host"]) == (DAYS, DAYS, "node1")
    assert [level["first"] for level in drifting["levels"]][:2] == ["2026-03-01", "2026-03-07"]
    assert drifting["change"] == pytest.approx(-0.04, abs=0.005)
    assert drifting["stretches"][0]["figures"] == TESTS
    assert (slow["drifts"], len(slow["levels"])) == (False, 1)
    assert slow["levels"][0]["value"] == pytest.approx(0.95, abs=0.005)
    assert "GPU-9" not in cards
    assert {card["days"] for card in by_card(command, folder, "--newest", 3).values()} == {3}
    assert set(by_card(command, folder, "--device", "GPU-3")) == {"GPU-3"}
    assert by_card(command, folder, "t.py::test_1")["GPU-1"]["stretches"][0]["figures"] == 1
    said = command("history", folder, "--by", "gpu", "--device", "Other")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "found no cards of 'Other'" in said.err


def test_of_more_figures_than_seconds_allow_the_days_are_thinned_and_that_is_said(command, folder, monkeypatch):
    monkeypatch.setattr(of_cards, "ROWS_AT_MOST", (DAYS * CARDS + 1) * TESTS // 3 + 1)
    assert [s["first"][-2:] for s in by_card(command, folder)["GPU-1"]["stretches"]] == ["03", "06", "09", "12"]
    assert "; one day in 3 was looked at (" in command("history", folder, "--by", "gpu").out


def test_counts_are_refused_and_so_is_a_fleet_of_two(command, folder, tmp_path):
    said = command("history", folder, "--by", "gpu", "-o", tmp_path / "cards.html")
    assert (said.status, "which has no page, expected --json" in said.err) == (2, True)
    assert "every card moves the same sectors" in command("history", folder, "--by", "gpu", "--figure", "sectors").err
    for card in range(2):
        add_run(tmp_path / "h", card, 0, 800.0, random.Random(1))
    said = command("history", tmp_path / "h", "--by", "gpu")
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "expected a day on which three of one model were measured" in said.err


def days_of(*shares: float) -> list[CardDay]:
    begin = date(2026, 1, 1)
    return [
        CardDay("cuda", "Imaginary GPU", "GPU-1", "node1", begin + timedelta(days=i), share, 8)
        for i, share in enumerate(shares)
    ]


def test_a_card_that_comes_back_does_not_drift_and_many_days_are_taken_together():
    (card,) = cards_of(days_of(*[0.95] * 4, *[1.0] * 4))
    back = replace(card, levels=levels_of(card.values, [4]))
    assert (back.drifts, back.changed_on) == (False, date(2026, 1, 5))
    (card,) = cards_of(days_of(*[1.0] * 4, *[1.012] * 4))
    assert replace(card, levels=levels_of(card.values, [4])).drifts
    (card,) = cards_of(days_of(*[1.0] * 201))
    assert (card.days, len(card.stretches), card.stretches[-1].first) == (201, 67, date(2026, 7, 18))
