"""The self-test's processes: one on a scripted device, and real ones on the host, beside others and interrupted."""

import json
import os
import signal
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import scripted
from children import HANGS_SECONDS, gone, wait_for
from scripted import ScriptedDevice, repeat

from pytest_bandwidth.cli import selftest_processes
from pytest_bandwidth.cli.selftest_processes import answer, main, measurer_of
from pytest_bandwidth.domain.device import Conditions, Peak

ASKED = {"device": "cpu", "mib": 1, "drops": [0.05], "busy_processors": None, "turn": 1}
ELEMENTS = 2**20 // 4
IDLE = Conditions(others_processors=0.0)
BUSY = Conditions(others=("make (7): 2.00 processors",), others_processors=2.0)
# Each measurement reads the state before its samples and after.
ALWAYS_BUSY = (BUSY,)
BUSY_ONCE = (IDLE, BUSY, IDLE)


class Triads(ScriptedDevice):
    """Its kernels note how many elements they were launched with, and where the arrays lie."""

    def kernel(self, source):
        assert source.name == "triad_f32"
        self.launches = []
        return lambda a, b, c, scalar, n: self.launches.append(((id(a), id(b), id(c)), int(n), float(scalar)))


def answered(device, **more):
    measurer = measurer_of({**ASKED, **more})
    measurer.device = device
    return answer(measurer, {**ASKED, **more})


@pytest.fixture(autouse=True)
def own_locks(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))


def test_figures_by_drop():
    seconds = 12 * ELEMENTS / 100e9
    found = answered(Triads(repeat(seconds), repeat(seconds)))
    assert list(found) == ["runs"]
    assert set(found["runs"]) == {"0.0", "0.05"}
    for figures in found["runs"].values():
        assert figures == pytest.approx({"gbps": 100.0, "relative": 1.0, "probe_gbps": 100.0})


@pytest.mark.parametrize("drop", [0.05, 0.5])
def test_a_drop_is_more_work_in_the_same_arrays(drop):
    device = Triads()
    measurer = measurer_of(ASKED)
    measurer.device = device
    measured = selftest_processes.measured_triad(measurer, 1, drop)
    works = device.timed.count("kernel")
    assert sum(n for _, n, _ in device.launches) == works * round(ELEMENTS / (1 - drop))
    assert max(n for _, n, _ in device.launches) == ELEMENTS, "none past the arrays' end"
    assert len({arrays for arrays, _, _ in device.launches}) == 1
    assert measured.bytes_moved == 12 * ELEMENTS, "what identical code declares"


@pytest.mark.parametrize(
    ("device", "more", "why"),
    [
        (lambda: Triads(states=BUSY_ONCE), {}, None),  # taken again
        (lambda: Triads(states=ALWAYS_BUSY), {"busy_processors": 2.5}, None),
        (
            lambda: Triads(states=ALWAYS_BUSY),
            {},
            "others kept 2.0 processors busy meanwhile (make (7): 2.00 processors)",
        ),
        (lambda: Triads(peak=Peak(1e9, "of a test")), {}, "3.15 GB/s is more than the peak of 1.00 GB/s (of a test)"),
        (
            lambda: Triads(repeat(1e-3), repeat(3e-3), peak=Peak(1e12, "of a test")),
            {},
            "300 % of the probe's bandwidth, past 200 %, tell nothing",
        ),
    ],
    ids=["busy once", "as busy as is said", "always busy", "above the peak", "an unbelievable share"],
)
def test_what_stays_invalid_says_why(device, more, why):
    found = answered(device(), **more)
    assert found["invalid"].startswith(why) if why else set(found["runs"]) == {"0.0", "0.05"}


def test_a_device_that_cannot_be_had_is_one_line_and_status_2(capsys):
    assert main(json.dumps({**ASKED, "device": "tape"})) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("device: found 'tape', expected auto, ")
    assert len(said.err.splitlines()) == 1


def test_the_answer_is_one_json_document(capsys, monkeypatch):
    monkeypatch.setattr("pytest_bandwidth.measuring.measurer.open_device", lambda _: Triads())
    assert main(json.dumps(ASKED)) == 0
    assert set(json.loads(capsys.readouterr().out)["runs"]) == {"0.0", "0.05"}


SELFTEST = [sys.executable, "-m", "pytest_bandwidth.cli", "selftest", "--device=cpu"]
SMALLEST = ("--runs=9", "--drop=10%", "--mib=1")
# Found by the interpreter at its start: every process measures on a scripted device, whatever the machine does. The
# self-test has no option for how often it draws, which does not matter here.
SCRIPTED = """
import random
from pytest_bandwidth.cli import selftest
from pytest_bandwidth.measuring import measurer
from scripted import ScriptedDevice, repeat

class Triads(ScriptedDevice):
    def kernel(self, source):
        return lambda *arguments: None

seconds = random.uniform(1e-4, 1.1e-4)
measurer.open_device = lambda _: Triads(repeat(seconds), repeat(seconds))
selftest.TRIALS = 20
"""
# Found by the interpreter at its start: the self-test's processes never end.
STUCK_IN_CHILDREN = """
import sys

if any("selftest_process" in word for word in sys.orig_argv):
    import os, time
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)
"""


def in_processes(test):
    without = pytest.mark.skipif(find_spec("numba") is None, reason="kernels on the host need Numba: the extra cpu")
    return without(pytest.mark.processes(test))


@pytest.fixture
def environment(tmp_path):
    return {**os.environ, "TMPDIR": str(tmp_path)}


@in_processes
def test_from_processes_to_a_recommendation(environment, tmp_path):
    (tmp_path / "sitecustomize.py").write_text(SCRIPTED)
    folders = os.pathsep.join((str(tmp_path), str(Path(scripted.__file__).parent)))
    scripts = {**environment, "PYTHONPATH": folders}
    done = subprocess.run([*SELFTEST, *SMALLEST, "--json"], capture_output=True, text=True, env=scripts, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    said = json.loads(done.stdout)
    assert {drop: len(runs) for drop, runs in said["runs"].items()} == {"0.0": 9, "0.1": 9}
    assert all(figure > 0 for runs in said["runs"].values() for run in runs for figure in run.values())
    assert said["left_out"] == []
    for rows in said["rates"].values():
        assert all(0 <= share <= 1 for row in rows for share in (row["false_alarms"], *row["found"].values()))
    assert list(tmp_path.glob("*/*.holder")) == [], "nobody holds the device"


@in_processes
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
