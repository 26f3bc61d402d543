"""Old kernels beside new ones: what each process is asked for, what it tells, and that it ends where one hangs."""

import itertools
import json
import math
import threading
from dataclasses import asdict, replace
from functools import partial

import pytest
from judged_kernels import asked_test
from scripted import ScriptedDevice, repeat

from pytest_bandwidth.devices.base import Budget, OldCode, Workload
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.stored_kernel import LaunchShape, text_of_cubin
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceLost, KernelError
from pytest_bandwidth.domain.measured.measurement import FLOOR_SECONDS, Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.evidence import old_kernel
from pytest_bandwidth.evidence.old_kernel import (
    DROP,
    FLOOR,
    FLOOR_SHARE,
    RATIO,
    RESOURCES,
    SECTORS,
    TROUBLE,
    OldKernels,
    measure_with_old_code,
)
from pytest_bandwidth.evidence.processes.requests import OldKernel, read_old_kernel
from pytest_bandwidth.judging.decide import decide
from pytest_bandwidth.judging.evidence import Evidence
from pytest_bandwidth.judging.limits import Limits, MarkerOptions
from pytest_bandwidth.judging.pairs import Looks

FIGURES = {"status": "UNDECIDED", "gbps": 80.0, "relative": 0.8, "probe_gbps": 100.0}
# What a process sees of a label, by the number of the process.
SURE = itertools.repeat({DROP: 0.0, RATIO: 1.0, FLOOR: 0.0, FLOOR_SHARE: 0.0, RESOURCES: {}})


def noisy():
    return (
        {DROP: drop, RATIO: 1.0, FLOOR: 0.0, FLOOR_SHARE: 0.0, RESOURCES: {}} for drop in itertools.cycle((0.4, -0.4))
    )


def faults():
    return itertools.repeat({TROUBLE: "it faults"})


GPU = DeviceIdentity("cuda", "A device", 2**34, "1", timed_on="gpu")
LIMITS = Limits(MarkerOptions(), 0.05, 3)


class Process:
    def __init__(self, asked, sees, ended):
        self.asked, self._sees, self._ended = asked, sees, ended

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._ended.append(self)

    def wait_until_ready(self, _):
        pass

    def rows(self, _):
        sectors = {"old": 8, "new": 16}
        rows = []
        for old in self.asked:
            said = dict(next(self._sees[old.label]))
            rows.append({"label": old.label, **FIGURES, "detail": {Rule.OLD_KERNEL: said}})
            if old.counts:
                said[SECTORS] = sectors
        return rows


class Session:
    """Runs the old kernels of labels; asked: what each process that started was asked for."""

    def __init__(self, room, **sees):
        self.asked, self.ended = [], []
        self._sees = {label: iter(seen) for label, seen in sees.items()}
        self.kernels = OldKernels(asked_test(room, self._start), dict.get, dict.get, Looks())
        self.at_hand = {label: OldKernel(label, "old", "new", 0.001) for label in sees}

    def _start(self, request):
        self.asked.append(list(request.old_kernels))
        return Process(request.old_kernels, self._sees, self.ended)

    def run(self):
        # Their code is not the entry's.
        changed = {label: Measurement(label, Traffic(64, 32), GPU, "events", Rounds()) for label in self.at_hand}
        known = {label: Evidence(one, None, Entry(label), 0.05) for label, one in changed.items()}
        return self.kernels._measure(self.at_hand, known, partial(decide, limits=LIMITS))

    def labels(self):
        return ["".join(old.label for old in asked) for asked in self.asked]


@pytest.mark.parametrize("most", [1, 8])
def test_who_is_settled_is_asked_for_no_more(most):
    session = Session(most, a=SURE, b=noisy())
    assert session.run() == {}
    assert {label: len(seen.rows) for label, seen in session.kernels._seen.items()} == {"a": 4, "b": 12}
    assert session.labels() == ["ab"] * 4 + ["b"] * 8
    assert len(session.ended) == len(session.asked)


def test_what_faults_is_asked_for_no_more_by_those_that_waited_either():
    session = Session(8, a=faults(), b=SURE)
    assert session.run() == {"a": "it faults"}
    # Three more started with it, which are ended before they measure.
    assert session.labels() == ["ab"] * 4 + ["b"] * 3
    assert len(session.kernels._seen["b"].rows) == 4


ASKED = OldKernel("a", "old", "new", 1e-3)


class Ended(BaseException):
    """Stands for the end of the process."""


