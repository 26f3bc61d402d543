"""Change points by a process beside this one: the same as in this one, whatever becomes of that process."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from pytest_bandwidth.cli.history import change_points_beside as module
from pytest_bandwidth.cli.history.change_points import change_points
from pytest_bandwidth.cli.history.change_points_beside import change_points_beside

pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[history]'")

RANDOM = random.Random(1)
LEVELS = [900 * (0.95 if i >= 30 else 1) * RANDOM.gauss(1, 0.01) for i in range(60)]
ASKED = [(LEVELS, False), ([8.0, 8.0, 9.0], True), ([1.0, 2.0], False), (LEVELS[:30], False)]
FOUND = [change_points(values, exact=exact) for values, exact in ASKED]
IN_A_FRESH_PROCESS = f"""
import sys
from pytest_bandwidth.cli.history.change_points_beside import change_points_beside
with change_points_beside() as search:
    print(search({ASKED!r}), "ruptures" in sys.modules)
"""


@pytest.fixture
def without_ruptures(monkeypatch):
    """This process has not imported it: another one has to."""
    monkeypatch.delitem(sys.modules, "ruptures")


def test_a_process_finds_what_this_one_would(tmp_path):
    assert FOUND[0]
    assert FOUND[1] == [2]
    done = subprocess.run(
        [sys.executable, "-c", IN_A_FRESH_PROCESS], cwd=tmp_path, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == (f"{FOUND} False\n", "")


@pytest.mark.usefixtures("without_ruptures")
def test_modules_of_the_users_folder_are_not_run(tmp_path, monkeypatch):
    for name in ("json", "numpy", "ruptures"):
        (tmp_path / f"{name}.py").write_text("open('was_run', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with change_points_beside() as search:
        assert search(ASKED) == FOUND
    assert not (tmp_path / "was_run").exists()
    assert "ruptures" not in sys.modules


def test_where_ruptures_is_there_already_no_process_is_started(monkeypatch):
    monkeypatch.setattr(module.subprocess, "Popen", None)
    with change_points_beside() as search:
        assert search(ASKED) == FOUND


@pytest.mark.usefixtures("without_ruptures")
def test_a_process_that_fails_is_made_up_for(monkeypatch):
    monkeypatch.setattr(module, "_PROGRAM", "raise SystemExit(3)")
    with change_points_beside() as search:
        assert search(ASKED) == FOUND


@pytest.mark.usefixtures("without_ruptures")
def test_few_runs_and_counts_wait_for_no_process_and_it_is_gone_at_the_end(monkeypatch):
    started = []
    popen = subprocess.Popen
    monkeypatch.setattr(module, "_PROGRAM", "import time; time.sleep(600)")  # it would never answer
    monkeypatch.setattr(module.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    with change_points_beside() as search:
        assert search(ASKED[1:3]) == FOUND[1:3]
        assert started[0].poll() is None
    assert started[0].poll() is not None
