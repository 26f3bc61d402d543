"""Hold what more evidence about a judged test can be gathered with, such as by a hook."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.verdict import Decision, Numbers, Status
from pytest_bandwidth.evidence.processes.child import Child, Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest, OldKernel
from pytest_bandwidth.evidence.processes.waiting import Room, room_on
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.limits import MarkerOptions, tolerance_of
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.progress import Progress

# A fresh process may take so many times as long as its parent's test, and never less than this.
FRESH_SECONDS_LEAST = 180.0
FRESH_SECONDS_FACTOR = 20.0

Request = TypeVar("Request", bound=ChildRequest)


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
    def file(self) -> Path:
        return Path(self.target.partition("::")[0])

    @property
    def fresh_seconds(self) -> float:
        """Return how long a fresh process of the test may take."""
        return max(FRESH_SECONDS_LEAST, FRESH_SECONDS_FACTOR * self.measured_seconds)


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """Hold a judged test, its device, and the means to measure it in another process.

    test: its node id, marker and duration. identity, peak: the device's. invocation: how this pytest was started.
    is_judged: False in a further run of an update, which measures and judges nothing.
    """

    test: MeasuredTest
    measurer: Measurer
    invocation: Invocation
    progress: Progress
    is_judged: bool = True
    find_old_kernel: Callable[[Measurement, Entry], OldKernel | None] | None = None

    @property
    def identity(self) -> DeviceIdentity:
        return self.measurer.device.identity

    @property
    def peak(self) -> Peak | None:
        return self.measurer.peak

    @property
    def room(self) -> Room:
        """Return for how many processes to have the device open, before any measures."""
        return room_on(self.identity)

    def tell(self, text: str) -> None:
        """Show what is being done."""
        self.progress.show(text)

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes from measuring on the device meanwhile; this one's free memory is given back."""
        self.measurer.device.release()
        return self.measurer.locked(self.progress)

    def request(self, kind: type[Request], **fields: Any) -> Request:
        """Make a request for a child process that runs this test alone."""
        return kind(
            device=self.identity.option,
            target=self.test.target,
            nodeids=(self.test.nodeid,),
            peak=self.peak,
            identifies_code=False,
            **fields,
        )

    def start(self, request: ChildRequest) -> Child:
        """Start a child process, which waits for its turn before it measures."""
        return self.invocation.start(request)

    def old_kernel(self, measurement: Measurement, entry: Entry) -> OldKernel | None:
        """Return a baseline entry's kernel where it is another one than the measured; None where there is none.

        Raises BandwidthError where there was one, and it is not to be had or not safe to run.
        """
        return None if self.find_old_kernel is None else self.find_old_kernel(measurement, entry)


def left_to_parent(measurement: Measurement, marker: MarkerOptions, tolerance: float) -> Judged:
    """Report a figure without a verdict. marker, tolerance: the test's and the run's own, for want of a baseline."""
    option = 0.0 if measurement.device.counts_only else tolerance
    numbers = Numbers(figure=marker.judged_on, tolerance=tolerance_of(marker.tolerance, None, None, option))
    rule, text = "new-process", "measured for the run that started this process"
    if measurement.invalid is not None:
        rule, text = measurement.invalid.code, measurement.invalid.text
    return Judged(measurement, None, Decision(Status.UNDECIDED, rule, numbers, {"text": text}))