class Device(ScriptedDevice):
    """Gives old code, or what is wrong with it."""

    def __init__(self, load):
        super().__init__(kernel_script=repeat(2e-3, 1e-3))
        self.load, self.done, self.given = load, [], []

    def old_code(self, workload, old, new, shape=None, cubin=None):
        assert (workload.label, old, new, shape) == ("a", "old", "new", None)
        self.given.append(cubin)
        return self.load(self)


def beside(device, told, asked=ASKED):
    workload = Workload(lambda: device.done.append("new"), Traffic(8, 8), "a")

    def measure(both):
        return device.measure(both, Budget(4, 0.1), lambda _: None)

    return measure_with_old_code(device, asked, workload, measure, told.extend)


@pytest.fixture
def told(monkeypatch):
    rows = []

    def end(status):
        raise Ended(status)

    monkeypatch.setattr(old_kernel.os, "_exit", end)
    return rows


def test_the_drop_is_told_and_the_new_code_runs_last(told):
    device = Device(lambda d: OldCode((lambda: d.done.append("old"),), None, lambda: d.done.append("restored")))
    measured = beside(device, told)
    assert measured.detail["old-kernel"]["drop"] != 0
    assert device.done[-2:] == ["restored", "new"]
    assert "old" in device.done
    assert measured.rounds.interleaved == ()
    assert not told
    json.dumps(measured.detail)


@pytest.mark.parametrize(("floor", "drop"), [(None, math.log(2)), (0.4e-3, math.log(1.6 / 0.6)), (0.5e-3, math.log(2))])
def test_the_drop_is_of_the_work_where_more_than_half_is_work(told, floor, drop):
    """The work takes 2 ms, its old code 1 ms; the figure of the old code stays that of the whole time."""

    class Short(Device):
        def measure(self, *args):
            return super().measure(*args).with_detail(FLOOR_SECONDS, floor)

        def time(self, call, stream):
            taken = super().time(call, stream)
            return replace(taken, seconds=1e-3 if call is old else 2e-3)

    def old():
        pass

    said = beside(Short(lambda _: OldCode((old,), None, lambda: None)), told).detail["old-kernel"]
    assert (said["drop"], said["ratio"]) == (pytest.approx(drop), pytest.approx(2))


CUBIN = replace(ASKED, cubin=text_of_cubin(b"machine code"))


def loaded(device):
    """Give old code where its PTX is asked for, and no machine code."""
    if device.given[-1] is not None:
        raise KernelError("the driver cannot load its machine code\nlog")
    return OldCode((lambda: None,), None, lambda: None)


def test_refused_machine_code_is_told_and_its_ptx_runs_unless_that_is_the_same(told):
    device = Device(loaded)
    said = beside(device, told, CUBIN).detail["old-kernel"]
    assert device.given == [b"machine code", None]
    assert said["refused"] == "the driver cannot load its machine code"
    assert "drop" in said
    assert beside(Device(loaded), told).detail["old-kernel"]["refused"] is None
    device = Device(loaded)
    measured = beside(device, told, replace(CUBIN, needs_cubin=True))
    trouble = {"trouble": "the driver cannot load its machine code"}
    assert (device.given, measured.detail["old-kernel"]) == ([b"machine code"], trouble)
    assert measured.samples
    assert not told


def test_how_the_old_code_was_launched_comes_through_a_request():
    asked = replace(CUBIN, shape=LaunchShape((8, 4, 1), (256, 1, 1), 1024))
    for one in (asked, ASKED):
        assert read_old_kernel(json.loads(json.dumps(asdict(one)))) == one


def test_a_fault_ends_the_process_with_its_reason(told):
    def fault(_):
        raise DeviceLost("the context is lost")

    with pytest.raises(Ended):
        beside(Device(fault), told)
    assert told == [{"label": "a", "detail": {"old-kernel": {"trouble": "it faults: the context is lost"}}}]


def test_code_that_hangs_ends_the_process(told, monkeypatch):
    gave_up = threading.Event()
    monkeypatch.setattr(old_kernel, "HANGS_SECONDS", 0.01)
    monkeypatch.setattr(old_kernel, "HANGS_FACTOR", 1.0)
    monkeypatch.setattr(old_kernel.os, "_exit", lambda _: gave_up.set())

    def hang(_):
        assert gave_up.wait(60)
        raise KernelError("ended")

    beside(Device(hang), told)
    assert told[0]["detail"]["old-kernel"]["trouble"].startswith("it did not end in 10")
