"""Measure a probe alone in a fresh process: how the device does when no kernel of the test runs on it."""

from __future__ import annotations

import subprocess

from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.devices.memory_speed import median_probe_gbps
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.session.fresh.interpreter import output_of

SAMPLES = 30
WARM_SECONDS = 0.3
TIMEOUT_SECONDS = 120
_TOLERANT = "tolerates-run-delay"


def probe_alone(device: str, bytes_read: int, bytes_written: int, *, tolerates_run_delay: bool = False) -> float:
    """Return GB/s of the matching probe in a fresh process. Raises BandwidthError where it could not run.

    tolerates_run_delay: as in `Budget`: so where the run's own measurements do.
    """
    arguments = (device, str(bytes_read), str(bytes_written), *([_TOLERANT] if tolerates_run_delay else []))
    try:
        return float(output_of("pytest_bandwidth.session.fresh.probe", *arguments, seconds=TIMEOUT_SECONDS))
    except subprocess.TimeoutExpired:
        raise BandwidthError(f"the probe could not run alone: it did not end in {TIMEOUT_SECONDS} s") from None
    except (BandwidthError, OSError, ValueError) as error:
        raise BandwidthError(f"the probe could not run alone: {error}") from None


def probe_gbps(device: TimedDevice, probe: Probe, samples: int, *, tolerates_run_delay: bool = False) -> float:
    """Return GB/s of a probe: the median of some samples after a warm-up by time, since clocks rise by time.

    tolerates_run_delay: as in `median_probe_gbps`.
    """
    until = device.now() + WARM_SECONDS
    device.time(probe.call, None)
    while device.now() < until:
        device.time(probe.call, None)
    return median_probe_gbps(device, probe, None, samples, tolerates_run_delay=tolerates_run_delay)


def main(name: str, bytes_read: str, bytes_written: str, *options: str) -> None:
    """Print the GB/s of the probe that matches the bytes: the child of `probe_alone`."""
    device = open_device(name)
    if not isinstance(device, TimedDevice):
        raise BandwidthError(f"{name} measures no time")
    probe = device.probe(Traffic(int(bytes_read), int(bytes_written)))
    print(probe_gbps(device, probe, SAMPLES, tolerates_run_delay=_TOLERANT in options))
