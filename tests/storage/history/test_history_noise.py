"""How a test's figures scattered over the runs of the same code that a history has."""

import math
from dataclasses import replace
from statistics import stdev

import pytest
from saved_runs import GPU, HOST, outcome, run_of

from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.storage.history import append, ask, noise_in
from pytest_bandwidth.storage.history.noise import NEWEST_RUNS

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")

KEY = "test_a.py::test_one"
CODE = CodeIdentity(sass="s", launch="l")


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "history"


def add(folder, gbps, hour, *, key=KEY, code=CODE, status="WITHIN", device=GPU, probe=1000.0, **environment):
    """Appends a run, that many hours after the first."""
    row = outcome(key, gbps, probe, device=device)
    row = replace(row, status=status, code_identity={} if code is None else code.known())
    started = f"2026-11-{1 + int(hour) // 24:02d}T{int(hour) % 24:02d}:{round(hour % 1 * 60):02d}:00Z"
    append(folder, run_of(row, device=device, environment={"started_at": started, **environment}), (row,))


def noise(folder, figure="gbps", device=GPU, keys=(KEY,)):
    return ask(folder, lambda history: noise_in(history, device.kind, device.name, keys))[figure]


def squares(*values):
    return (len(values) - 1) * stdev(map(math.log, values)) ** 2


def test_runs_of_one_code_scatter_about_their_mean(folder):
    for hour, gbps in enumerate((700.0, 710.0, 705.0)):
        add(folder, gbps, hour, probe=900.0 + 10 * hour)
    (found,) = noise(folder).values()
    assert (found.squares, found.degrees) == (pytest.approx(squares(700.0, 710.0, 705.0)), 2)
    (found,) = noise(folder, "relative").values()
    assert found.squares == pytest.approx(squares(700 / 900, 710 / 910, 705 / 920), rel=1e-6)


def test_each_code_and_each_card_has_a_mean_of_its_own(folder):
    slower, other_card = CodeIdentity(sass="t", launch="l"), replace(GPU, serial="GPU-2")
    for hour, gbps in enumerate((700.0, 710.0)):
        add(folder, gbps, hour)
        add(folder, gbps / 2, hour + 10, code=slower)
        add(folder, 2 * gbps, hour + 20, device=other_card)
    (found,) = noise(folder).values()
    assert (found.squares, found.degrees) == (pytest.approx(3 * squares(700.0, 710.0)), 3)


def test_what_code_it_was_a_commit_tells_where_nothing_else_does_and_its_tree_was_clean(folder):
    for hour, gbps in enumerate((700.0, 710.0)):
        add(folder, gbps, hour, code=None, commit="abc", uncommitted_changes=False)
        add(folder, 500.0 + 100 * hour, hour + 10, code=None, commit="abc", uncommitted_changes=True)
        add(folder, 500.0 + 100 * hour, hour + 20, code=None)
        add(folder, 500.0 + 100 * hour, hour + 30, code=None, commit=f"{hour}", uncommitted_changes=False)
    (found,) = noise(folder).values()
    assert (found.squares, found.degrees) == (pytest.approx(squares(700.0, 710.0)), 1)


@pytest.mark.parametrize("status", ["INVALID", "DEVICE", "UPDATED"])
def test_what_is_no_noise_or_in_the_baseline_does_not_count(folder, status):
    for hour, gbps in enumerate((700.0, 710.0)):
        add(folder, gbps, hour)
        add(folder, gbps / 2, hour + 10, status=status)
    (found,) = noise(folder).values()
    assert found.degrees == 1
    assert found.squares == pytest.approx(squares(700.0, 710.0))


def test_of_an_hour_the_newest_run_counts(folder):
    for hour, gbps in ((1.0, 700.0), (2.0, 600.0), (2.5, 650.0), (2.75, 710.0)):
        add(folder, gbps, hour)
    (found,) = noise(folder).values()
    assert (found.squares, found.degrees) == (pytest.approx(squares(700.0, 710.0)), 1)


def test_the_newest_runs_of_each_test_count(folder):
    for hour in range(NEWEST_RUNS + 5):
        add(folder, 100.0 if hour < 5 else 700.0 + hour % 2, hour)
    (found,) = noise(folder).values()
    assert found.degrees == NEWEST_RUNS - 1
    assert found.squares == pytest.approx(squares(*(700.0 + hour % 2 for hour in range(NEWEST_RUNS))))


def test_only_the_tests_and_the_model_that_are_asked_for(folder):
    for hour, gbps in enumerate((700.0, 710.0)):
        add(folder, gbps, hour)
        add(folder, gbps, hour, key="test_a.py::test_two")
        add(folder, gbps / 10, hour, device=HOST)
    assert noise(folder).keys() == {KEY}
    assert noise(folder, device=HOST)[KEY].degrees == 1
    assert noise(folder, device=replace(GPU, name="another")) == {}
    assert noise(folder, keys=()) == {}


def test_a_single_run_tells_nothing_and_a_figure_that_cannot_be_is_none(folder):
    add(folder, 700.0, 0)
    assert noise(folder) == {}
    add(folder, 1e300, 1)
    assert noise(folder) == {}
