"""Measure on the run's device, under its lock, again where a result is invalid: what a run and its children share."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pytest_bandwidth.devices.base import Budget, Device, Workload
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.baseline import Baseline
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import DeviceLost, UsageError
from pytest_bandwidth.domain.gc_disabled import gc_disabled
from pytest_bandwidth.domain.measured.measurement import INPUTS, UNMEASURED, Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.measured.validity import OF_OTHERS, validated, with_earlier_tries
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.inputs import NO_INPUTS, Inputs, inputs_of, whole_arrays
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.measuring.software import loaded_versions
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Outcome

# An invalid measurement is taken again so often before it is UNDECIDED.
INVALID_RETRIES = 2
# What a baseline is made of waits longer for a machine that others disturb: all measurements of a process together, and
# what is measured in vain meanwhile is part of it.
QUIET_WAIT_SECONDS = 20.0
NAP_SECONDS = 1.0
# A fresh process may take so many times as long as its parent's test, and never less than this.
FRESH_SECONDS_LEAST = 180.0
FRESH_SECONDS_FACTOR = 20.0


# What a conftest.py says of the device's peak; None where it says nothing.
HookedPeak = Callable[[DeviceIdentity], Peak | None]


def no_hook(_: DeviceIdentity) -> None:
    """Stand in for a hook where pytest does not run."""


@dataclass(frozen=True, slots=True)
class MeasuredTest:
    """Hold a test whose body has passed.

    nodeid, target: the test, as pytest names it and as a command-line argument. measured_seconds: how long it was
    measured.
    """

    nodeid: str
    target: str
    marker: MarkerOptions
    measured_seconds: float

    @property
    def fresh_seconds(self) -> float:
        """Return how long a fresh process of the test may take."""
        return max(FRESH_SECONDS_LEAST, FRESH_SECONDS_FACTOR * self.measured_seconds)


@dataclass(frozen=True, slots=True)
class AskedTest:
    """Hold a test that is about to run. beside: node ids of all tests of its file that this run measures."""

    nodeid: str
    file: Path
    beside: Sequence[str]


@dataclass(frozen=True, slots=True)
class Mode:
    """Say how a process measures.

    identifies_code: whether measurements say which code ran. tells_code: whether workloads only tell their code: what
    is timed runs once, what is counted not at all. untimed: whether each workload runs once, for something that looks
    on, such as a profiler. notes_inputs: whether what is counted notes what decides its counts beside its code.
    retries: how often an invalid measurement is taken again before it is UNDECIDED. quiet_wait_seconds: how long all
    measurements together may wait for others to end.
    strict: whether what could not be judged fails. held_by_parent: whether the parent holds the device's lock.
    """

    identifies_code: bool = True
    tells_code: bool = False
    untimed: bool = False
    notes_inputs: bool = False
    retries: int = INVALID_RETRIES
    quiet_wait_seconds: float = 0.0
    strict: bool = False
    held_by_parent: bool = False


class MeasuringRun(ABC):
    """Hold everything of a run that outlives one test; open the device when first asked."""

    def __init__(self, settings: Settings, root: Path, device: str, hooked_peak: HookedPeak, mode: Mode) -> None:
        self.settings = settings
        self.root = root
        self.mode = mode
        self._asked_device = device
        self._hooked_peak = hooked_peak
        self._quiet_wait_seconds = mode.quiet_wait_seconds
        self._lost: str | None = None
        self._measuring = False

    @cached_property
    def device(self) -> Device:
        """Return the device. Raises DeviceUnavailable, at every use, where the asked-for device cannot be had."""
        device = open_device(self._asked_device)
        device.bound(self.settings.traffic_timeout)
        return device

    @property
    def device_name(self) -> str:
        """Return the name that a fresh process opens the same device by."""
        return self.device.identity.option

    @property
    def runs_once(self) -> bool:
        """Return whether workloads run just once, untimed."""
        return self.settings.disable or self.mode.tells_code

    @property
    def judged_by(self) -> str | None:
        """Return what the run holds its measurements to, for its header."""
        return None

    @property
    def why_old_kernels_cannot_run(self) -> str | None:
        """Say which kernels of the baseline this machine cannot load; None where it can, or needs none."""
        return None

    @property
    def old_ptx(self) -> PtxSource | None:
        """Return what gives the PTX of the code that the run judges by; None where it judges by none."""
        return None

    @property
    def old_files(self) -> Callable[[str], str] | None:
        """Return what gives the list of files of the code that the run judges by; None where it judges by none."""
        return None

    @cached_property
    def baseline(self) -> Baseline | None:
        """Return what the run's measurements are compared with."""
        return None

    @cached_property
    def peak(self) -> Peak | None:
        """Return the user's peak before the device's own."""
        return self._users_peak() or self.device.peak

    @cached_property
    def _lock(self) -> DeviceLock:
        return DeviceLock(self.device.identity, self.settings.lock_timeout, held_by_parent=self.mode.held_by_parent)

    def prepare(self) -> None:
        """Open the device and ask for its peak now, so that what is wrong is said before any test runs."""
        with gc_disabled():  # the device's libraries are large, and stay
            _ = self.device.identity
        _ = self.peak

    def wait_for_turn(self) -> None:
        """Wait until this process may measure; one that a person started need not."""
        return

    def begin_test(self) -> None:
        """Forget the tests before: nothing of them shows in what this one counts."""
        self.device.begin_test()

    @contextmanager
    def locked(self, progress: Progress) -> Iterator[None]:
        """Keep others from measuring on the device meanwhile; counting needs no such turn, for it times nothing."""
        if self.device.identity.counts_only:
            yield
            return
        with self._lock.held(progress.show, progress.note):
            yield

    def measure(
        self, workload: Workload, marker: MarkerOptions, progress: Progress, *, untimed: bool = False
    ) -> Measurement:
        """Measure under the device's lock; again where the result is invalid. With `disable`, run once, untimed.

        untimed: run once under the lock, for what it computes and the code that it runs.
        Raises UsageError inside another measurement, whose times it would be part of.
        """
        with self._alone():
            if self.settings.disable:
                return self._run_untimed(workload)
            with self.locked(progress):
                if untimed or self.mode.tells_code or self.mode.untimed:
                    return self._run_untimed(workload)
                return self._measure_valid(workload, marker, progress)

    def inputs_of(self, given: Iterable[object], workload: Workload, progress: Progress) -> Inputs:
        """Tell what the arrays of whole numbers hold that a workload reads, before it runs, after its set-up."""
        if not self.mode.identifies_code:
            return NO_INPUTS
        arrays = whole_arrays(given, workload)
        if not arrays:
            return NO_INPUTS
        device = self.device
        with self._alone(), self.locked(progress):
            if workload.setup is not None:
                workload.setup()
            return inputs_of(arrays, device.contents)

    def value_of(self, workload: Workload, progress: Progress) -> object:
        """Run a workload once, untimed, as `measure` would, and return its value."""
        with self._alone():
            if self.settings.disable:
                return self.device.run(workload)
            with self.locked(progress):
                return self.device.run(workload)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Refuse to measure inside another measurement, or on a lost device; notice where the device gets lost."""
        if self._lost is not None:
            raise DeviceLost(f"not measured: {self._lost}")
        if self._measuring:
            raise UsageError(
                "bandwidth was called by what is measured, or another thread meanwhile: measure one at a time"
            )
        self._measuring = True
        try:
            yield
        except DeviceLost as error:
            self._lost = f"an earlier test in this process broke the device's context ({error})"
            raise
        finally:
            self._measuring = False

    def rows_elsewhere(self, test: AskedTest, progress: Progress) -> Mapping[str | None, Outcome]:
        """Return what another revision said of a test's code, by label; nothing where none is asked."""
        del test, progress
        return {}

    @abstractmethod
    def judge(
        self, measurements: Mapping[str, Measurement], test: MeasuredTest, progress: Progress
    ) -> dict[str, Judged]:
        """Judge one test's measurements; verdicts by key."""

    @abstractmethod
    def _budget(self, marker: MarkerOptions, label: str | None) -> Budget:
        """Give the sampling budget of the test's measurement of that label."""

    def _budget_of(self, marker: MarkerOptions, rounds_share: float, *, exact: bool) -> Budget:
        """Return the budget. exact: whether it is what others are compared with: then no kernel may have waited."""
        settings = self.settings
        return Budget(
            marker.min_samples or settings.min_samples,
            marker.max_time or settings.max_time,
            settings.precision,
            rounds_share=rounds_share,
            tolerates_run_delay="none" if settings.busy_processors is None else "probe" if exact else "all",
        )

    def _users_peak(self) -> Peak | None:
        if self.settings.peak is not None:
            return Peak(self.settings.peak * 1e9, "bandwidth_peak in the ini file")
        return self._hooked_peak(self.device.identity)

    def _run_untimed(self, workload: Workload) -> Measurement:
        """Run the workload once, for what it computes; what is counted not at all where only its code is asked for."""
        device, detail, value, resources = self.device, {}, None, None
        if self.mode.tells_code and device.identity.counts_only:
            detail = {INPUTS: device.inputs_of(workload)}
        else:
            value = self._run_once(workload)
            if self.mode.tells_code and workload.launch is not None:
                resources = device.resources(workload.launch)  # old code is launched as its entry says
        method = "disabled" if self.settings.disable else UNMEASURED
        what = (workload.label, workload.traffic, device.identity, method, Rounds(), self.peak)
        return Measurement(*what, resources=resources, detail=detail, value=value)

    def _run_once(self, workload: Workload) -> object:
        """Run the workload to completion, untimed; return the callable's value."""
        return self.device.run(workload)

    def _measure_valid(self, workload: Workload, marker: MarkerOptions, progress: Progress) -> Measurement:
        earlier: list[str] = []
        device, inputs = self.device, {}
        if self.mode.notes_inputs and device.identity.counts_only:
            inputs = {INPUTS: device.inputs_of(workload)}
        waits_since = None
        while True:
            measured = self.device.measure(workload, self._budget(marker, workload.label), progress.show)
            measured = replace(measured, detail={**measured.detail, **inputs}) if inputs else measured
            told = replace(measured, software=loaded_versions())
            measurement = validated(told, self.peak, self.settings.busy_processors)
            why = measurement.invalid
            if waits_since is not None:
                waited_seconds = time.monotonic() - waits_since
                self._quiet_wait_seconds = max(0.0, self._quiet_wait_seconds - waited_seconds)
            waits = why is not None and why.code in OF_OTHERS and self._quiet_wait_seconds > 0
            if why is None or (len(earlier) >= self.mode.retries and not waits):
                return with_earlier_tries(measurement, earlier)
            earlier.append(why.text)
            progress.show(f"invalid, taken again: {why.text}")
            waits_since = self._waited_for_quiet(why.text, progress) if waits else None

    def _waited_for_quiet(self, why: str, progress: Progress) -> float:
        """Give others time to end, and say so once a process; return when that began."""
        if self._quiet_wait_seconds == QUIET_WAIT_SECONDS:
            progress.note(f"waits up to {QUIET_WAIT_SECONDS:.0f} s for a quiet moment: {why}")
        progress.show(f"waits for a quiet moment, {self._quiet_wait_seconds:.0f} s left: {why}")
        began = time.monotonic()
        time.sleep(NAP_SECONDS)  # other processes do not tell when they end
        return began
