"""benchmarks/gpu.py and gpu_session.py: the page of documents; parts that go on after a red step and end in time."""

import subprocess
import sys
from types import SimpleNamespace

import pytest
from documented import ROOT
from gpu_model import skip_beside_a_gpu

BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture(scope="module")
def scripts():
    """The modules, imported as Python does for a script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        import gpu
        import gpu_page
        import gpu_session

        yield SimpleNamespace(gpu=gpu, page=gpu_page, session=gpu_session)


def result(name, gbps, **more):
    known = {"is_valid": True, "relative": 0.9, "utilization": 0.8, "utilization_of": "peak"}
    return {"nodeid": name, "label": None, "gbps": gbps, **known, **more}


def test_what_was_invalid_in_a_process_is_left_out_and_named(scripts):
    documents = [
        {"results": [result("a", 1.0), result("b", 1.0), result("c", None)]},
        {"results": [result("a", 1.0), result("b", 9.9, is_valid=False), result("d", 1.0)]},
    ]
    rows = scripts.page.spreads(documents)
    assert [row.key for row in rows] == ["a"]
    absent = scripts.page.left_out(documents, rows)
    assert absent == ["b", "c", "d"]
    page = scripts.page.report({"name": "NVIDIA X"}, rows, [], "fine", "cmd", absent, counted="no ncu")
    assert "| b |" not in page
    assert "Left out, since not every process measured it validly: b, c, d." in page


DESCRIBED = {"name": "NVIDIA X", "comparison": [], "counters": "no ncu on PATH"}


@pytest.fixture
def run(scripts, monkeypatch, tmp_path):
    """The script's exit status where all processes measure the same and suite and selftest end as told; its page."""

    def main(selftest, suite):
        monkeypatch.setattr(scripts.gpu, "ask_child", lambda _, **__: DESCRIBED)
        monkeypatch.setattr(scripts.gpu, "run_suite", lambda *_: ({"results": [result("t", 100.0)]}, suite))
        monkeypatch.setattr(scripts.gpu, "run_selftest", lambda _: selftest)
        where = (f"--baselines={tmp_path / 'b'}", f"--docs={tmp_path / 'd'}")
        monkeypatch.setattr(sys, "argv", ["gpu.py", *where])
        status = scripts.gpu.main()
        (page,) = (tmp_path / "d").iterdir()  # and nothing of how it was written
        assert page.name == "nvidia-x.md"
        return status, page.read_text(encoding="utf-8")

    return main


def test_a_failed_suite_and_a_failed_selftest_fail_and_the_page_says_so(run, capsys):
    status, page = run(("failed with exit status 2: no GPU", 2), 1)
    assert status == 1
    assert "failed with exit status 2: no GPU" in page
    assert "A test of the suite failed in 10 of the processes." in page
    assert "| t | 100.0 | 80.0 | 0.900 | 0.00 | 0.00 |" in page
    assert "the selftest failed with exit status 2: no GPU" in capsys.readouterr().err


def test_without_a_gpu_nothing_is_written(tmp_path):
    skip_beside_a_gpu()
    command = [sys.executable, BENCHMARKS / "gpu.py", f"--baselines={tmp_path / 'b'}", f"--docs={tmp_path / 'd'}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "nothing written" in done.stderr
    assert "driver" in done.stderr
    assert list(tmp_path.iterdir()) == []


def python(scripts, name, code):
    return scripts.session.Step(name, (sys.executable, "-c", code))


def test_a_red_step_ends_nothing_and_everything_is_left(scripts, monkeypatch, tmp_path, capsys):
    steps = [python(scripts, "red", "print('said'); raise SystemExit(3)"), python(scripts, "green", "print('after')")]
    monkeypatch.setattr(scripts.session, "steps_of", lambda *_: steps)
    assert scripts.session.run_parts(["first"], scripts.session.Plan("cuda:0", tmp_path / "out")) == 1
    assert (tmp_path / "out" / "red.log").read_text() == "said\n"
    assert (tmp_path / "out" / "green.log").read_text() == "after\n"
    red, green = (tmp_path / "out" / "summary.txt").read_text().splitlines()
    assert red.endswith("exit status 3")
    assert green.endswith("fine")
    assert "    after" in capsys.readouterr().out


def test_a_part_ends_in_time_with_what_its_step_started(scripts, monkeypatch, tmp_path):
    endless = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    steps = [python(scripts, "endless", endless), python(scripts, "next", "")]
    monkeypatch.setattr(scripts.session, "steps_of", lambda *_: steps)
    assert scripts.session.run_parts(["first"], scripts.session.Plan("cuda:0", tmp_path, part_seconds=1.0)) == 1
    ended, left_out = (tmp_path / "summary.txt").read_text().splitlines()
    assert ended.endswith("the part's time was over")
    assert "not begun" in left_out


def test_the_first_part_runs_every_test_of_tests_gpu_once(scripts, tmp_path):
    steps = {
        step.name: step.command for step in scripts.session.steps_of("first", scripts.session.Plan("cuda:0", tmp_path))
    }
    first = [f"test_gpu_{what}" for what in ("hold", "cache", "clocks", "probes")]
    assert list(steps) == [*first, "test_gpu_others", "quick-suite"]
    assert all((ROOT / "tests" / "gpu" / f"{name}.py").is_file() for name in first)
    ignored = {word.partition("=")[2] for word in steps["test_gpu_others"] if word.startswith("--ignore")}
    assert ignored == {f"tests/gpu/{name}.py" for name in first}
    assert not any(word in ("-x", "--exitfirst") for command in steps.values() for word in command)
