"""A test is judged under the device's lock, which is free between new processes, and never by what disturbed it."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from scripted import ScriptedDevice, dropped, repeat

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import DeviceUnavailable, UsageError
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.measured.validity import TAKEN_AGAIN
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.evidence.fresh_processes import JudgedTest, further_runs
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring import measurer as measuring
from pytest_bandwidth.measuring.measurer import DeviceLock, Measurer
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.measuring.task import INVALID_RETRIES
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.session import judge as session_judge
from pytest_bandwidth.session.judge import Judge

BYTES = 10**8
# A stand-in for pytest that `python -m` finds first: it tells whether its parent holds a lock.
FRESH = """
import json, os, socket
from pathlib import Path
from filelock import FileLock, Timeout

request = json.loads(Path(os.environ["PYTEST_BANDWIDTH_REQUEST"]).read_text())["child"]
with socket.socket(fileno=request["line"]) as line, line.makefile("rw") as text:
    print("ready", file=text, flush=True)
    text.readline()
held = False
for file in Path(os.environ["LOCKS"]).glob("*/*.lock"):
    try:
        with FileLock(file).acquire(timeout=0):
            pass
    except Timeout:
        held = True
with open("seen", "a") as seen:
    seen.write("held\\n" if held else "free\\n")
with open("peaks", "a") as peaks:
    peaks.write(json.dumps(request["peak"]) + "\\n")
with open("times", "a") as times:
    times.write(json.dumps([request["rounds_share"], request["quiet_wait_seconds"]]) + "\\n")
