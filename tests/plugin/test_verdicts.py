"""Verdicts fail the test that earned them, after new processes agreed."""

import re
import shlex

import pytest
import virtual_time
from user_project import COPY

SLEEPY = """
import os
import numpy as np
import pytest
from virtual_time import sleep

@pytest.mark.bandwidth(judged_on="gbps")
def test_kernel(bandwidth):
    a = bandwidth.random(1 << 14, "float32")
    b = bandwidth.empty(1 << 14, "float32")
    def kernel():
        np.copyto(b, a)
        sleep(float(os.environ.get("SLOW", "0.002")))
    bandwidth(kernel, reads=a, writes=b)

def test_other(bandwidth):
    a = bandwidth.random(1 << 14, "float32")
    bandwidth(np.sum, a, reads=a)
"""

COUNTED_COPY = """
import numpy as np

COPY = 'extern "C" __global__ void copy(float* o, const float* a) { o[threadIdx.x] = a[threadIdx.x]; }'

def test_copy(bandwidth):
    x, y = bandwidth.random(1024, "float32"), bandwidth.empty(1024, "float32")
    bandwidth.launch(bandwidth.kernel(COPY, "copy"), 1, 1024, (y, x), reads=x, writes=y)
"""


@pytest.fixture
def known(slept):
    """Return a project whose baseline was taken in three runs; there is no repository to find old code in."""
    slept.file("test_kernel.py", SLEEPY)
    for _ in range(3):
        slept.run_here("--bandwidth-baseline=b.yaml", "--bandwidth-update").assert_outcomes(passed=2)
    return slept


NOTES = """
import pytest

def note(text):
    with open("seen", "a") as seen:
        seen.write(text + "\\n")

note("conftest")

@pytest.fixture(scope="session", autouse=True)
def around():
    note("before")
    yield
    note("after")
"""


@pytest.mark.smoke
def test_a_slowed_kernel_fails_its_own_test(known, monkeypatch):
    """Fresh processes load side by side, and set up no fixture before their turn."""
    known.file("conftest.py", NOTES)
    monkeypatch.setenv("SLOW", "0.02")
    result = known.run("--bandwidth-baseline=b.yaml", "test_kernel.py::test_kernel", "--bandwidth-json=run.json")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [
            r"REGRESSED: \d\d\.\d % slower than the baseline \(tolerance 5\.0 %\)",
            r" +measured +moved 131 kB in .*ms: .* GB/s .*",
            r" +this code +0\.0065\d* GB/s",
            r" +baseline +0\.06\d* GB/s \(3 runs, spread .* %\)",
            r" +re-runs +0\.0065\d* GB/s(, 0\.0065\d* GB/s){1,2}",
            r" +accept it +(python -m )?pytest test_kernel\.py::test_kernel .*--bandwidth-update.*",
            r"test_kernel\.py:\d+: REGRESSED",
        ]
    )
    assert "Traceback" not in result.stdout.str()
    (row,) = known.told()["results"]
    assert row["status"] == "REGRESSED"
    assert len(row["fresh"]) >= 2
    assert [seen["gbps"] for seen in row["fresh"]] == row["verdict"]["confirmations"]
    assert all(seen["gbps"] < row["baseline"]["gbps"] and seen["wall_seconds"] > 0 for seen in row["fresh"])
    here, fresh = ["conftest", "before"], ["conftest"] * 3 + ["before", "after"]
    assert (known.path / "seen").read_text().split()[: len(here + fresh)] == here + fresh


def test_the_command_to_accept_is_typed_where_the_run_was_started(known, monkeypatch):
    known.file("test_kernel.py", SLEEPY.replace("reads=a, writes=b", "reads=a"))
    (known.path / "sub").mkdir()
    monkeypatch.chdir(known.path / "sub")
    result = known.run_here("../test_kernel.py", "--bandwidth-baseline=../b.yaml", f"--rootdir={known.path}")
    result.assert_outcomes(passed=1, failed=1)
    (command,) = re.findall(r"accept it +(?:python -m )?pytest (.*)", result.stdout.str())
    accepted = known.run_here(*shlex.split(command))
    accepted.assert_outcomes(passed=1)
    accepted.stdout.fnmatch_lines(["*1 SAVED*"])


