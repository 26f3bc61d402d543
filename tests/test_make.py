"""Every `make` command of README and docs, run in a copy of the repository."""

from __future__ import annotations

import pytest
from documented import BLOCKS, ROOT, commands, commands_in_text
from making import HERE, copy_of_repository, make

from pytest_bandwidth.devices.cuda import open_cuda
from pytest_bandwidth.domain.errors import DeviceUnavailable

IN_BLOCKS = [command for block in BLOCKS if block.kind == "console" for command in commands(block.text)]
DOCUMENTED = {command for command in (*commands_in_text(), *IN_BLOCKS) if command.startswith("make ")}
# `make test` is what runs this, by way of the first two; `make bench` measures for half an hour, by scripts that
# test_benchmarks.py runs one by one.
NOT_RUN_HERE = {"make lint", "make unit", "make test", "make bench"}
RUN_HERE = {
    "make clean",
    "make demo",  # by test_benchmarks.py: it measures
    "make docs",  # by test_docs.py
    "make gpu",
    "make lowest",
    "make traffic",
    "make traffic PYTEST_ARGS=--bandwidth-update",
}
NO_NVRTC = "the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    return copy_of_repository(tmp_path_factory.mktemp("repository"))


def test_every_documented_command_is_run():
    assert DOCUMENTED == NOT_RUN_HERE | RUN_HERE


@pytest.mark.parametrize("command", sorted(NOT_RUN_HERE))
def test_what_is_not_run_here_would_run(command, copy):
    assert make(copy, *HERE, "--dry-run", *command.split()[1:]).returncode == 0


@pytest.mark.slow
def test_traffic_is_what_the_repositorys_baseline_says(copy):
    pytest.importorskip("cuda.bindings", reason=NO_NVRTC)
    result = make(copy, *HERE, "traffic")
    assert result.returncode == 0, result.stdout + result.stderr


@pytest.mark.slow
def test_an_update_of_traffic_that_is_the_same_changes_no_baseline(copy):
    pytest.importorskip("cuda.bindings", reason=NO_NVRTC)
    result = make(copy, *HERE, "traffic", "PYTEST_ARGS=--bandwidth-update -k copy")
    assert result.returncode == 0, result.stdout + result.stderr
    for file in (ROOT / "baselines").iterdir():
        assert (copy / "baselines" / file.name).read_text() == file.read_text()


def test_gpu_says_that_there_is_none_and_writes_nothing(copy):
    try:
        open_cuda(0).release()
    except DeviceUnavailable:
        pass
    else:
        pytest.skip("there is a GPU: `make gpu` would measure for minutes and write its files")
    result = make(copy, *HERE, "gpu")
    assert "nothing written: " in result.stderr
    assert result.returncode != 0
    assert not list((copy / "docs").glob("gpu/*.md"))


@pytest.mark.slow
def test_lowest_installs_the_oldest_dependencies_and_runs_tests(copy, tmp_path):
    # One module: all of them are what CI's job of it is for.
    result = make(copy, f"LOWEST={tmp_path}", "lowest", "PYTEST_ARGS=tests/test_updates.py")
    assert result.returncode == 0, result.stdout + result.stderr
    assert " passed" in result.stdout


def test_clean_removes_what_was_made(copy):
    for made in (".venv/bin/python", "demo-results/baseline.yaml", "docs/_build/index.html"):
        (copy / made).parent.mkdir(parents=True, exist_ok=True)
        (copy / made).touch()
    assert make(copy, "clean").returncode == 0
    assert [made for made in (".venv", "demo-results", "docs/_build") if (copy / made).exists()] == []
    assert (copy / "README.md").is_file()
