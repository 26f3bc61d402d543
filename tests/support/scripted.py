"""Replay a script of sample times and faults against a virtual clock, for tests of what stands above a device.

Nothing is timed: a sample takes as long as the script says, and the clock moves by just that. Arrays are NumPy's, and
callables really run, so values and side effects are those of a real measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import (
    Budget,
    Call,
    KernelSource,
    Launch,
    Probe,
    Progress,
    Sample,
    TimedDevice,
    Workload,
    run_untimed,
)
from pytest_bandwidth.devices.code.launch import with_launch
from pytest_bandwidth.devices.sampling import measure_timed
from pytest_bandwidth.domain.code.identity import CodeIdentity, MeasuredCode
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import DeviceLost, NotOnThisDevice, UsageError
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement
from pytest_bandwidth.domain.traffic import Traffic

Step = float | Sample | BaseException
# What the n-th sample (from 0, warm-up included) is: seconds, a whole sample, or an exception to raise.
Script = Callable[[int], Step]

SCRIPTED_IDENTITY = DeviceIdentity("cpu", "scripted device", 2**30, "script-0")


def repeat(*steps: Step) -> Script:
    """Give the steps in turn, over and over."""
    return lambda n: steps[n % len(steps)]


def then(*steps: Step) -> Script:
    """Give the steps in turn; the last one stays."""
    return lambda n: steps[min(n, len(steps) - 1)]


def except_at(positions: Sequence[int], fault: Step, otherwise: Script) -> Script:
    """Give a fault at the given samples, another script elsewhere."""
    return lambda n: fault if n in positions else otherwise(n)


def dropped(code: str, seconds: float = 1e-3, text: str = "as scripted") -> Sample:
    """Give a sample that does not count."""
    return Sample(seconds, seconds, Finding(code, text))


@dataclass(slots=True)
class ScriptedDevice(TimedDevice):
    """Replay a script.

    kernel_script, probe_script: what each sample is; a plain number of seconds is the host's time as well.
    probe_bytes: what a probe moves; as much as the workload where None.
    overhead_seconds: what each sample costs on the clock beyond its own time.
    states: answers of `conditions`, in turn; the last one stays.
    flops: FLOP/s by precision.
    how: the timing method; a callable may change its mind while measuring.
    clock: virtual seconds; timed: "kernel" or "probe" for each sample taken; released: calls of `release`.
    """

    kernel_script: Script = field(default_factory=lambda: repeat(1e-3))
    probe_script: Script = field(default_factory=lambda: repeat(1e-3))
    identity: DeviceIdentity = SCRIPTED_IDENTITY
    peak: Peak | None = None
    probe_bytes: int | None = None
    overhead_seconds: float = 0.0
    states: Sequence[Conditions] = (Conditions(),)
    flops: Mapping[str, float] = field(default_factory=dict)
    how: str | Callable[[], str] = "clock"
    clock: float = 0.0
    timed: list[str] = field(default_factory=list)
    released: int = 0
    _probe_call: Call | None = None
    _positions: dict[str, int] = field(default_factory=lambda: {"kernel": 0, "probe": 0})
    _states_read: int = 0
    _seed: int = 0
    _lost: str | None = None

    @property
    def xp(self) -> Any:
        """Return NumPy."""
        return np

    @property
    def method(self) -> str:
        return self.how if isinstance(self.how, str) else self.how()

    def random(self, shape: int | Sequence[int], dtype: Any) -> Any:
        """Make floats in [1, 2), integers in 0 to 99: the same in every run of a script, fresh at every call."""
        self._seed += 1
        generator = np.random.default_rng(self._seed)
        kind: np.dtype[Any] = np.dtype(dtype)
        if kind.kind in "iub":
            return generator.integers(0, 2 if kind.kind == "b" else 100, shape).astype(kind)
        return (1 + generator.random(shape)).astype(kind)

    def empty(self, shape: int | Sequence[int], dtype: Any) -> Any:
        return np.empty(shape, dtype)

    def nbytes(self, array: Any) -> int:
        if not isinstance(array, np.ndarray):
            raise UsageError(f"a {type(array).__name__} in reads= or writes= is not a NumPy array")
        return int(array.nbytes)

    def kernel(self, source: KernelSource) -> Any:
        raise NotOnThisDevice(f"the scripted device compiles no CUDA kernels, asked for {source.name}")

    def launcher(self, launch: Launch, stream: Any) -> Call:
        """Return a launch of any callable, which gets the launch's arguments."""
        del stream
        if not callable(launch.kernel):
            raise UsageError(f"a {type(launch.kernel).__name__} cannot be launched on the scripted device")
        return lambda: launch.kernel(*launch.args)

    def resources(self, launch: Launch) -> KernelResources | None:
        del launch
        return None

    def code(self, launch: Launch) -> MeasuredCode:
        """Identify a launch by what the callable says is its code; unknown where it says nothing."""
        said = getattr(launch.kernel, "code", None)
        return MeasuredCode() if said is None else with_launch(MeasuredCode(CodeIdentity(function=said)), launch)

    def peak_flops(self, precision: str) -> float | None:
        return self.flops.get(precision)

    def run(self, workload: Workload) -> object:
        self._refuse_if_lost()
        return run_untimed(workload)

    def measure(self, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
        return measure_timed(self, workload, budget, progress)

    def release(self) -> None:
        self.released += 1

    def now(self) -> float:
        return self.clock

    def time(self, call: Call, stream: Any) -> Sample:
        """Run the call, then take the script's next sample. Raises what the script raises; a DeviceLost stays."""
        del stream
        self._refuse_if_lost()
        mine = call is self._probe_call
        name, script = ("probe", self.probe_script) if mine else ("kernel", self.kernel_script)
        position = self._positions[name]
        self._positions[name] += 1
        self.timed.append(name)
        call()
        step = script(position)
        if isinstance(step, DeviceLost):
            self._lost = str(step)
        if isinstance(step, BaseException):
            raise step
        sample = step if isinstance(step, Sample) else Sample(step, step)
        self.clock += sample.seconds + self.overhead_seconds
        return sample

    def probe(self, traffic: Traffic, inputs: Sequence[Any] = ()) -> Probe:
        """Make a probe that does nothing, and moves `probe_bytes`."""
        del inputs

        def call() -> None:
            pass

        self._probe_call = call
        return Probe("scripted probe", call, traffic.bytes_moved if self.probe_bytes is None else self.probe_bytes)

    def conditions(self) -> Conditions:
        state = self.states[min(self._states_read, len(self.states) - 1)]
        self._states_read += 1
        return state

    def _refuse_if_lost(self) -> None:
        if self._lost is not None:
            raise DeviceLost(self._lost)
