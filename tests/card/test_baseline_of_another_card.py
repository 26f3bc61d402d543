"""A baseline of one card on another: unchanged kernels are known, changed ones run beside the old code."""

import shutil
from pathlib import Path

import pytest
import test_old_code_on_the_card as copies
from card_processes import Card

AMPERE = {"MODEL": "NVIDIA A100-SXM4-40GB"}


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with the baseline of one run on a card of an older architecture."""
    return copies.written(shared_card, tmp_path_factory.mktemp("user"), **AMPERE)


def test_a_changed_kernel_regresses_on_a_card_that_never_ran_the_old_one_before(card: Card, folder: Path) -> None:
    changed, others, shown = copies.regressed_alone(card, folder)
    assert "baseline: base.yaml (of NVIDIA A100-SXM4-40GB: its code alone)" in shown
    assert "slower than the old code" in changed["reason"]
    assert {row["reason_code"] for row in others} == {"code-unchanged"}


def test_without_the_old_ptx_a_changed_kernel_is_undecided(card: Card, folder: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copytree(folder, tmp_path / "user"))
    (alone / "copies.cu").write_text(copies.source(copies.MORE))
    _, _, rows = copies.run(card, alone, "-obandwidth_settle=never", *copies.ONLY)
    (alone / "code" / f"{rows[str(copies.CHANGED)]['baseline']['code']['ptx']}.ptx").unlink()
    changed = copies.changed_alone(card, alone, (1, "UNDECIDED", "code-alone"), "--bandwidth-strict")
    assert "the old kernel did not run: found no " in changed["reason"]
