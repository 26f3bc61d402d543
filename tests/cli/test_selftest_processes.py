"""The self-test in real processes on the host: to its end, beside others, and interrupted."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import pytest
from children import HANGS_SECONDS, gone, wait_for

pytestmark = pytest.mark.processes
pytest.importorskip("numba", reason="kernels on the host need Numba: pip install 'pytest-bandwidth[cpu]'")

SELFTEST = [sys.executable, "-m", "pytest_bandwidth.cli", "selftest", "--device=cpu"]
SMALLEST = ("--runs=9", "--drop=10%", "--mib=1")
# The self-test has no option for how long it measures and how often it draws, which does not matter here.
SHORT = """
from functools import partial
from pytest_bandwidth.cli import selftest, selftest_processes

selftest_processes.Settings = partial(selftest_processes.Settings, max_time=0.1)
selftest.TRIALS = 20
"""
# Found by the interpreter at its start: the self-test's processes never end.
STUCK_IN_CHILDREN = """
import sys

if any("selftest.process" in word for word in sys.orig_argv):
    import os, time
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)
"""


@pytest.fixture
def environment(tmp_path):
    """The host's lock, apart from whatever else this machine measures."""
    return {**os.environ, "TMPDIR": str(tmp_path)}


def test_from_processes_to_a_recommendation(environment, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SHORT)
    command = [*SELFTEST, *SMALLEST, "--busy-processors=1000", "--json"]
    short = {**environment, "PYTHONPATH": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, env=short, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert {drop: len(runs) for drop, runs in said["runs"].items()} == {"0.0": 9, "0.1": 9}
    assert all(figure > 0 for runs in said["runs"].values() for run in runs for figure in run.values())
    assert said["left_out"] == []
    for rows in said["rates"].values():
        assert all(0 <= share <= 1 for row in rows for share in (row["false_alarms"], *row["found"].values()))
    assert list(tmp_path.glob("*/*.holder")) == [], "nobody holds the device"


def test_what_is_measured_beside_others_is_no_evidence(environment):
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        command = [*SELFTEST, *SMALLEST, "--busy-processors=0.001"]
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    finally:
        other.kill()
        other.wait()
    assert (done.returncode, done.stdout) == (2, "")
    left_out, ended = done.stderr.splitlines()
    assert left_out.startswith("pytest-bandwidth selftest: process 1 was left out: others kept ")
    assert ended.startswith("pytest-bandwidth selftest: 1 of 9 processes left out by now, at least 9 have to stay ")


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_an_interrupt_leaves_no_child_and_the_device_free(environment, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(STUCK_IN_CHILDREN)
    parent = subprocess.Popen(
        [*SELFTEST, *SMALLEST],
        cwd=tmp_path,
        env={**environment, "PYTHONPATH": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        wait_for(tmp_path / "pid")
        assert len(list(tmp_path.glob("*/*.holder"))) == 1
        parent.send_signal(signal.SIGINT)
        out, err = parent.communicate(timeout=HANGS_SECONDS)
    finally:
        parent.kill()
        parent.wait()
    assert (parent.returncode, out, err) == (130, "", "interrupted\n")
    assert gone(int((tmp_path / "pid").read_text()))
    assert list(tmp_path.glob("*/*.holder")) == []
