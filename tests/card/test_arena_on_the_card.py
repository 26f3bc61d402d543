"""`pytest-bandwidth arena` on a GPU: kernels and functions of CuPy's arrays, checked and timed."""

import json

import pytest
from card_processes import SMALL
from red_team import lay_out_arena


def test_kernels_are_compared_with_a_function(tmp_path, card):
    given = [*lay_out_arena(tmp_path, 4096), "--device=cuda", "--max-time=0.05"]
    done = card.run(["-m", "pytest_bandwidth.cli", "arena", *given], SMALL, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    right, wrong = json.loads(done.stdout)["rows"]
    assert (right["correct"], right["honest"]) == (True, True), right
    assert right["speed_up"] > 0
    assert wrong["correct"] is False
    assert wrong["speed_up"] is None


@pytest.mark.smoke
def test_a_crash_on_the_card_is_a_row(tmp_path, card):
    (tmp_path / "ref.py").write_text(
        "def inputs(bandwidth):\n    yield 'a', (bandwidth.random(4096),)\ndef run(x):\n    return 2 * x\n"
    )
    (tmp_path / "aborts.py").write_text("import os\ndef run(x):\n    os.abort()\n")
    command = ["-m", "pytest_bandwidth.cli", "arena", "ref.py", "aborts.py", "--device=cuda", "--json=-"]
    done = card.run(command, SMALL, cwd=tmp_path)
    assert done.returncode == 1, done.stderr
    (row,) = json.loads(done.stdout)["rows"]
    assert [one["code"] for one in row["findings"]] == ["crashed"]
