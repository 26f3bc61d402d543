"""Cheats and right work on a GPU: streams, events, graphs, and kernels that keep what they computed."""

from pathlib import Path

import pytest
from card_processes import SMALL, Card
from red_team import SHORT, lay_out, unexpected


def test_candidates_end_as_their_table_says(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", lay_out(tmp_path, "card", "kernels"))
    _, printed, _ = card.tested(tmp_path, *SHORT, **SMALL)
    assert unexpected(tmp_path, printed) == {}, printed[-3000:]
