"""`bandwidth.compare`: each of the callables that share their rounds is valid, or not, by its own samples."""

import pytest
from scripted import ScriptedDevice

from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.outcomes.flatten import outcome_of
from pytest_bandwidth.session.fixture import Bandwidth
from pytest_bandwidth.session.fresh.child import Invocation
from pytest_bandwidth.session.measuring.measuring_run import MeasuredTest
from pytest_bandwidth.session.measuring.progress import Progress
from pytest_bandwidth.session.run import Run
from pytest_bandwidth.session.user.settings import Settings

BYTES = 10**9
PEAK = Peak(2000e9, "test")


@pytest.fixture
def bandwidth(tmp_path, monkeypatch):
    """Makes a fixture whose device takes the given seconds for each callable, and the callables by name."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))

    def make(device=None, disable=False, **seconds):
        running = []

        def function(name):
            return lambda: running.append(name)

        device = device or ScriptedDevice(peak=PEAK)
        device.kernel_script = lambda _: seconds[running[-1]]
        run = Run(Settings(disable=disable), Invocation((), tmp_path, as_module=True), tmp_path)
        run.device = device
        fixture = Bandwidth(run, MarkerOptions(max_time=0.1), tmp_path / "test_it.py")
        return run, fixture.compare({name: function(name) for name in seconds}, reads=BYTES, writes=0)

    return make


def status(run, measurement):
    """What stands in the document of the verdict."""
    judged = run.judge({"k": measurement}, MeasuredTest("t.py::t", "t.py::t", MarkerOptions(), 1.0), Progress())["k"]
    return outcome_of("t.py::t", "k", judged.measurement, judged.decision, "").status


@pytest.mark.parametrize(
    ("slow", "wrong", "code"), [("first", 1e-6, "above-peak"), ("first", 0.0, "clock"), ("second", 1e-6, "above-peak")]
)
def test_only_the_one_that_is_wrong_is_invalid(bandwidth, slow, wrong, code):
    seconds = {"first": wrong, "second": wrong, slow: 1e-3}
    run, compared = bandwidth(**seconds)
    (other,) = seconds.keys() - {slow}
    assert (compared[slow].invalid, status(run, compared[slow])) == (None, "UNDECIDED")
    assert [finding.code for finding in compared[slow].findings] == []
    assert compared[other].invalid.code == code
    assert status(run, compared[other]) == "MISMATCH"


def test_a_ratio_of_samples_that_took_no_time_is_refused(bandwidth):
    _, compared = bandwidth(first=1e-3, second=0.0)
    with pytest.raises(UsageError, match="a sample of 'second' took no time"):
        compared.ratio("second", over="first")


def test_what_the_device_did_holds_for_all(bandwidth):
    busy = Conditions(others=("train.py (7)",))
    device = ScriptedDevice(identity=DeviceIdentity("cuda", "d", None, "s"), peak=PEAK, states=(busy,))
    _, compared = bandwidth(device, first=1e-3, second=1e-3)
    assert [compared[name].invalid.code for name in ("first", "second")] == ["others", "others"]


def test_what_is_not_timed_is_not_invalid(bandwidth):
    _, compared = bandwidth(disable=True, first=1e-3, second=1e-3)
    assert [compared[name].invalid for name in ("first", "second")] == [None, None]
