"""Each cheat fails by a code that names what it does, and right work that looks suspicious passes."""

import subprocess
import sys

import pytest
from red_team import SHORT, lay_out, unexpected

from pytest_bandwidth.features.honest import watch

ON_HOST = ("inputs", "later", "partial_work", "right", "right_compiled", "stale", "tampering")


@pytest.mark.processes
@pytest.mark.parametrize(("device", "modules"), [("cpu", ON_HOST), ("traffic", ("kernels",))])
def test_candidates_end_as_their_table_says(tmp_path, monkeypatch, device, modules):
    pytest.importorskip("numba")
    if device == "traffic":
        pytest.importorskip(
            "cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"
        )
    for name in ("NUMBA_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        monkeypatch.setenv(name, "1")  # threads that wait for more of so little work take three times as long
    monkeypatch.setenv("PYTHONPATH", lay_out(tmp_path, *modules))
    command = [sys.executable, "-m", "pytest", f"--bandwidth-device={device}", *SHORT]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert unexpected(tmp_path, done.stdout) == {}, done.stdout[-3000:] + done.stderr[-1000:]


SKIPS_EACH_FOURTH_CALL = """
import itertools
import numpy as np
import pytest

@pytest.mark.bandwidth(honest=True)
@pytest.mark.parametrize("skipped", range(4))
def test_square(bandwidth, skipped):
    calls, last = itertools.count(), []
    def work(x):
        if next(calls) % 4 != skipped or not last:
            last[:] = [x * x]
        return last[0]
    bandwidth(work, bandwidth.random(100_000), reads="args", writes="result")
"""


@pytest.mark.in_process
def test_work_that_leaves_out_each_fourth_call_is_found_however_little_time_is_left(project, monkeypatch):
    # As on a machine so busy that few samples are looked at, and all time for more runs is over at once.
    for name, value in (("ALWAYS_LOOKED_AT", 1), ("LOOKING_SHARE", 0), ("FEWEST_CHANGES", 1)):
        monkeypatch.setattr(watch, name, value)
    monkeypatch.setattr(watch, "MIXED_TRIALS", watch.WHOLE_PERIOD)
    project.file("test_square.py", SKIPS_EACH_FOURTH_CALL)
    result = project.run_here()
    result.assert_outcomes(failed=4)
    assert result.stdout.str().count("MISMATCH  stale result") == 4


FOLLOWS_ONE_CHANGE = """
import numpy as np
import pytest

@pytest.mark.bandwidth(honest=True)
def test_square(bandwidth):
    first, kept = [], []
    def work(x):
        if not first:
            first[:] = [x.copy(), x * x]
        if not kept and not np.array_equal(x, first[0]):
            kept[:] = [x.copy(), x * x]
        return (kept[1] if kept and np.array_equal(x, kept[0]) else first[1]).copy()
    bandwidth(work, bandwidth.random(100_000), reads="args", writes="result")
"""


@pytest.mark.in_process
def test_one_change_that_shows_clears_no_work_however_little_time_is_left(project, monkeypatch):
    # One change in five is the least share that passes: on a slow machine five were all that was tried.
    for name in ("LOOKING_SHARE", "TRIAL_SECONDS", "TRIAL_SHARE"):
        monkeypatch.setattr(watch, name, 0)
    monkeypatch.setattr(watch, "ALWAYS_LOOKED_AT", 4)
    monkeypatch.setattr(watch, "LOOK_AT_CLOCK", None)  # it would report what this project's tests replace
    project.file("test_square.py", FOLLOWS_ONE_CHANGE)
    result = project.run_here()
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*MISMATCH  stale result*"])
