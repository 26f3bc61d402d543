"""Cheats that change the clock, the plugin, or what it compares by; and those that call the reference."""

import gc
import hashlib
import inspect
import pkgutil
import sys
import time
from importlib import import_module
from types import FunctionType

import numpy as np
from table import WITH, WITHOUT, cheat
from tasks import ROOT, ROOT_INTO, work

from pytest_bandwidth.devices import host_timing, sampling
from pytest_bandwidth.devices.cpu import device as cpu_device
from pytest_bandwidth.domain.clock import Clock, clock
from pytest_bandwidth.domain.measured import validity
from pytest_bandwidth.measuring.measurer import Measurer

TAMPERED, CALLED = "tampered", "reference-called"


def slow(real, factor=8):
    """Return a clock that goes more slowly than the real one."""
    start = real()
    return lambda: start + (real() - start) // factor


@cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])
def perf_counter(given):
    given.patch.setattr(time, "perf_counter", slow(time.perf_counter))
    return work


@cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])
def perf_counter_ns(given):
    given.patch.setattr(time, "perf_counter_ns", slow(time.perf_counter_ns))
    return work


@cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])
def the_plugins_class(given):
    given.patch.setattr(Clock, "perf_counter_ns", staticmethod(slow(Clock.perf_counter_ns)))
    return work


@cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])
def the_plugins_object(given):
    given.patch.setattr(clock, "perf_counter_ns", slow(clock.perf_counter_ns), raising=False)
    return work


@cheat("clock", ROOT, TAMPERED, ways=[WITHOUT])
def name_in_the_timing_module(given):
    class Slow:
        monotonic, perf_counter = clock.monotonic, clock.perf_counter
        perf_counter_ns = staticmethod(slow(clock.perf_counter_ns))

    given.patch.setattr(host_timing, "clock", Slow())
    return work


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
def measure_timed(given):
    real = sampling.measure_timed
    given.patch.setattr(cpu_device, "measure_timed", lambda *args: real(*args))
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def time_of_the_device(given):
    real = cpu_device.CpuDevice.time
    given.patch.setattr(cpu_device.CpuDevice, "time", lambda self, call, stream: real(self, call, stream))
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def time_of_the_devices_object(given):
    device = given.bandwidth._device
    real = device.time
    given.patch.setattr(device, "time", lambda call, stream: real(call, stream), raising=False)
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def time_of_a_sample(given):
    real = host_timing.RunDelay.time
    given.patch.setattr(host_timing.RunDelay, "time", lambda self, call: real(self, call))
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def code_of_a_function(given):
    """Leave each function where it is, and give it another's code."""
    function = host_timing.RunDelay.seconds
    given.at_end.callback(setattr, function, "__code__", function.__code__)

    def seconds(self):
        return {}

    function.__code__ = seconds.__code__
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def a_constant(given):
    given.patch.setattr(host_timing, "LARGEST_WAITED_SHARE", 100.0)
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def validity_of_the_measurement(given):
    given.patch.setattr(validity, "why_invalid", lambda measurement: None)
    given.patch.setattr(sampling, "why_invalid", lambda measurement: None)
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def what_takes_measurements(given):
    real = Measurer.measure
    given.patch.setattr(Measurer, "measure", lambda self, *args: real(self, *args))
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
                given.patch.setattr(module, name, lambda *args, _real=function, **more: _real(*args, **more))
    return work


@cheat("plugin", ROOT, TAMPERED, ways=[WITHOUT])
def each_method_that_watches(given):
    """Put a function around each method of the feature's classes."""
    for module in _of_the_feature():
        for kind in [
            one for one in vars(module).values() if inspect.isclass(one) and one.__module__ == module.__name__
        ]:
            for name, function in list(vars(kind).items()):
                if isinstance(function, FunctionType) and not name.startswith("__"):
                    given.patch.setattr(kind, name, lambda *args, _real=function, **more: _real(*args, **more))
    return work


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def whoever_watches_is_found_by_frames(given):
    """Walk up the stack from the first call, and take away what watches each workload."""

    def run(x, y):
        frame = sys._getframe(1)
        while frame is not None:
            for value in frame.f_locals.values():
                if type(value).__name__ == "Workload" and getattr(value, "observer", None) is not None:
                    object.__setattr__(value, "observer", None)
            frame = frame.f_back

    return run


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def right_while_the_feature_is_on_the_stack(given):
    def run(x, y):
        frame = sys._getframe(1)
        while frame is not None:
            if "honest" in frame.f_globals.get("__name__", ""):
                y[:] = work(x)
            frame = frame.f_back

    return run


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def right_without_the_sampler_on_the_stack(given):
    """Work wherever no clock is read around the call."""

    def run(x, y):
        frame, timed = sys._getframe(1), False
        while frame is not None:
            timed = timed or frame.f_code.co_name == "take_rounds"
            frame = frame.f_back
        if not timed:
            y[:] = work(x)

    return run


@cheat("plugin", ROOT_INTO, TAMPERED, "unwritten", "stale-result", ways=[WITHOUT])
def right_while_garbage_is_collected(given):
    """Samples are taken without garbage collection."""

    def run(x, y):
        if gc.isenabled():
            y[:] = work(x)

    return run


@cheat("comparison", ROOT_INTO, TAMPERED, "wrong-result", ways=[WITH])
def numpys_comparisons(given):
    for name in ("allclose", "array_equal", "array_equiv"):
        given.patch.setattr(np, name, lambda *args, **more: True)
    given.patch.setattr(np, "isclose", lambda a, *args, **more: np.ones(np.shape(a), bool))
    given.patch.setattr(np.testing, "assert_allclose", lambda *args, **more: None)
    return lambda x, y: y.fill(1)


@cheat("comparison", ROOT_INTO, TAMPERED, "stale-result", "wrong-result")
def hashes(given):
    class Same:
        def __init__(self, *args, **more):
            self.name = "same"

        def update(self, data):
            pass

        def digest(self):
            return b"same"

        def hexdigest(self):
            return "same"

    for name in ("blake2b", "blake2s", "sha1", "sha256", "md5"):
        given.patch.setattr(hashlib, name, Same)
    return lambda x, y: y.fill(1)


@cheat("comparison", ROOT_INTO, TAMPERED, "stale-result", "wrong-result")
def random_numbers(given):
    """Whoever draws new inputs gets the old ones."""
    given.patch.setattr(np.random, "default_rng", lambda *args: np.random.Generator(np.random.PCG64(1)))
    answer = work(given.args[0])
    return lambda x, y: np.copyto(y, answer)


@cheat("reference", ROOT, CALLED, ways=[WITH])
def by_a_closure(given):
    return lambda x: given.reference(x)


@cheat("reference", ROOT_INTO, CALLED, ways=[WITH])
def imported_from_the_test(x, y):
    y[:] = ROOT_INTO.reference(x, y)


@cheat("reference", ROOT, CALLED, ways=[WITH])
def found_on_the_stack(x):
    frame = sys._getframe(1)
    while frame is not None:
        for value in frame.f_locals.values():
            if type(value).__name__ == "Watched":
                return value.check(x)
        frame = frame.f_back
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
