"""Cheats that change the clock, the plugin, or what it compares by; and those that call the reference."""

import gc
import inspect
import pkgutil
import sys
import time
from importlib import import_module
from types import FunctionType

import numpy as np
from table import ROOT, ROOT_INTO, WITH, WITHOUT, cheat, work

from pytest_bandwidth.devices import host_timing, sampling
from pytest_bandwidth.devices.cpu import device as cpu_device
from pytest_bandwidth.domain.interpreter import Clock, clock
from pytest_bandwidth.measuring.measurer import Measurer

TAMPERED, CALLED = "tampered", "reference-called"


def slow(real, factor=8):
    """Return a clock that goes more slowly than the real one."""
    start = real()
    return lambda: start + (real() - start) // factor


class _SlowClock:
    monotonic, perf_counter = clock.monotonic, clock.perf_counter
    perf_counter_ns = staticmethod(slow(clock.perf_counter_ns))


def patched(target, name, replacement):
    """Return what puts something else in the place of an attribute, and works."""

    def make(given):
        given.patch.setattr(target, name, replacement, raising=False)
        return work

    return make


def around(function):
    """Return a function that calls another, and is not it."""
    return lambda *args, **more: function(*args, **more)


cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])(
    perf_counter_ns=patched(time, "perf_counter_ns", slow(time.perf_counter_ns)),
    the_plugins_object=patched(clock, "perf_counter_ns", slow(clock.perf_counter_ns)),
    name_in_the_timing_module=patched(host_timing, "clock", _SlowClock()),
)
cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])(
    measure_timed=patched(cpu_device, "measure_timed", around(sampling.measure_timed)),
    time_of_the_device=patched(cpu_device.CpuDevice, "time", around(cpu_device.CpuDevice.time)),
    a_constant=patched(host_timing, "LARGEST_WAITED_SHARE", 100.0),
    what_takes_measurements=patched(Measurer, "measure", around(Measurer.measure)),
)


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def time_of_the_devices_object(given):
    device = given.bandwidth._device
    return patched(device, "time", around(device.time))(given)


@cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])
def while_it_runs_and_back_again(given):
    """Replace the clock during the call; the replacement takes itself away when the plugin reads it."""
    real = Clock.perf_counter_ns

    def once():
        Clock.perf_counter_ns = staticmethod(real)
        return began + 1000

    def run(x):
        nonlocal began
        began = real()
        result = work(x)
        Clock.perf_counter_ns = staticmethod(once)
        return result

    began = 0
    given.at_end.callback(setattr, Clock, "perf_counter_ns", staticmethod(real))
    return run


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def code_of_a_function(given):
    """Leave each function where it is, and give it another's code."""
    function = host_timing.RunDelay.seconds
    given.at_end.callback(setattr, function, "__code__", function.__code__)

    def seconds(self):
        return {}

    function.__code__ = seconds.__code__
    return work


def _of_the_feature():
    package = import_module("pytest_bandwidth.features.honest")
    names = [found.name for found in pkgutil.iter_modules(package.__path__) if not found.name.startswith("arena")]
    return [package, *(import_module(f"{package.__name__}.{name}") for name in names)]


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def each_function_that_watches(given):
    """Put a function around each of the feature's."""
    for module in _of_the_feature():
        for name, function in list(vars(module).items()):
            if isinstance(function, FunctionType) and function.__module__ == module.__name__:
                given.patch.setattr(module, name, around(function))
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def each_method_that_watches(given):
    """Put a function around each method of the feature's classes."""
    for module in _of_the_feature():
        for kind in filter(inspect.isclass, list(vars(module).values())):
            for name, function in list(vars(kind).items()) if kind.__module__ == module.__name__ else ():
                if isinstance(function, FunctionType) and not name.startswith("__"):
                    given.patch.setattr(kind, name, around(function))
    return work


def frames():
    """Walk up the stack from a call."""
    frame = sys._getframe(2)
    while frame is not None:
        yield frame
        frame = frame.f_back


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def whoever_watches_is_found_by_frames(x, y):
    """Take away what watches each workload."""
    for frame in frames():
        for value in frame.f_locals.values():
            if type(value).__name__ == "Workload" and getattr(value, "observer", None) is not None:
                object.__setattr__(value, "observer", None)


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def right_while_the_feature_is_on_the_stack(x, y):
    if any("honest" in frame.f_globals.get("__name__", "") for frame in frames()):
        y[:] = work(x)


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def right_while_garbage_is_collected(x, y):
    """Samples are taken without garbage collection."""
    if gc.isenabled():
        y[:] = work(x)


@cheat("comparison", ROOT_INTO, TAMPERED, "wrong-result", ways=[WITH])
def numpys_comparisons(given):
    for name in ("allclose", "array_equal", "array_equiv"):
        given.patch.setattr(np, name, lambda *args, **more: True)
    given.patch.setattr(np, "isclose", lambda a, *args, **more: np.ones(np.shape(a), bool))
    given.patch.setattr(np.testing, "assert_allclose", lambda *args, **more: None)
    return lambda x, y: y.fill(1)


@cheat("comparison", ROOT_INTO, TAMPERED, "stale-result", "wrong-result")
def random_numbers(given):
    """Whoever draws new inputs gets the old ones."""
    given.patch.setattr(np.random, "default_rng", lambda *args: np.random.Generator(np.random.PCG64(1)))
    answer = work(given.args[0])
    return lambda x, y: np.copyto(y, answer)


cheat("reference", ROOT, CALLED, ways=[WITH])(by_a_closure=lambda given: lambda x: given.reference(x))


@cheat("reference", ROOT, CALLED, ways=[WITH])
def found_on_the_stack(x):
    for frame in frames():
        for value in frame.f_locals.values():
            if type(value).__name__ == "Watched":
                return value.check(x)
    return work(x)


@cheat("reference", ROOT, CALLED, ways=[WITH])
def another_function_of_its_code(given):
    reference = given.reference
    return FunctionType(reference.__code__, reference.__globals__)


@cheat("reference", ROOT, CALLED, "stale-result", ways=[WITH])
def its_answer_taken_from_garbage(given):
    """Look among all arrays for one that the reference made."""
    first = work(given.args[0])

    def run(x):
        if np.array_equal(x, given.args[0]):
            return first.copy()
        return given.reference(x)

    return run
