"""What devices' `measure` and `run` share: sampled rounds as a measurement; one untimed run."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pytest_bandwidth.devices.base import Budget, Call, Device, Progress, TimedDevice, Workload
from pytest_bandwidth.devices.sampling import take_rounds
from pytest_bandwidth.domain.measurement import Measurement
from pytest_bandwidth.domain.validity import why_invalid


class MeasuringDevice(Device, TimedDevice, Protocol):
    """A device that measures time, as `measure_timed` needs it."""

    @property
    def method(self) -> str:
        """How time is taken, as it stands in baselines; may change while measuring (a fallback), so read it last."""


def measure_timed(device: MeasuringDevice, workload: Workload, budget: Budget, progress: Progress) -> Measurement:
    """Measures a workload by time: what every device with a clock does in its `measure`."""
    resources = device.resources(workload.launch) if workload.launch is not None else None
    sampled = take_rounds(device, workload, budget, progress)
    measurement = Measurement(
        label=workload.label,
        traffic=workload.traffic,
        device=device.identity,
        method=device.method,
        rounds=sampled.rounds,
        peak=device.peak,
        precision=workload.precision,
        peak_flops=device.peak_flops(workload.precision) if workload.precision else None,
        resources=resources,
        conditions_before=sampled.before,
        conditions_after=sampled.after,
        flop_declared=workload.flop_declared,
        value=sampled.value,
    )
    return replace(measurement, invalid=why_invalid(measurement))


def untimed(workload: Workload, synchronize: Call) -> object:
    """Runs setup and the workload once and waits: what every device's `run` does."""
    if workload.setup is not None:
        workload.setup()
    value = workload.call()
    synchronize()
    return value
