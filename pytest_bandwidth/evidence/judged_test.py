"""Hold what more evidence about a judged test can be gathered with, such as by a hook."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import DeviceIdentity, Peak
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.evidence.old_kernel.in_child import OldKernel
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.measuring.measuring_run import MeasuredTest, MeasuringRun
from pytest_bandwidth.measuring.progress import Progress

Request = TypeVar("Request", bound=ChildRequest)


@dataclass(frozen=True, slots=True)
class JudgedTest:
    """Hold a judged test, its device, and the means to measure it in another process.

    test: its node id, marker and duration. identity, peak: the device's. invocation: how this pytest was started.
    is_judged: False in a further run of an update, which measures and judges nothing.
    """

    test: MeasuredTest
    run: MeasuringRun
    invocation: Invocation
    progress: Progress
    is_judged: bool = True
    find_old_kernel: Callable[[Measurement, Entry], OldKernel | None] | None = None

    @property
    def identity(self) -> DeviceIdentity:
        return self.run.device.identity

    @property
    def peak(self) -> Peak | None:
        return self.run.peak

    def tell(self, text: str) -> None:
        """Show what is being done."""
        self.progress.show(text)

    def alone(self) -> AbstractContextManager[None]:
        """Keep other processes from measuring on the device meanwhile; this one's free memory is given back."""
        self.run.device.release()
        return self.run.locked(self.progress)

    def request(self, kind: type[Request], **fields: Any) -> Request:
        """Make a request for a child process that runs this test alone."""
        return kind(
            device=self.run.device_name,
            target=self.test.target,
            nodeids=(self.test.nodeid,),
            peak=self.peak,
            identifies_code=False,
            **fields,
        )

    def old_kernel(self, measurement: Measurement, entry: Entry) -> OldKernel | None:
        """Return a baseline entry's kernel where it is another one than the measured; None where there is none.

        Raises BandwidthError where there was one, and it is not to be had or not safe to run.
        """
        return None if self.find_old_kernel is None else self.find_old_kernel(measurement, entry)