def test_what_is_unchanged_slow_once_or_of_other_bytes(known, monkeypatch):
    args = ("--bandwidth-baseline=b.yaml", "test_kernel.py::test_kernel", "--bandwidth-tolerance=50%")
    result = known.run_here(*args)
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"test_kernel\.py::test_kernel$", r".* OK +code unchanged$"])
    known.file("test_kernel.py", SLEEPY.replace("reads=a, writes=b", "reads=a"))
    other = known.run_here(*args)
    other.assert_outcomes(failed=1)
    other.stdout.fnmatch_lines(
        ["MISMATCH: bytes_written is 0 (0 B), was 65,536 (65.5 kB)", "*accept it*--bandwidth-update"]
    )
    other.stdout.fnmatch_lines(["*likely cause*test_kernel.py changed"])
    other.stdout.no_fnmatch_line("*the device is*")
    known.file("test_kernel.py", SLEEPY)
    monkeypatch.setenv("SLOW", "0.02")
    slow = known.run_here("--bandwidth-baseline=b.yaml", "-o", "bandwidth_confirm=1")
    slow.stdout.re_match_lines([r"test +GB/s .*verdict", r"test_kernel .* REGRESSED +time", r"test_other .*"])
    known.file("conftest.py", virtual_time.ONLY_HERE)
    once = known.run(*args, "--bandwidth-strict", "--bandwidth-json=run.json")
    once.assert_outcomes(passed=1)
    once.stdout.re_match_lines([r"test_kernel\.py::test_kernel .* OK$", r" +slow once, not reproduced$"])
    (row,) = known.told()["results"]
    assert (row["status"], row["reason_code"]) == ("OK", "not-reproduced")
    assert re.fullmatch(r"89\.\d % slower here, normal in [23] re-runs; the old code did not run: .*", row["reason"])


@pytest.mark.usefixtures("traffic_loaded")
def test_an_xfail_of_the_entry_that_is_needed_no_longer_is_told(project):
    """On counts, which no neighbour changes."""
    project.file("test_of_counts.py", COUNTED_COPY)
    given = ("--bandwidth-device=traffic", "--bandwidth-baseline=t.yaml")
    project.run_here(*given, "--bandwidth-update").assert_outcomes(passed=1)
    baseline = project.path / "t.yaml"
    baseline.write_text(baseline.read_text().replace("    runs: 1\n", "    runs: 1\n    xfail: old compiler\n"))
    result = project.run_here(*given, "--bandwidth-strict")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["NOTE *its entry's xfail (old compiler) is no longer needed: remove it from the baseline"]
    )
    # Without its counts an entry gates nothing, and says so.
    baseline.write_text("schema: 2\ntests:\n  test_of_counts.py::test_copy: {counts: {store_sectors: 128}}\n")
    result = project.run_here(*given, "--bandwidth-strict")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        ["UNDECIDED (counts missing): the entry has no load_sectors: these counts are not judged"]
    )


@pytest.mark.usefixtures("traffic_loaded")
def test_a_folder_without_this_devices_file_names_those_that_it_has(project):
    project.file("test_of_counts.py", COUNTED_COPY)
    given = ("--bandwidth-baseline=folder", "--bandwidth-device=traffic:sm_80")
    project.run_here(*given, "--bandwidth-update").assert_outcomes(passed=1)
    result = project.run_here("--bandwidth-baseline=folder", "--bandwidth-device=traffic:sm_90")
    expected = "expected one of traffic sm_90, this run's device"
    result.stderr.fnmatch_lines(
        [f"ERROR: *folder: found baselines of traffic sm_80, {expected}: write it with * (help*"]
    )
    forgotten = project.run_here("--bandwidth-baseline=folder", "--bandwidth-device=cpu")
    forgotten.stderr.fnmatch_lines(
        ["ERROR: *: write it with --bandwidth-update, or choose --bandwidth-device=traffic (help*"]
    )


def test_a_failing_body_is_reported_as_itself_and_not_judged(project):
    project.file("test_copy.py", COPY + "    assert result.gbps < 0\n")
    nothing = project.run_here("--bandwidth-json=run.json", "-k", "nothing")
    nothing.stdout.fnmatch_lines(["bandwidth: nothing was measured, so --bandwidth-json wrote nothing"])
    result = project.run_here("--bandwidth-json=run.json")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["E *assert * < 0*"])
    assert project.told()["results"] == []


WARM = {
    "marked": COPY.replace("def test_copy", "import pytest\n\n@pytest.mark.bandwidth(cold=False)\ndef test_copy"),
    "said": COPY.replace("writes=b)", "writes=b, cold=False)"),
}


def test_warm_figures_do_not_fit_a_cold_baseline_and_say_that_they_are_warm(project):
    """By the marker's argument, and by the call's."""
    update = ("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    for name in WARM:
        project.file(f"test_{name}.py", COPY)
    project.run_here(*update).assert_outcomes(passed=2)
    for name, text in WARM.items():
        project.file(f"test_{name}.py", text)
    result = project.run_here("--bandwidth-baseline=b.yaml")
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        ["*MISMATCH: method is clock+warm, was clock", "*measured *moved 524 kB in *, warm: *"] * 2
    )
    result.stdout.fnmatch_lines(["NOTE * and 1 more: cold=False: caches are not flushed before its samples*"])
    project.run_here(*update)
    project.run_here("--bandwidth-baseline=b.yaml").assert_outcomes(passed=2)
