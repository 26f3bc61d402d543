"""Measure for the process that started this one, in turn with its siblings; judge nothing."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.verdict import Decision, Numbers, Status
from pytest_bandwidth.evidence.judged_test import JudgedTest
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest, TurnsOf, no_turns
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.limits import MarkerOptions, tolerance_of
from pytest_bandwidth.measuring.measuring_run import (
    INVALID_RETRIES,
    HookedPeak,
    MeasuredTest,
    MeasuringRun,
    Mode,
    no_hook,
)
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
        mode = Mode(
            identifies_code=request.identifies_code and not settings.disable,
            tells_code=request.tells_code,
            untimed=request.untimed,
            # Where another process alternates with this one, that goes on to what comes next.
            retries=0 if request.alternates else INVALID_RETRIES,
            quiet_wait_seconds=request.quiet_wait_seconds,
            held_by_parent=bool(request.device),
        )
        super().__init__(settings, root, device, hooked_peak, mode)
        self._request, self._invocation = request, invocation
        self._turns_of: TurnsOf = no_turns

    def wait_for_turn(self) -> None:
        """Do what comes before a test is measured, then wait until the parent says Go."""
        self._turns_of = self._request.begin(self.device)

    def measure(
        self, workload: Workload, marker: MarkerOptions, progress: Progress, *, untimed: bool = False
    ) -> Measurement:
        """Measure in the request's way."""
        measure = super().measure
        if untimed:
            return measure(workload, marker, progress, untimed=True)
        return self._request.measure(self.device, workload, lambda one: measure(one, marker, progress))

    def judge(
        self, measurements: Mapping[str, Measurement], test: MeasuredTest, progress: Progress
    ) -> dict[str, Judged]:
        """Report figures without a verdict, and what one is to go by."""
        del progress
        return {key: Judged(m, None, _no_decision(m, test.marker, self.settings)) for key, m in measurements.items()}

    def judged_test(self, test: MeasuredTest, progress: Progress) -> JudgedTest | None:
        """Return what more evidence can be gathered with; None where that was not asked for."""
        if self._invocation is None or not self._request.adds_evidence:
            return None
        return JudgedTest(test, self, self._invocation, progress, is_judged=False)

    def _run_once(self, workload: Workload) -> object:
        return self._request.run(self.device, workload)

    def _users_peak(self) -> Peak | None:
        # The parent's may stand in its baseline, which this process does not read.
        return super()._users_peak() if self._request.peak is None else self._request.peak

    def _budget(self, marker: MarkerOptions, label: str | None) -> Budget:
        budget = self._budget_of(marker, self._request.rounds_share, exact=True)
        return replace(budget, turns=self._turns_of(label))


def _no_decision(measurement: Measurement, marker: MarkerOptions, settings: Settings) -> Decision:
    """Return that there is none: where there is no baseline's, the figure and the tolerance are the test's own."""
    option = 0.0 if measurement.device.counts_only else settings.tolerance
    tolerance = tolerance_of(marker.tolerance, None, None, option)
    rule, text = "new-process", "measured for the run that started this process"
    if measurement.invalid is not None:
        rule, text = measurement.invalid.code, measurement.invalid.text
    return Decision(Status.UNDECIDED, rule, Numbers(figure=marker.judged_on, tolerance=tolerance), {"text": text})
