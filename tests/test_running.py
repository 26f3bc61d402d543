"""The device's lock while a test is judged: held for each fresh process, free in between."""

from dataclasses import replace

import pytest

from pytest_bandwidth import running
from pytest_bandwidth.devices.cpu import open_cpu
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.samples import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.locking import DeviceLock
from pytest_bandwidth.processes import Invocation
from pytest_bandwidth.running import BandwidthRun
from pytest_bandwidth.settings import MarkerOptions, Settings

BYTES = 10**9
# A stand-in for pytest that `python -m` finds first: it tells whether its parent holds a lock.
FRESH = """
import json, os
from pathlib import Path
from filelock import FileLock, Timeout

held = False
for file in Path(os.environ["LOCKS"]).glob("*/*.lock"):
    try:
        with FileLock(file).acquire(timeout=0):
            pass
    except Timeout:
        held = True
with open("seen", "a") as seen:
    seen.write("held\\n" if held else "free\\n")
order = json.loads(Path(os.environ["PYTEST_BANDWIDTH_ORDER"]).read_text())
row = {"label": None, "status": "NO_BASELINE", "gbps": 80.0, "relative": 0.8, "probe_gbps": 100.0}
Path(order["report"]).write_text(json.dumps([row]))
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    locks = tmp_path / "locks"
    locks.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(locks))
    monkeypatch.setenv("LOCKS", str(locks))
    (tmp_path / "pytest.py").write_text(FRESH)
    invocation = Invocation((), tmp_path, as_module=True)
    return BandwidthRun(Settings(device="cpu", confirm=2), invocation, tmp_path)


def measured(gbps, probe_gbps):
    rounds = Rounds((BYTES / gbps / 1e9,), (BYTES / probe_gbps / 1e9,), (True,), probe_bytes=BYTES)
    return Measurement(None, Traffic(BYTES, 0), open_cpu().identity, "clock", rounds)


def is_free(run):
    """Whether another process could measure now."""
    try:
        with DeviceLock(run.device.identity, 0.0).held():
            return True
    except DeviceUnavailable:
        return False


def test_others_may_measure_between_fresh_processes_and_not_during_one(run, tmp_path):
    free = []
    run.tell = lambda _: free.append(is_free(run))
    judged = run.judge({"t": measured(80.0, 100.0)}, MarkerOptions(min_gbps=90.0), "t.py::t", "t.py::t", 1.0)
    assert judged["t"].verdict.status is Status.REGRESSED
    assert free == [True, True]
    assert (tmp_path / "seen").read_text().split() == ["held", "held"]


def test_nobody_measures_beside_the_probe_alone(run, monkeypatch):
    free = []

    def probe_alone(*_):
        free.append(is_free(run))
        return 66.0

    monkeypatch.setattr(running, "probe_alone", probe_alone)
    entry = Entry("t", gbps=90.0, runs=(Run(gbps=90.0, probe_gbps=100.0, relative=0.9),) * 5)
    run.baseline = Baseline(BaselineDevice("A host"), {"t": entry}, path="b.yaml")
    judged = run.judge({"t": measured(60.0, 66.7)}, MarkerOptions(), "t.py::t", "t.py::t", 1.0)
    assert judged["t"].verdict.status is Status.DEVICE
    assert free == [False]


def test_a_device_that_stays_taken_confirms_nothing(run):
    run.settings = replace(run.settings, lock_timeout=0.1)
    with DeviceLock(run.device.identity, 30.0).held():
        judged = run.judge({"t": measured(80.0, 100.0)}, MarkerOptions(min_gbps=90.0), "t.py::t", "t.py::t", 1.0)
    verdict = judged["t"].verdict
    assert verdict.status is Status.UNCONFIRMED
    assert "is being measured by process" in verdict.reason
