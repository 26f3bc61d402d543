"""Cheats and right work on a GPU, by tests and by `pytest-bandwidth arena`: streams, events, graphs, kernels."""

import json
from pathlib import Path

import pytest
from card_processes import SMALL, Card
from red_team import SHORT, lay_out, lay_out_arena, unexpected


def test_candidates_end_as_their_table_says(card: Card, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", lay_out(tmp_path, "card", "kernels"))
    _, printed, _ = card.tested(tmp_path, *SHORT, **SMALL)
    assert unexpected(tmp_path, printed) == {}, printed[-3000:]


def test_kernels_are_compared_with_a_function(tmp_path: Path, card: Card) -> None:
    given = [*lay_out_arena(tmp_path, 4096), "--device=cuda", "--max-time=0.05"]
    done = card.run(["-m", "pytest_bandwidth.cli", "arena", *given], SMALL, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    right, wrong = json.loads(done.stdout)["rows"]
    assert (right["correct"], right["honest"]) == (True, True), right
    assert right["speed_up"] > 0
    assert wrong["correct"] is False
    assert wrong["speed_up"] is None


@pytest.mark.smoke
def test_a_crash_on_the_card_is_a_row(tmp_path: Path, card: Card) -> None:
    (tmp_path / "ref.py").write_text(
        "def inputs(bandwidth):\n    yield 'a', (bandwidth.random(4096),)\ndef run(x):\n    return 2 * x\n"
    )
    (tmp_path / "aborts.py").write_text("import os\ndef run(x):\n    os.abort()\n")
    command = ["-m", "pytest_bandwidth.cli", "arena", "ref.py", "aborts.py", "--device=cuda", "--json=-"]
    done = card.run(command, SMALL, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert [one["code"] for one in row["findings"]] == ["crashed"]
