"""Names of devices: a process passes one to its new processes, which open the same device."""

import importlib.util
import subprocess
import sys

import pytest
from documented import example_of

from pytest_bandwidth.devices.base import Device
from pytest_bandwidth.devices.open import checked_name, open_device, timed_on
from pytest_bandwidth.domain.device import DeviceIdentity, DeviceType
from pytest_bandwidth.domain.errors import BandwidthError, DeviceUnavailable

NO_NVRTC = "the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"


@pytest.mark.parametrize("name", ["cpu", "traffic:sm_80", "traffic:sm_80,sm_90a"])
def test_a_name_opens_the_device_that_it_is_of(name):
    if name.startswith("traffic") and importlib.util.find_spec("cuda.bindings") is None:
        pytest.skip(NO_NVRTC)
    assert open_device(name).identity.option == name


def test_the_traffic_device_without_its_extra_is_told_in_one_line(monkeypatch):
    for module in [name for name in sys.modules if name.startswith("pytest_bandwidth.features.traffic")]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "lark", None)
    with pytest.raises(DeviceUnavailable, match=r"^the traffic device needs lark: pip install 'pytest-bandwidth"):
        open_device("traffic")


def test_loading_devices_loads_no_library_of_theirs():
    code = (
        "import sys, pytest_bandwidth.devices.cpu.device, pytest_bandwidth.devices.cuda.device\n"
        "import pytest_bandwidth.devices.cuda.identity, pytest_bandwidth.devices.cuda.management\n"
        "print({'cupy', 'pynvml', 'amdsmi', 'torch', 'numba'} & set(sys.modules))"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "set()\n"


def test_names_are_checked_by_the_forms_that_are_known():
    for name in ("auto", "cuda", "cuda:3", "cpu", "tinygrad", "tinygrad:AMD:1", "traffic", "traffic:sm_100a,sm_80"):
        assert checked_name(name) == name
    forms = "expected auto, cuda, cuda:N, cpu, tinygrad:METAL, traffic or traffic:sm_90$"
    for name in ("", "gpu", "cpu:1", "cuda:", "cuda:x", "cuda:12345", "tinygrad:", "tinygrad:AMD:1:2", "traffic:sm_"):
        with pytest.raises(ValueError, match=rf"^found {name!r}, {forms}"):
            checked_name(name)


def test_a_kind_tells_what_times_it():
    kinds = ("cuda", "cpu", "tinygrad", "traffic", "npu", None)
    assert [timed_on(kind) for kind in kinds] == ["gpu", "host", "host", "nothing", "host", "host"]


COUNTED = """
import numpy as np

def once():
    pass

def twice():
    once()

def test_each(bandwidth):
    found = bandwidth.compare({"once": once, "twice": twice}, reads=8)
    assert [found[name].counts for name in ("once", "twice")] == [{"calls": 1}, {"calls": 2}]
    assert [found[name].value for name in ("once", "twice")] == [None, None]

def test_none_of_the_plugins_own(bandwidth):
    ready = []
    assert bandwidth(len, "text", reads=8, setup=lambda: ready.append(1)).counts == {"calls": 0}
    assert bandwidth(twice, reads=8, label="twice").counts == {"calls": 2}
    assert len(ready) == 4
"""


def test_the_example_of_a_device_counts_each_callable_by_itself(pytester):
    pytester.makeconftest(example_of("devices"))
    pytester.makepyfile(COUNTED)
    options = ("--bandwidth-device=calls", "--bandwidth-baseline=b.yaml", "-v")
    result = pytester.runpytest_subprocess(*options, "--bandwidth-update")
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["bandwidth: calls of Python; counts, measures no time*", "+ *each @ twice  2 calls"])
    assert not {"sectors", "request", "–"} & set(result.stdout.str().replace("/", " ").split())
    baseline = (pytester.path / "b.yaml").read_text()
    assert "kind: calls" in baseline
    assert "pattern" not in baseline
    pytester.runpytest_inprocess(*options, "--bandwidth-strict").assert_outcomes(passed=2)
    pytester.makepyfile(COUNTED.replace("    once()", "    once(), once()"))
    worse = pytester.runpytest_inprocess(*options)
    worse.stdout.fnmatch_lines(["    likely cause  the code changed"])
    assert "the kernel's code" not in worse.stdout.str()


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ("{'calls': 1.5}", "measure returned counts={'calls': 1.5}, expected whole numbers from 0 by their names"),
        ("{'calls': -1}", "measure returned counts={'calls': -1}, expected *"),
        ("[1]", "measure returned counts=[[]1], expected *"),
        ("{1: 1}", "measure returned counts={1: 1}, expected *"),
        ("{}) and None", "measure returned None, expected a Measurement"),
    ],
)
def test_a_device_that_returns_something_else_fails_the_test_in_one_line(pytester, counts, said):
    example = example_of("devices").replace('counts={"calls": calls})', f"counts={counts})".replace("None)", "(None)"))
    pytester.makeconftest(example)
    pytester.makepyfile("def test_len(bandwidth):\n    bandwidth(len, 'text', reads=8)\n")
    result = pytester.runpytest_inprocess("--bandwidth-device=calls")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([f"*.py:2: the device calls: {said}*"])


