"""benchmarks/gpu_session.py: parts that go on after a red step, end in time, and leave everything."""

import importlib
import sys
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
GPU_TESTS = BENCHMARKS.parent / "tests" / "gpu"


@pytest.fixture(scope="module")
def script():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)  # as Python does for a script
        yield importlib.import_module("gpu_session")


def python(script, name, code):
    return script.Step(name, (sys.executable, "-c", code))


def test_a_red_step_ends_nothing_and_everything_is_left(script, monkeypatch, tmp_path, capsys):
    steps = [python(script, "red", "print('said'); raise SystemExit(3)"), python(script, "green", "print('after')")]
    monkeypatch.setattr(script, "steps_of", lambda *_: steps)
    assert script.run_parts(["first"], script.Plan("cuda:0", tmp_path / "out")) == 1
    assert (tmp_path / "out" / "red.log").read_text() == "said\n"
    assert (tmp_path / "out" / "green.log").read_text() == "after\n"
    red, green = (tmp_path / "out" / "summary.txt").read_text().splitlines()
    assert red.endswith("exit status 3")
    assert green.endswith("fine")
    assert "    after" in capsys.readouterr().out


def test_a_part_ends_in_time_with_what_its_step_started(script, monkeypatch, tmp_path):
    endless = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    steps = [python(script, "endless", endless), python(script, "next", "")]
    monkeypatch.setattr(script, "steps_of", lambda *_: steps)
    assert script.run_parts(["first"], script.Plan("cuda:0", tmp_path, part_seconds=1.0)) == 1
    ended, left_out = (tmp_path / "summary.txt").read_text().splitlines()
    assert ended.endswith("the part's time was over")
    assert "not begun" in left_out


def test_the_first_part_runs_every_test_of_tests_gpu_once(script, tmp_path):
    steps = {step.name: step.command for step in script.steps_of("first", script.Plan("cuda:0", tmp_path))}
    first = [f"test_gpu_{what}" for what in ("hold", "cache", "clocks", "probes")]
    assert list(steps) == [*first, "test_gpu_others", "quick-suite"]
    assert all((GPU_TESTS / f"{name}.py").is_file() for name in first)
    ignored = {word.partition("=")[2] for word in steps["test_gpu_others"] if word.startswith("--ignore")}
    assert ignored == {f"tests/gpu/{name}.py" for name in first}
    assert not any(word in ("-x", "--exitfirst") for command in steps.values() for word in command)
