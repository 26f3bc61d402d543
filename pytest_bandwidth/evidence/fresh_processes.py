"""Measure a judged test again in new processes: a slow test, and for an update all tests of a run."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics, metrics_of_row
from pytest_bandwidth.domain.measured.validity import why_no_evidence
from pytest_bandwidth.domain.verdict import Decision, Numbers, Status
from pytest_bandwidth.evidence.processes.child import Child, FreshProcessFailed, Invocation, StartedAhead, room_on
from pytest_bandwidth.evidence.processes.requests import ChildRequest, OldKernel, WholeRun
from pytest_bandwidth.judging.evidence import Ask, Evidence
from pytest_bandwidth.judging.judge import ROUNDS_SHARE, Decider, FreshRow, Judged
from pytest_bandwidth.judging.limits import MarkerOptions, tolerance_of
from pytest_bandwidth.measuring.measurer import QUIET_WAIT_SECONDS, DeviceLock, Measurer
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Plain

# The time-out of a fresh process: this factor times the time of its parent's test, and at least this many seconds.
FRESH_SECONDS_LEAST = 180.0
FRESH_SECONDS_FACTOR = 20.0

Request = TypeVar("Request", bound=ChildRequest)


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """Hold a test whose body has passed, and the means to measure it in another process.

    nodeid, target: its node id, and the test as a command-line argument. measured_seconds: how long the measurements
    took. invocation: how this pytest was started. is_judged: False in a further run of an update, which measures and
    judges nothing. old_kernel: returns the kernel of a baseline's entry if it differs from the measured one. It raises
    BandwidthError if that kernel is not available or not safe to run.
    """

    nodeid: str
    target: str
    marker: MarkerOptions
    measured_seconds: float
    measurer: Measurer
    invocation: Invocation
    progress: Progress
    is_judged: bool = True
    old_kernel: Callable[[Measurement, Entry], OldKernel | None] = lambda *_: None

    @property
    def file(self) -> Path:
        return Path(self.target.partition("::")[0])

    @property
    def fresh_seconds(self) -> float:
        """Return how long a fresh process of the test may take."""
        return max(FRESH_SECONDS_LEAST, FRESH_SECONDS_FACTOR * self.measured_seconds)

    @property
    def identity(self) -> DeviceIdentity:
        return self.measurer.device.identity

    @property
    def room(self) -> int:
        """Return how many processes may have the device open at the same time."""
        return room_on(self.identity)

    def alone(self) -> AbstractContextManager[None]:
        """Release this process's free device memory, and lock the device against other measuring processes."""
        self.measurer.device.release()
        return self.measurer.locked(self.progress)

    def request(self, kind: type[Request], **fields: Any) -> Request:
        """Make a request for a child process that runs this test alone."""
        return kind(
            device=self.identity.option,
            target=self.target,
            nodeids=(self.nodeid,),
            peak=self.measurer.peak,
            identifies_code=False,
            **fields,
        )


def left_to_parent(measurement: Measurement, marker: MarkerOptions, tolerance: float) -> Judged:
    """Report a figure without a verdict. marker: the test's. tolerance: the run's, because a child has no baseline."""
    tolerance = tolerance_of(marker.tolerance, None, None, tolerance, exact=measurement.device.counts_only)
    numbers = Numbers(figure=marker.judged_on, tolerance=tolerance)
    rule, text = "new-process", "measured for the run that started this process"
    if measurement.invalid is not None:
        rule, text = measurement.invalid.code, measurement.invalid.text
    return Judged(measurement, None, Decision(Status.UNDECIDED, rule, numbers, {"text": text}))


# How many processes to start beyond a majority, whose agreement is enough. An unneeded process costs less than one that
# starts late, when the memory that the others used has gone back to a hypervisor.
BEYOND_MAJORITY = 1
# The time-out of a fresh whole run, so that a hung one does not block an update forever.
WHOLE_RUN_SECONDS = 4 * 3600.0
# The share of a measurement's time budget for rounds in an update's further runs. The runs differ by their processes,
# not by their length: with 1, 0.75 and 0.5 of the time, nine runs' shares of the probe had the same spread (0.6 to 5 %
# for memory-bound work).
UPDATE_SHARE = 0.5


