"""Measure for the process that started this one, in turn with its siblings; judge nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path

from pytest_bandwidth.devices.base import Budget, OldCodeDevice, ProfiledDevice, ReadyDevice, SharingDevice, Workload
from pytest_bandwidth.devices.shared_arrays import SharedArrays
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.errors import CountersFailed
from pytest_bandwidth.domain.measured.measurement import NOTE, Finding, Measurement
from pytest_bandwidth.domain.verdict import Decision, Numbers, Status
from pytest_bandwidth.evidence.commit_pairs.alternate import Beside
from pytest_bandwidth.evidence.old_kernel.in_child import load_old, measure_beside, old_kernel_of
from pytest_bandwidth.evidence.processes.child import (
    ChildRequest,
    Invocation,
    ParentLine,
    report_to_parent,
    tell_counted,
    tell_reached,
)
from pytest_bandwidth.features.counters.counted import Counters, counting_request, is_counted
from pytest_bandwidth.features.counters.dram_traffic import UNCOUNTED
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.measuring_run import HookedPeak, MeasuredTest, MeasuringRun, no_hook
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.options.settings import Settings


class ChildRun(MeasuringRun):
    """Measure in a fresh process: its parent holds the device's lock, has the baseline, and judges.

    Where the parent does not know the device yet, this process holds its lock. invocation: how this pytest was started;
    None where it is none, and nothing can be counted.
    """

    def __init__(
        self,
        settings: Settings,
        root: Path,
        request: ChildRequest,
        hooked_peak: HookedPeak = no_hook,
        invocation: Invocation | None = None,
    ) -> None:
        device = request.device or settings.device
        super().__init__(settings, root, device, hooked_peak, request.quiet_wait_seconds)
        self.held_by_parent = bool(request.device)
        self._request, self._invocation = request, invocation
        self._beside: Beside | None = None
        self._old = {(old := old_kernel_of(plain)).label: old for plain in request.old_kernels}

    @property
    def identifies_code(self) -> bool:
        return super().identifies_code and self._request.identifies_code

    @property
    def tells_code(self) -> bool:
        return self._request.tells_code

    @property
    def counts(self) -> bool:
        return self._request.counts

    @property
    def strict(self) -> bool:
        """Return False: nothing of a fresh process fails for want of a verdict."""
        return False

    def wait_for_turn(self) -> None:
        """Do what comes before a test is measured, then wait until the parent says Go."""
        # In turn both load at the same time, now or later, and only what the test needs.
        if isinstance(self.device, ReadyDevice) and not self._request.takes_turns:
            self.device.make_ready()
        line = ParentLine(self._request.line)
        go = line.wait_for_turn()
        if self._request.takes_turns:
            self._beside = Beside(line, go, self._shared_arrays(go.seed))
        else:
            line.close()

    def _shared_arrays(self, seed: int | None) -> SharedArrays | None:
        """Have the device make arrays that can lie where those of the process beside lie, if that was asked for."""
        descriptor, device = self._request.shared_memory, self.device
        if not isinstance(device, SharingDevice):
            return None
        arrays = None if descriptor is None else SharedArrays(descriptor, seed or 0)
        device.share((lambda _: None) if arrays is None else arrays.allocate, seed)
        return arrays

    def measure(
        self, workload: Workload, marker: MarkerOptions, progress: Progress, *, untimed: bool = False
    ) -> Measurement:
        """Measure; where that was asked for, while the old code of the workload's kernel takes turns with it."""
        old, device = self._old.get(workload.label), self.device
        if old is None or untimed or self.counts or not isinstance(device, OldCodeDevice):
            return super().measure(workload, marker, progress, untimed=untimed)
        alone = super().measure
        return measure_beside(
            device, old, workload, lambda both: alone(both, marker, progress), partial(report_to_parent, self._request)
        )

    def judge(
        self, measurements: Mapping[str, Measurement], test: MeasuredTest, progress: Progress
    ) -> dict[str, Judged]:
        """Report figures without a verdict, and what one is to go by."""
        if self._counters is not None:
            self.device.release()
            counters = self._counters
            measurements = {key: self._counted(one, counters, test, progress) for key, one in measurements.items()}
        return {key: Judged(m, None, _no_decision(m, test.marker, self.settings)) for key, m in measurements.items()}

    @cached_property
    def _counters(self) -> Counters | None:
        """Return what counts each measurement once it is taken; None where that was not asked for."""
        asked, identity = self.settings.counters, self.device.identity
        if self._invocation is None or not self._request.counted_after or not is_counted(asked, identity):
            return None
        return Counters(asked, identity, self._invocation)

    def _counted(
        self, measurement: Measurement, counters: Counters, test: MeasuredTest, progress: Progress
    ) -> Measurement:
        """Return the measurement with what DRAM moves for it, where a profiler can count that."""
        request, held = counting_request(self.device_name, self.peak, test), partial(self.locked, progress)
        try:
            found = counters.count(request, measurement.label, held, test.fresh_seconds)
        except CountersFailed as error:
            return measurement.with_finding(Finding(UNCOUNTED, f"DRAM was not counted: {error}", NOTE))
        return replace(measurement, dram=found)

    def _run_once(self, workload: Workload) -> object:
        device, request = self.device, self._request
        if request.counts and workload.label == request.counted_label and isinstance(device, ProfiledDevice):
            old = self._old.get(workload.label)
            if old is not None and isinstance(device, OldCodeDevice):
                before, _ = load_old(device, old, workload)
                workload = replace(workload, call=before.calls[0])
            tell_reached(request)
            value = device.run_counted(workload)
            tell_counted(request)
            return value
        return super()._run_once(workload)

    def _users_peak(self) -> Peak | None:
        # The parent's may stand in its baseline, which this process does not read.
        return super()._users_peak() if self._request.peak is None else Peak(*self._request.peak)

    def _budget(self, marker: MarkerOptions, label: str | None) -> Budget:
        budget = self._budget_of(marker, self._request.rounds_share, exact=True)
        turns = None if self._beside is None else self._beside.of(label)
        return replace(budget, turns=turns)

    @property
    def retries(self) -> int:
        """Return 0 where another process takes turns: it goes on to what comes next."""
        return super().retries if self._beside is None else 0


def _no_decision(measurement: Measurement, marker: MarkerOptions, settings: Settings) -> Decision:
    """Return that there is none: where there is no baseline's, the figure and the tolerance are the test's own."""
    asked = 0.0 if measurement.device.counts_only else settings.tolerance
    tolerance = asked if marker.tolerance is None else marker.tolerance
    rule, text = "new-process", "measured for the run that started this process"
    if measurement.invalid is not None:
        rule, text = measurement.invalid.code, measurement.invalid.text
    return Decision(Status.UNDECIDED, rule, Numbers(figure=marker.judged_on, tolerance=tolerance), {"text": text})
