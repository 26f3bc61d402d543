"""A baseline of one card on another: unchanged kernels are known, changed ones run beside the old code."""

from pathlib import Path

from card_processes import Card
from test_old_code_on_the_card import MORE, SLOWER, judged, ptx_file, source, written

AMPERE = {"MODEL": "NVIDIA A100-SXM4-40GB"}


def test_changed_kernels_are_judged_on_a_card_that_never_ran_the_old_ones_before(card: Card, tmp_path: Path) -> None:
    """Without its old PTX one stays undecided."""
    folder = written(card, tmp_path, **AMPERE)
    (folder / "copies.cu").write_text(source({1: MORE, 2: MORE}))
    ptx_file(folder, 2).unlink()
    rows, shown = judged(card, folder, {1: SLOWER, 2: ("UNDECIDED", "code-alone")}, "--bandwidth-strict")
    assert "baseline: base.yaml (of NVIDIA A100-SXM4-40GB: its code alone)" in shown
    assert "slower than the old code" in rows[1]["reason"]
    assert "the old kernel did not run: found no " in rows[2]["reason"]