class FreshProcesses(StartedAhead):
    """Start the new processes of one test.

    They start together and measure one by one. The device's lock is held while processes start or one measures. It is
    free in between, and while unneeded processes end. confirm: how many processes have to agree, at most.
    """

    def __init__(self, test: JudgedTest, confirm: int) -> None:
        super().__init__(test.room, test.fresh_seconds)
        self._test, self._confirm = test, confirm
        self.rows: list[Mapping[str | None, FreshRow]] = []

    def gather(self, asking: Mapping[str, Evidence], rule: Decider) -> Mapping[str, Evidence]:
        """Measure all again in new processes, until no measurement needs another one or no process can run."""
        known = dict(asking)
        while any(rule(one) is Ask.PROCESSES for one in known.values()):
            try:
                seen = self.run()
            except BandwidthError as error:
                return {key: one.without(Ask.PROCESSES, str(error)) for key, one in known.items()}
            for key, one in known.items():
                figures = seen.get(one.measurement.label)
                if figures is not None:
                    if (here := one.figures) is not None and here.sol is not None:
                        # Only this process has counted the bytes that the kernel touches.
                        figures = replace(figures, sol=here.sol * figures.gbps / here.gbps)
                    known[key] = replace(one, fresh=(*one.fresh, figures))
                elif len(self.rows) >= self._confirm:
                    why = f"{len(one.fresh)} new processes measured it validly, expected {self._confirm}"
                    known[key] = one.without(Ask.PROCESSES, why)
        return known

    def run(self) -> Mapping[str | None, Metrics]:
        """Run one more process and return its figures by label.

        Raises FreshProcessFailed where it measured nothing valid, DeviceUnavailable where the device stays taken.
        """
        test, confirm, peak = self._test, self._confirm, self._test.measurer.peak
        test.progress.show(f"slow: new process {len(self.rows) + 1} of at most {confirm}")
        needed = 1 if self.rows else min(confirm, confirm // 2 + 1 + BEYOND_MAJORITY)
        request = test.request(ChildRequest, rounds_share=ROUNDS_SHARE)

        def measure(child: Child) -> Mapping[str | None, FreshRow]:
            begun = time.monotonic()
            rows = child.rows(test.fresh_seconds)
            seconds = time.monotonic() - begun
            trouble = {row["label"]: why_no_evidence(row, peak) for row in rows}
            valid = [row for row in rows if trouble[row["label"]] is None]
            if not valid:
                why = next(iter(trouble.values()), "no result")
                raise FreshProcessFailed(f"a new process measured nothing valid: {why}")
            return {row["label"]: FreshRow(metrics_of_row(row, peak), seconds) for row in valid}

        with test.alone():
            self.rows.append(self.measured(lambda: test.invocation.start(request), needed, measure))
        return {label: row.figures for label, row in self.rows[-1].items()}

    def of(self, label: str | None) -> tuple[FreshRow, ...]:
        """Return each process's figures for the measurement of that label."""
        return tuple(row[label] for row in self.rows if label in row)


def further_runs(
    settings: Settings,
    invocation: Invocation,
    identity: DeviceIdentity,
    peak: Peak | None,
    notify: Callable[[str], None],
) -> list[list[Plain]]:
    """Take `settings.runs` − 1 fresh whole runs on the device; return the outcomes of each. Raises BandwidthError."""
    # Counts are the same in every process.
    wanted = 1 if identity.counts_only else settings.runs
    further = []
    for i in range(1, wanted):
        notify(f"bandwidth: baseline run {i + 1} of {wanted} in a new process …")
        with DeviceLock(identity, settings.lock_timeout).held(on_long_wait=notify):
            quiet_wait_seconds = QUIET_WAIT_SECONDS / (wanted - 1)
            request = WholeRun(
                identity.option, peak=peak, rounds_share=UPDATE_SHARE, quiet_wait_seconds=quiet_wait_seconds
            )
            with invocation.start(request) as child:
                further.append(child.rows(WHOLE_RUN_SECONDS))
    return further
