"""What bandwidth_busy_processors lets count though other processes disturbed it: never a pass of a slower kernel."""

from dataclasses import replace

import pytest
from scripted import ScriptedDevice, dropped, repeat

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.fresh_processes import MeasuredTest
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring import measurer
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.session import judge as judging
from pytest_bandwidth.session.judge import Judge

BYTES, SEEN, MARKER = 10**8, Progress(), MarkerOptions(max_time=0.2)
# Of the baseline: 1 ms, as the probe's; what waits for a processor takes as long as the kernel that became slower.
SLOWER = 3e-3
WAITED = replace(dropped("run-delay", SLOWER), run_delay_seconds=2e-3)
BESIDE = Conditions(others=("cc1 (7): 1.90 processors",), others_processors=1.9)
BUSY = Settings(device="cpu", busy_processors=8.0, confirm=0)


@pytest.fixture
def device(monkeypatch):
    """Give the device of a run that is to be made: what its kernel's and its probe's samples are."""

    def opens(kernel, probe):
        made = ScriptedDevice(repeat(kernel), repeat(probe), probe_bytes=BYTES, states=(BESIDE,))
        monkeypatch.setattr(measurer, "open_device", lambda _: made)

    return opens


def judged(settings, tmp_path, judged_on):
    judge = Judge(settings, Invocation((), tmp_path, as_module=True), tmp_path)
    then = Run(gbps=100.0, probe_gbps=100.0, relative=1.0)
    entry = Entry("t", gbps=100.0, runs=(then,) * 5, judged_on=judged_on)
    judge.baseline = Baseline(BaselineDevice("A host"), {"t": entry}, path="b.yaml")
    measurement = judge.measurer.measure(Workload(lambda: None, Traffic(BYTES // 2, BYTES // 2)), MARKER, SEEN)
    test = MeasuredTest("t.py::t", "t.py::t", MARKER, 1.0)
    return judge.judge({"t": measurement}, judge.asked(test, SEEN))["t"]


KINDS = {"the probe": (SLOWER, WAITED), "the kernel": (WAITED, 1e-3), "both": (WAITED, WAITED)}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("judged_on", ["relative", "gbps"])
def test_a_slower_kernel_never_passes(device, tmp_path, kind, judged_on):
    device(*KINDS[kind])
    one = judged(BUSY, tmp_path, judged_on)
    assert one.decision.status is (Status.UNDECIDED if judged_on == "relative" else Status.REGRESSED)
    assert one.measurement.relative is None


@pytest.mark.parametrize(("kernel", "status"), [(1e-3, Status.SAVED), (WAITED, Status.UNDECIDED)])
def test_an_entry_rests_on_no_kernel_that_waited(device, tmp_path, monkeypatch, kernel, status):
    monkeypatch.setattr(judging, "QUIET_WAIT_SECONDS", 0.0)
    device(kernel, WAITED)
    one = judged(replace(BUSY, update=True, baseline=tmp_path / "b.yaml"), tmp_path, None)
    assert (one.decision.status, one.measurement.relative) == (status, None)


@pytest.mark.parametrize(("kernel", "code"), [(1e-3, None), (WAITED, "run-delay")])
def test_a_fresh_process_tells_nothing_of_a_kernel_that_waited(device, tmp_path, kernel, code):
    device(kernel, WAITED)
    child = Measurer(BUSY, tmp_path, ChildRequest("cpu"))
    found = child.measure(Workload(lambda: None, Traffic(BYTES // 2, BYTES // 2)), MARKER, SEEN).invalid
    assert (None if found is None else found.code) == code
