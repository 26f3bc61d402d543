"""A fresh process that lets old code take turns with new: what it tells, and that it ends where the old code hangs."""

import json
import threading
from dataclasses import asdict, replace

import pytest
from scripted import ScriptedDevice, repeat

from pytest_bandwidth.devices.base import Budget, OldCode, Workload
from pytest_bandwidth.domain.code.stored_kernel import LaunchShape, text_of_cubin
from pytest_bandwidth.domain.errors import DeviceLost, KernelError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.evidence.old_kernel import in_child
from pytest_bandwidth.evidence.old_kernel.in_child import measure_with_old_code
from pytest_bandwidth.evidence.processes.requests import OldKernel, read_old_kernel

ASKED = OldKernel("a", "old", "new", 1e-3)


class Ended(BaseException):
    """Stands for the end of the process."""


class Device(ScriptedDevice):
    """Gives old code, or what is wrong with it."""

    newest_ptx = (9, 0)

    def __init__(self, load):
        super().__init__(kernel_script=repeat(2e-3, 1e-3))
        self.load, self.done, self.given = load, [], []

    def old_code(self, workload, old, new, shape=None, cubin=None):
        assert (workload.label, old, new, shape) == ("a", "old", "new", None)
        self.given.append(cubin)
        return self.load(self)

    def why_not_loaded(self, old, cubin):
        raise NotImplementedError


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

    monkeypatch.setattr(in_child.os, "_exit", end)
    return rows


def test_the_drop_is_told_and_the_new_code_runs_last(told):
    device = Device(lambda d: OldCode((lambda: d.done.append("old"),), None, lambda: d.done.append("restored"), tuple))
    measured = beside(device, told)
    assert measured.detail["old-kernel"]["drop"] != 0
    assert device.done[-2:] == ["restored", "new"]
    assert "old" in device.done
    assert measured.rounds.interleaved == ()
    assert not told
    json.dumps(measured.detail)


def test_code_that_cannot_be_loaded_is_measured_without(told):
    def refuse(_):
        raise KernelError("the driver does not take its PTX\nlog")

    measured = beside(Device(refuse), told)
    assert measured.detail["old-kernel"] == {"trouble": "the driver does not take its PTX"}
    assert measured.samples
    assert not told


CUBIN = replace(ASKED, cubin=text_of_cubin(b"machine code"))


def loaded(device):
    """Give old code where its PTX is asked for, and no machine code."""
    if device.given[-1] is not None:
        raise KernelError("the driver does not take its machine code\nlog")
    return OldCode((lambda: None,), None, lambda: None, tuple)


def test_refused_machine_code_is_told_and_its_ptx_runs(told):
    device = Device(loaded)
    said = beside(device, told, CUBIN).detail["old-kernel"]
    assert device.given == [b"machine code", None]
    assert said["refused"] == "the driver does not take its machine code"
    assert "drop" in said
    assert beside(Device(loaded), told).detail["old-kernel"]["refused"] is None


def test_refused_machine_code_of_the_same_ptx_is_trouble(told):
    device = Device(loaded)
    said = beside(device, told, replace(CUBIN, needs_cubin=True)).detail["old-kernel"]
    assert (device.given, said) == ([b"machine code"], {"trouble": "the driver does not take its machine code"})


def test_how_the_old_code_was_launched_comes_through_a_request():
    asked = replace(ASKED, shape=LaunchShape((8, 4, 1), (256, 1, 1), 1024))
    assert read_old_kernel(json.loads(json.dumps(asdict(asked)))) == asked
    assert read_old_kernel(json.loads(json.dumps(asdict(ASKED)))) == ASKED
    assert read_old_kernel(json.loads(json.dumps(asdict(CUBIN)))) == CUBIN


def test_a_fault_ends_the_process_with_its_reason(told):
    def fault(_):
        raise DeviceLost("the context is lost")

    with pytest.raises(Ended):
        beside(Device(fault), told)
    assert told == [{"label": "a", "detail": {"old-kernel": {"trouble": "it faults: the context is lost"}}}]


def test_code_that_hangs_ends_the_process(told, monkeypatch):
    gave_up = threading.Event()
    monkeypatch.setattr(in_child, "HANGS_SECONDS", 0.01)
    monkeypatch.setattr(in_child, "HANGS_FACTOR", 1.0)
    monkeypatch.setattr(in_child.os, "_exit", lambda _: gave_up.set())

    def hang(_):
        assert gave_up.wait(60)
        raise KernelError("ended")

    beside(Device(hang), told)
    assert told[0]["detail"]["old-kernel"]["trouble"].startswith("it did not end in 10")
