"""A probe alone in a fresh process: how the device does when no kernel of the test runs on it."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.devices.opening import open_device
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.orphans import as_parent, end_with_parent

SAMPLES = 30
WARM_SECONDS = 0.3
TIMEOUT_SECONDS = 120


def probe_alone(device: str, bytes_read: int, bytes_written: int) -> float:
    """GB/s of the matching probe in a fresh process. Raises BandwidthError where it could not run."""
    command = [sys.executable, "-m", "pytest_bandwidth.fresh_probe", device, str(bytes_read), str(bytes_written)]
    try:
        done = subprocess.run(
            command,
            env=as_parent(),
            capture_output=True,
            text=True,
            timeout=TIMEOUT_SECONDS,
            stdin=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode == 0:
            return float(done.stdout)
    except subprocess.TimeoutExpired:
        raise BandwidthError(f"the probe could not run alone: it did not end in {TIMEOUT_SECONDS} s") from None
    except (OSError, ValueError) as error:
        raise BandwidthError(f"the probe could not run alone: {error}") from None
    last = (done.stderr.strip().splitlines() or ["no output"])[-1]
    raise BandwidthError(f"the probe could not run alone: it ended with exit status {done.returncode}: {last}")


def probe_gbps(device: TimedDevice, probe: Probe, samples: int) -> float:
    """GB/s of a probe: the median of some samples after a warm-up by time, since clocks rise by time."""
    until = device.now() + WARM_SECONDS
    device.time(probe.call, None)
    while device.now() < until:
        device.time(probe.call, None)
    return probe.bytes_moved / median(device.time(probe.call, None).seconds for _ in range(samples)) / 1e9


def main(arguments: list[str]) -> None:
    """Prints the probe's GB/s: DEVICE BYTES_READ BYTES_WRITTEN."""
    end_with_parent()
    device = open_device(arguments[0])
    if not isinstance(device, TimedDevice):
        raise BandwidthError(f"{arguments[0]} measures no time")
    probe = device.probe(Traffic(int(arguments[1]), int(arguments[2])))
    print(probe_gbps(device, probe, SAMPLES))


if __name__ == "__main__":
    main(sys.argv[1:])
