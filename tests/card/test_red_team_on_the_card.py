"""Cheats and right work on a GPU: streams, events, graphs, and kernels that keep what they computed."""

from pathlib import Path

from card_processes import NOTHING, Card
from red_team import SHORT, lay_out, unexpected


def test_candidates_end_as_their_table_says(card: Card, tmp_path: Path) -> None:
    path = lay_out(tmp_path, "on_card")
    _, printed, _ = card.tested(tmp_path, *SHORT, env={**NOTHING, "RED_TEAM": path}, L2_BYTES=1 << 13, MEMORY_PACE=0.02)
    assert unexpected(tmp_path, printed) == {}, printed[-3000:]
