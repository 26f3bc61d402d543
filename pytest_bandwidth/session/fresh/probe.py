"""Measure a probe alone in a fresh process: how the device does when no kernel of the test runs on it."""

from __future__ import annotations

import subprocess
from statistics import median

from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.rounds import RUN_DELAY
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
    """Return GB/s of a probe, after a warm-up by time, since clocks rise by time: the median of samples that count.

    tolerates_run_delay: whether those in which a thread waited for a processor do where no others are left.
    Raises BandwidthError where none counts.
    """
    until = device.now() + WARM_SECONDS
    device.time(probe.call, None)
    while device.now() < until:
        device.time(probe.call, None)
    taken = [device.time(probe.call, None) for _ in range(samples)]
    seconds = [sample.seconds for sample in taken if sample.drop is None and sample.seconds > 0]
    if not seconds and tolerates_run_delay:
        seconds = [sample.seconds for sample in taken if sample.drop and sample.drop.code == RUN_DELAY]
    if not seconds:
        why = sorted({sample.drop.text if sample.drop else "it took no time" for sample in taken})
        raise BandwidthError(
            f"the probe ({probe.name}) has no figure: expected a sample that counts, found {samples} that do not "
            f"({'; '.join(why)}); try again when the device is at rest"
        )
    return probe.bytes_moved / median(seconds) / 1e9


def main(name: str, bytes_read: str, bytes_written: str, *options: str) -> None:
    """Print the GB/s of the probe that matches the bytes: the child of `probe_alone`."""
    device = open_device(name)
    if not isinstance(device, TimedDevice):
        raise BandwidthError(f"{name} measures no time")
    probe = device.probe(Traffic(int(bytes_read), int(bytes_written)))
    print(probe_gbps(device, probe, SAMPLES, tolerates_run_delay=_TOLERANT in options))
