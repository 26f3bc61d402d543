"""Change points in invented runs: where they are found and where not, in this process and by one beside it."""

from __future__ import annotations

import random
import subprocess
import sys

import pytest

from pytest_bandwidth.features.history import change_points as module
from pytest_bandwidth.features.history.change_points import change_points, start_search

pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[history]'")


def runs(*levels: tuple[int, float], sd: float = 0.01, seed: int = 0) -> list[float]:
    """So many runs at each level, with normal noise of that share between them."""
    random_ = random.Random(seed)
    return [level * (1 + random_.gauss(0, sd)) for many, level in levels for _ in range(many)]


def test_several_steps_up_and_down_are_all_found():
    found = change_points(runs((40, 0.90), (25, 0.85), (30, 0.93), (20, 0.90)))
    assert len(found) == 3
    assert all(abs(place - true) <= 2 for place, true in zip(found, (40, 65, 95), strict=True))


def test_noise_alone_has_hardly_ever_a_change_and_a_drop_is_found_by_its_size():
    alarms = sum(bool(change_points(runs((60, 900.0), seed=seed))) for seed in range(200))
    assert alarms <= 8

    def found(drop: float) -> int:
        return sum(bool(change_points(runs((30, 1.0), (30, 1 - drop), seed=seed))) for seed in range(50))

    assert found(0.03) >= 48
    assert found(0.002) <= 5


@pytest.mark.parametrize("strange", [0.5, 1.0, 2.0])
def test_a_step_is_found_where_it_is_and_one_strange_run_neither_is_a_change_nor_hides_one(strange):
    values = runs((30, 900.0), (30, 855.0))
    values[10] *= strange
    (place,) = change_points(values)
    assert abs(place - 30) <= 1
    assert change_points([value / 1e6 for value in values]) == [place]
    level = runs((60, 900.0))
    level[20] *= strange
    assert change_points(level) == []


@pytest.mark.parametrize(
    ("values", "exact", "places"),
    [
        ([900.0] * 50, False, []),
        ([900.0] * 25 + [900.1] * 25, False, []),  # less than matters
        ([900.0] * 25 + [880.0] * 25, False, [25]),
        ([1.0, 1.0, 0.5, 0.5, 0.5], False, []),  # too few for two levels
        ([], False, []),
        ([8.0, 8.0, 9.0, 8.0, 8.0, 8.0], True, [2, 3]),  # every other count is a change
    ],
)
def test_equal_runs_few_runs_and_counts(values, exact, places):
    assert change_points(values, exact=exact) == places


# ---- by a process beside this one ------------------------------------------------------------------------------------

RANDOM = random.Random(1)
LEVELS = [900 * (0.95 if i >= 30 else 1) * RANDOM.gauss(1, 0.01) for i in range(60)]
ASKED = [(LEVELS, False), ([8.0, 8.0, 9.0], True), ([1.0, 2.0], False), (LEVELS[:30], False)]
FOUND = [change_points(values, exact=exact) for values, exact in ASKED]
assert FOUND[0]
assert FOUND[1] == [2]


@pytest.fixture
def without_ruptures(monkeypatch):
    """This process has not imported it: another one has to."""
    monkeypatch.delitem(sys.modules, "ruptures")


@pytest.mark.usefixtures("without_ruptures")
def test_another_process_runs_no_modules_of_the_users_folder_and_its_failure_is_made_up_for(tmp_path, monkeypatch):
    for name in ("json", "numpy", "ruptures"):
        (tmp_path / f"{name}.py").write_text("open('was_run', 'w').close()\n")
    monkeypatch.chdir(tmp_path)
    with start_search() as search:
        assert search(ASKED) == FOUND
    assert not (tmp_path / "was_run").exists()
    assert "ruptures" not in sys.modules, "the other process found them"
    monkeypatch.setattr(module, "python_command", lambda _: [sys.executable, "-c", "raise SystemExit(3)"])
    with start_search() as search:
        assert search(ASKED) == FOUND
    assert "ruptures" in sys.modules, "and this one, where that failed"


def test_where_ruptures_is_there_already_no_process_is_started(monkeypatch):
    monkeypatch.setattr(module.subprocess, "Popen", None)
    with start_search() as search:
        assert search(ASKED) == FOUND


@pytest.mark.usefixtures("without_ruptures")
def test_few_runs_and_counts_wait_for_no_process_and_it_is_gone_at_the_end(monkeypatch):
    started = []
    popen = subprocess.Popen
    never_answers = [sys.executable, "-c", "import time; time.sleep(600)"]
    monkeypatch.setattr(module, "python_command", lambda _: never_answers)
    monkeypatch.setattr(module.subprocess, "Popen", lambda *a, **k: started.append(popen(*a, **k)) or started[-1])
    with start_search() as search:
        assert search(ASKED[1:3]) == FOUND[1:3]
        assert started[0].poll() is None
    assert started[0].poll() is not None