Path(request["report"]).write_text(Path("rows.json").read_text())
"""


@pytest.fixture
def run(tmp_path, monkeypatch):
    locks = tmp_path / "locks"
    locks.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(locks))
    monkeypatch.setenv("LOCKS", str(locks))
    (tmp_path / "pytest.py").write_text(FRESH)
    fresh_rows(tmp_path, fresh_row())
    invocation = Invocation((), tmp_path, as_module=True)
    return Judge(Settings(device="cpu", confirm=2), invocation, tmp_path)


SEEN = Progress()


class Telling:
    """Hands on what would be shown."""

    def __init__(self, told):
        self.show = told

    def note(self, text):
        """What a log would keep."""


def judged_by(run, measurements, progress=SEEN, **marker):
    about = ("t.py::t", "t.py::t", MarkerOptions(**marker), 1.0)
    return run.judge(measurements, JudgedTest(*about, run.measurer, run._invocation, progress))


def fresh_row(**more):
    row = {"label": None, "status": "UNDECIDED", "gbps": 80.0, "relative": 0.8, "probe_gbps": 100.0}
    return {**row, **more}


def fresh_rows(folder, *rows):
    """What every new process reports."""
    (folder / "rows.json").write_text(json.dumps(rows))


def measured(gbps, probe_gbps, label=None):
    rounds = Rounds((BYTES / gbps / 1e9,), (BYTES / probe_gbps / 1e9,), (True,), probe_bytes=BYTES)
    return Measurement(label, Traffic(BYTES, 0), CpuDevice().identity, "clock", rounds)


def is_free(run):
    """Whether another process could measure now."""
    try:
        with DeviceLock(run.measurer.device.identity, 0.0).held():
            return True
    except DeviceUnavailable:
        return False


def test_others_may_measure_between_fresh_processes_and_not_during_one(run, tmp_path):
    free = []
    progress = Telling(lambda _: free.append(is_free(run)))
    judged = judged_by(run, {"t": measured(80.0, 100.0)}, progress, min_gbps=90.0)
    assert judged["t"].decision.status is Status.REGRESSED
    assert free == [True, True]
    assert (tmp_path / "seen").read_text().split() == ["held", "held"]


def test_a_slow_test_without_old_code_is_measured_again(run, tmp_path):
    entry = Entry("t", gbps=90.0, runs=(Run(gbps=90.0, probe_gbps=100.0, relative=0.9),) * 5)
    run.baseline = Baseline(BaselineDevice("A host"), {"t": entry}, path="b.yaml")
    run._whole_baseline = run.baseline
    decision = judged_by(run, {"t": measured(80.0, 100.0)})["t"].decision
    assert (decision.status, decision.rule) == (Status.REGRESSED, Rule.STORED)
    assert decision.numbers.confirmations == (0.8, 0.8)
    # tmp_path is in no repository: so nothing could be compared with old code.
    assert any("git" in why for why in decision.why_not)
    assert (tmp_path / "seen").read_text().split() == ["held", "held"]


def test_where_the_device_stays_taken_no_process_starts_and_nothing_is_confirmed(run, tmp_path):
    run.measurer.settings = replace(run.settings, lock_timeout=0.1)
    with DeviceLock(run.measurer.device.identity, 30.0).held():
        judged = judged_by(run, {"t": measured(80.0, 100.0)}, min_gbps=90.0)
    decision = judged["t"].decision
    assert (decision.status, decision.rule) == (Status.UNDECIDED, Rule.NOT_RERUN)
    assert "is being measured by process" in decision.facts["why"]
    assert not (tmp_path / "seen").exists()


def judged_by_floor(run, *labels):
    measurements = {str(label): measured(80.0, 100.0, label) for label in labels}
    found = judged_by(run, measurements, min_gbps=90.0)
    return {key: one.decision for key, one in found.items()}


@pytest.mark.parametrize("wrong", [{"is_valid": False, "reason": "throttled"}, {"gbps": 2001.0}])
def test_one_label_that_is_invalid_in_fresh_processes_takes_no_evidence_from_another(run, tmp_path, wrong):
    run.measurer.peak = Peak(2000e9, "test")
    fresh_rows(tmp_path, fresh_row(label="a", **wrong), fresh_row(label="b"))
    found = judged_by_floor(run, "a", "b")
    assert (found["a"].status, found["b"].status) == (Status.UNDECIDED, Status.REGRESSED)
    assert found["a"].facts["why"] == "0 new processes measured it validly, expected 2"


def test_fresh_processes_without_anything_valid_say_why(run, tmp_path):
    fresh_rows(tmp_path, *(fresh_row(label=label, is_valid=False, reason=f"hot {label}") for label in "ab"))
    whys = [decision.facts["why"] for decision in judged_by_floor(run, "a", "b").values()]
    assert whys == ["a new process measured nothing valid: hot a"] * 2


def test_a_measurement_inside_another_is_refused_and_later_ones_are_not(run):
    run.measurer.device = ScriptedDevice()
    plain = Workload(lambda: None, Traffic(BYTES, 0))
    nested = Workload(lambda: run.measurer.measure(plain, MarkerOptions(max_time=0.1), SEEN), Traffic(BYTES, 0))
    with pytest.raises(UsageError, match="called inside a measured callable"):
        run.measurer.measure(nested, MarkerOptions(max_time=0.1), SEEN)
    assert run.measurer.measure(plain, MarkerOptions(max_time=0.1), SEEN).seconds


@pytest.mark.parametrize(("busy", "invalid"), [(2, False), (3, True)])
def test_invalid_tries_are_told_beside_the_one_that_stands(run, busy, invalid):
    others = tuple(Conditions(others=(f"train.py ({number})",)) for number in range(busy))
    # The state is asked for before and after the samples.
    states = [state for state in (*others, Conditions()) for _ in range(2)]
    run.measurer.device = ScriptedDevice(
        identity=DeviceIdentity("cuda", "a device", None, "1", timed_on="gpu"), states=tuple(states)
    )
    measurement = run.measurer.measure(Workload(lambda: None, Traffic(BYTES, 0)), MarkerOptions(max_time=0.1), SEEN)
    assert (measurement.invalid is not None) is invalid
    (finding,) = measurement.findings
    assert finding.code == TAKEN_AGAIN
    tries = re.findall(r"train\.py \((\d)\)", finding.text)
    assert tries == [str(number) for number in range(min(busy, INVALID_RETRIES))]


# What is measured in vain counts as waited: 0.01 s a measurement, or about 2.
@pytest.mark.parametrize(
    ("disturbed_seconds", "invalid", "max_time"), [(5.0, False, 2.0), (15.0, False, 0.01), (25.0, True, 2.0)]
)
def test_an_update_waits_for_a_quiet_moment_and_says_so_once(
    tmp_path, monkeypatch, disturbed_seconds, invalid, max_time
):
    napped, told = [], []
    waited = replace(dropped("run-delay"), run_delay_seconds=9e-4)

    def now():
        return sum(napped) + device.clock

    device = ScriptedDevice(kernel_script=lambda _: waited if now() < disturbed_seconds else 1e-3)
    # Not of the module itself, which other threads sleep by.
    monkeypatch.setattr(measuring, "time", SimpleNamespace(monotonic=now, sleep=napped.append))
    settings = Settings(device="cpu", baseline=tmp_path / "b.yaml", update=True)
    updating = Judge(settings, Invocation((), tmp_path, as_module=True), tmp_path)
    updating.measurer.device = device
    progress = Telling(lambda _: None)
    progress.note = told.append
    workload, marker = Workload(lambda: None, Traffic(BYTES, 0)), MarkerOptions(max_time=max_time)
    measurement = updating.measurer.measure(workload, marker, progress)
    assert (measurement.invalid is not None) is invalid
    # The first and the last measurement come on top.
    assert now() == pytest.approx(min(disturbed_seconds, measuring.QUIET_WAIT_SECONDS), abs=1.0 + 3 * max_time)
    (line,) = told
    assert re.match(
        r"waits up to 20 s for a quiet moment: its threads waited for a processor in \d+ of \d+ rounds", line
    )


def test_a_run_that_writes_nothing_does_not_wait(run):
    waited = replace(dropped("run-delay"), run_delay_seconds=9e-4)
    run.measurer.device = ScriptedDevice(kernel_script=repeat(waited))
    measurement = run.measurer.measure(Workload(lambda: None, Traffic(BYTES, 0)), MarkerOptions(max_time=0.01), SEEN)
    assert measurement.invalid.code == "run-delay"
    assert run.measurer.device.clock < 1.0


def test_fresh_processes_take_rounds_for_three_quarters_of_the_time(run, tmp_path):
    judged_by(run, {"t": measured(80.0, 100.0)}, min_gbps=90.0)
    assert times_told(tmp_path) == [[0.75, 0.0]] * 2
    whole = rounds(run)
    assert rounds(run, ChildRequest("cpu", rounds_share=0.5)) == pytest.approx(whole / 2, abs=1)
    run.measurer.settings = replace(run.settings, update=True)
    assert rounds(run) == whole, "an update takes no longer than a judged run"


def rounds(run, request=None):
    """How many a process takes of a kernel that never becomes precise."""
    root = run.measurer.root
    one = Judge(run.settings, Invocation((), root, True), root).measurer
    if request is not None:
        one = Measurer(run.settings, root, request)
    one.device = ScriptedDevice(kernel_script=lambda n: 1e-3 * (1 + n % 2))
    workload = Workload(lambda: None, Traffic(500_000, 500_000))
    return len(one.measure(workload, MarkerOptions(max_time=1.0), SEEN).rounds.kernel_seconds)


def test_further_runs_of_an_update_take_half_the_rounds_and_share_the_time_of_waiting(run, tmp_path):
    settings = replace(run.settings, update=True, runs=3)
    invocation, identity = Invocation((), tmp_path, as_module=True), run.measurer.device.identity
    further_runs(settings, invocation, identity, Peak(7e9, "b.yaml"), lambda _: None)
    assert times_told(tmp_path) == [[0.5, measuring.QUIET_WAIT_SECONDS / 2]] * 2


def times_told(folder):
    """What each new process was told: its share of time for rounds, and how long it may wait for a quiet moment."""
    return [json.loads(line) for line in (folder / "times").read_text().splitlines()]


# What bandwidth_busy_processors lets count though other processes disturbed it: never a pass of a slower kernel.

MARKER = MarkerOptions(max_time=0.2)
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
        monkeypatch.setattr(measuring, "open_device", lambda _: made)

    return opens


def judged_while_busy(settings, tmp_path, judged_on):
    judge = Judge(settings, Invocation((), tmp_path, as_module=True), tmp_path)
    then = Run(gbps=100.0, probe_gbps=100.0, relative=1.0)
    entry = Entry("t", gbps=100.0, runs=(then,) * 5, judged_on=judged_on)
    judge.baseline = Baseline(BaselineDevice("A host"), {"t": entry}, path="b.yaml")
    measurement = judge.measurer.measure(Workload(lambda: None, Traffic(BYTES // 2, BYTES // 2)), MARKER, SEEN)
    return judged_by(judge, {"t": measurement}, max_time=0.2)["t"]


KINDS = {"the probe": (SLOWER, WAITED), "the kernel": (WAITED, 1e-3), "both": (WAITED, WAITED)}


@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("judged_on", ["relative", "gbps"])
def test_a_slower_kernel_never_passes(device, tmp_path, kind, judged_on):
    device(*KINDS[kind])
    one = judged_while_busy(BUSY, tmp_path, judged_on)
    assert one.decision.status is (Status.UNDECIDED if judged_on == "relative" else Status.REGRESSED)
    assert one.measurement.relative is None


@pytest.mark.parametrize(("kernel", "status"), [(1e-3, Status.SAVED), (WAITED, Status.UNDECIDED)])
def test_an_entry_rests_on_no_kernel_that_waited(device, tmp_path, monkeypatch, kernel, status):
    monkeypatch.setattr(session_judge, "QUIET_WAIT_SECONDS", 0.0)
    device(kernel, WAITED)
    one = judged_while_busy(replace(BUSY, update=True, baseline=tmp_path / "b.yaml"), tmp_path, None)
    assert (one.decision.status, one.measurement.relative) == (status, None)


@pytest.mark.parametrize(("kernel", "code"), [(1e-3, None), (WAITED, "run-delay")])
def test_a_fresh_process_tells_nothing_of_a_kernel_that_waited(device, tmp_path, kernel, code):
    device(kernel, WAITED)
    child = Measurer(BUSY, tmp_path, ChildRequest("cpu"))
    found = child.measure(Workload(lambda: None, Traffic(BYTES // 2, BYTES // 2)), MARKER, SEEN).invalid
    assert (None if found is None else found.code) == code
