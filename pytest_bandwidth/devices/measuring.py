"""What devices' `measure` and `run` share: sampled rounds as a measurement, with why it is invalid; one untimed run."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from pytest_bandwidth.devices.base import Budget, Call, Device, Progress, TimedDevice, Workload
from pytest_bandwidth.devices.sampling import take_rounds
from pytest_bandwidth.domain.measurement import Finding, Measurement, Peak
from pytest_bandwidth.domain.units import MAX_GBPS, format_bytes, format_gbps

CLOCK, ABOVE_PEAK = "clock", "above-peak"
# What makes a measurement invalid by its own samples, and says nothing of those that were sampled beside it.
OF_OWN_SAMPLES = (CLOCK, ABOVE_PEAK)


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


def why_invalid(measurement: Measurement) -> Finding | None:
    """Why a timed measurement cannot be judged, by its samples, its peak and who else was active; None where it can."""
    rounds = measurement.rounds
    if not rounds.kernel_seconds:
        reasons = sorted({d.reason for d in rounds.dropped})
        return Finding("no-samples", f"no sample was left: {len(rounds.dropped)} dropped ({'; '.join(reasons)})")
    if any(seconds <= 0 for seconds in (*rounds.kernel_seconds, *rounds.probe_seconds)):
        return Finding(CLOCK, "a sample took no time: the work ran elsewhere, or is shorter than the clock can see")
    if (above := above_peak(measurement)) is not None:
        return above
    others = measurement.conditions_before.others + measurement.conditions_after.others
    if measurement.device.kind == "cuda" and others:
        return Finding("others", f"other processes were active on the GPU: {', '.join(sorted(set(others)))}")
    return None


def above_peak(measurement: Measurement) -> Finding | None:
    """Why a figure above the device's peak cannot be true; None where it is not above."""
    # Without a known peak, what no memory reaches, and no baseline holds.
    peak, gbps = measurement.peak or Peak(MAX_GBPS * 1e9, "of any memory"), measurement.gbps
    if gbps is None or gbps * 1e9 <= peak.bytes_per_second:
        return None
    return Finding(
        ABOVE_PEAK,
        f"{format_gbps(gbps)} is more than the peak of {format_gbps(peak.gbps)} ({peak.source}): the work was served "
        f"from a cache, or moves less than the {format_bytes(measurement.bytes_moved)} that are declared",
    )


def untimed(workload: Workload, synchronize: Call) -> object:
    """Runs setup and the workload once and waits: what every device's `run` does."""
    if workload.setup is not None:
        workload.setup()
    value = workload.call()
    synchronize()
    return value
