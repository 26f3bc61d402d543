"""A baseline of one card on another: unchanged kernels are known, changed ones run beside the old code."""

import shutil
from pathlib import Path

import pytest
from card_processes import Card
from test_old_code_on_the_card import CHANGED, KERNELS, MORE, ONLY, TESTS, run, source, statuses

AMPERE = {"MODEL": "NVIDIA A100-SXM4-40GB"}


@pytest.fixture(scope="module")
def folder(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A user's folder, with the baseline of one run on a card of an older architecture."""
    made = tmp_path_factory.mktemp("user")
    (made / "copies.cu").write_text(source())
    (made / "test_copies.py").write_text(TESTS)
    status, shown, rows = run(shared_card, made, "--bandwidth-update", **AMPERE)
    assert (status, set(statuses(rows).values())) == (0, {"SAVED"}), shown
    return made


def test_a_changed_kernel_regresses_on_a_card_that_never_ran_the_old_one_before(card: Card, folder: Path) -> None:
    (folder / "copies.cu").write_text(source(MORE))
    status, shown, rows = run(card, folder)
    assert status == 1, shown
    assert statuses(rows) == {str(i): "REGRESSED" if i == CHANGED else "OK" for i in range(KERNELS)}, shown
    assert "baseline: base.yaml (of NVIDIA A100-SXM4-40GB: its code alone)" in shown
    changed = rows[str(CHANGED)]
    assert changed["reason_code"] == "old-kernel"
    assert "slower than the old code" in changed["reason"]
    assert {row["reason_code"] for name, row in rows.items() if name != str(CHANGED)} == {"code-unchanged"}


def test_a_kernel_that_is_launched_otherwise_is_held_to_its_old_launch(
    card: Card, folder: Path, tmp_path: Path
) -> None:
    """As grids are that follow the number of a card's multiprocessors."""
    relaunched = Path(shutil.copytree(folder, tmp_path / "user"))
    tests = relaunched / "test_copies.py"
    tests.write_text(tests.read_text().replace("kernel, 16, 256,", "kernel, 32, 128,"))
    for more, (expected, status) in {"": ("OK", 0), MORE: ("REGRESSED", 1)}.items():
        (relaunched / "copies.cu").write_text(source(more))
        found, shown, rows = run(card, relaunched, *ONLY)
        changed = rows[str(CHANGED)]
        assert (found, changed["status"], changed["reason_code"]) == (status, expected, "old-kernel"), shown


def test_without_the_old_ptx_a_changed_kernel_is_undecided(card: Card, folder: Path, tmp_path: Path) -> None:
    alone = Path(shutil.copytree(folder, tmp_path / "user"))
    (alone / "copies.cu").write_text(source(MORE))
    _, _, rows = run(card, alone, "-obandwidth_settle=never", *ONLY)
    (alone / "code" / f"{rows[str(CHANGED)]['baseline']['code']['ptx']}.ptx").unlink()
    status, shown, rows = run(card, alone, "--bandwidth-strict", *ONLY)
    changed = rows[str(CHANGED)]
    assert (status, changed["status"], changed["reason_code"]) == (1, "UNDECIDED", "code-alone"), shown
    assert "the old kernel did not run: found no " in changed["reason"]