def test_counts_of_numpy_are_saved(pytester):
    pytester.makeconftest(example_of("devices").replace('"calls": calls}', '"calls": np.int64(calls)}'))
    pytester.makepyfile("def test_len(bandwidth):\n    bandwidth(len, 'text', reads=8)\n")
    result = pytester.runpytest_inprocess(
        "--bandwidth-device=calls", "--bandwidth-baseline=b.yaml", "--bandwidth-update"
    )
    result.assert_outcomes(passed=1)
    assert "counts: {calls: 0}" in (pytester.path / "b.yaml").read_text()


# A device of a user's own, in a conftest.py, that measures time in the simplest way.
CLOCKED = """
from time import perf_counter

import numpy as np

from pytest_bandwidth.hooks import Conditions, DeviceIdentity, DeviceType, Probe, Sample, TimedDevice, measure_timed


class Clocked(TimedDevice):
    xp, method, identity = np, "clock", None

    def __init__(self, number):
        self.identity = DeviceIdentity("clocked", f"clock {number}", None, "one", variant=number)

    def random(self, shape, dtype):
        return np.ones(shape, dtype)

    empty = random

    def nbytes(self, array):
        return array.nbytes

    def now(self):
        return perf_counter()

    def time(self, call, stream):
        started = perf_counter()
        call()
        seconds = perf_counter() - started
        return Sample(seconds, seconds)

    def probe(self, traffic, inputs=()):
        array = np.ones(traffic.bytes_moved)
        return Probe("sum", array.sum, array.nbytes)

    def conditions(self):
        return Conditions()

    def measure(self, workload, budget, progress):
        return measure_timed(self, workload, budget, progress)


def pytest_bandwidth_devices():
    return [DeviceType("clocked", Clocked, "host", "clocked:N", "[0-9]+")]
"""


def test_a_device_of_a_conftest_is_opened_again_in_new_processes(pytester):
    pytester.makeconftest(CLOCKED)
    pytester.makepyfile(
        "def test_sum(bandwidth):\n"
        "    a = bandwidth.random(100_000, 'float64')\n"
        "    assert bandwidth.identity.option == 'clocked:3'\n"
        "    bandwidth(lambda: a.sum(), reads=a, writes=0)\n"
    )
    options = ("--bandwidth-device=clocked:3", "--bandwidth-update", "--bandwidth-runs=2", "--bandwidth-max-time=0.1")
    result = pytester.runpytest_subprocess(*options, "--bandwidth-baseline=b.yaml")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(
        ["bandwidth: clock 3; peak unknown*", "bandwidth: baseline run 2 of 2 in a new process*"]
    )
    assert "name: clock 3, kind: clocked" in (pytester.path / "b.yaml").read_text()
    wrong = pytester.runpytest_inprocess("--bandwidth-device=clocked:x")
    wrong.stderr.fnmatch_lines(
        ["*found 'clocked:x', expected auto, cuda, cuda:N, cpu, clocked:N, tinygrad:METAL, traffic or traffic:sm_90 *"]
    )


class Own(Device):
    """A device of which nothing works but its identity."""

    xp = random = empty = nbytes = measure = identity = None

    def __init__(self, identity, **more):
        self.identity = identity if identity is None else DeviceIdentity(*identity, **more)


@pytest.mark.parametrize(
    ("opened", "said"),
    [
        (lambda: None, "opening it returned None, expected a Device"),
        (lambda: Own(None), "found the identity None, expected a DeviceIdentity"),
        (lambda: Own(("gpu", "a", None, "s")), "found identity.kind='gpu', expected 'npu', as its DeviceType has it"),
        (
            lambda: Own(("npu", "a", None, "s"), timed_on="gpu"),
            "found identity.timed_on='gpu', expected 'host', as its DeviceType has it",
        ),
        (
            lambda: Own(("npu", "a", "8 GiB", "s")),
            "found identity.memory_bytes='8 GiB', expected a number of bytes or None",
        ),
        (lambda: Own(("npu", "a", None, 7)), "found identity.serial=7, expected text"),
        (lambda: Device(), "opening it raised TypeError: Can't instantiate abstract class Device "),
    ],
)
def test_a_plugged_in_device_that_is_none_is_told_in_one_line(monkeypatch, opened, said):
    npu = DeviceType("npu", lambda _: opened(), "host", "npu")
    monkeypatch.setattr("pytest_bandwidth.devices.open.device_types", lambda: {"npu": npu})
    with pytest.raises(BandwidthError) as told:
        open_device("npu")
    assert f"the device npu: {said}" in str(told.value)
    assert "\n" not in str(told.value)
