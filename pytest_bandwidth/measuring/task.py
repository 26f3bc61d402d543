"""Specify how a process measures. Light: every run with options loads it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import ClassVar

from pytest_bandwidth.devices.base import Device, Turns, Workload
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.domain.measured.measurement import Measurement

# An invalid measurement is repeated so many times before it is UNDECIDED.
INVALID_RETRIES = 2
# Returns the turns of the measurement with a label.
TurnsOf = Callable[[str | None], Turns]


@dataclass(frozen=True, slots=True)
class Task:
    """Specify how a process measures: one that the user started, or a child (`evidence.processes.requests`).

    rounds_share: the share of a measurement's time budget that is for rounds (see `Budget`).
    peak: the device's; None where it is unknown.
    identifies_code: whether rows identify the code that ran; for that a GPU's kernels are compiled once more.
    quiet_wait_seconds: how long all its measurements together may wait for others to end.
    """

    device: str
    _: KW_ONLY
    rounds_share: float = 1.0
    peak: Peak | None = None
    identifies_code: bool = True
    quiet_wait_seconds: float = 0.0

    # Whether a parent judges. The parent holds the device's lock, if it gave the device.
    for_parent: ClassVar[bool] = False
    # Whether workloads only report their code, and hand over a kernel's PTX: nothing is timed or counted.
    reports_code: ClassVar[bool] = False
    # Whether nothing is timed: each workload runs once, for an observer such as a profiler.
    untimed: ClassVar[bool] = False
    retries: ClassVar[int] = INVALID_RETRIES

    def measure(self, device: Device, workload: Workload, measure: Callable[[Workload], Measurement]) -> Measurement:
        """Measure a workload. measure: measures it as in any other process."""
        del device
        return measure(workload)

    def run(self, device: Device, workload: Workload) -> object:
        """Run a workload once, untimed; return its callable's value."""
        return device.run(workload)
