"""A probe alone in a fresh process: how the device does when no kernel of the test runs on it."""

from __future__ import annotations

import subprocess
import sys
from statistics import median

from pytest_bandwidth.devices.base import TimedDevice
from pytest_bandwidth.devices.opening import open_device
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic

WARM_RUNS = 5
SAMPLES = 30
TIMEOUT_SECONDS = 120


def probe_alone(device: str, bytes_read: int, bytes_written: int) -> float:
    """GB/s of the matching probe in a fresh process. Raises BandwidthError where it could not run."""
    command = [sys.executable, "-m", "pytest_bandwidth.fresh_probe", device, str(bytes_read), str(bytes_written)]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, stdin=subprocess.DEVNULL, check=True
        )
        return float(done.stdout)
    except (OSError, subprocess.SubprocessError, ValueError) as error:
        raise BandwidthError(f"the probe could not run alone: {error}") from None


def main(arguments: list[str]) -> None:
    """Prints the probe's GB/s: DEVICE BYTES_READ BYTES_WRITTEN."""
    device = open_device(arguments[0])
    if not isinstance(device, TimedDevice):
        raise BandwidthError(f"{arguments[0]} measures no time")
    probe = device.probe(Traffic(int(arguments[1]), int(arguments[2])))
    for _ in range(WARM_RUNS):
        device.time(probe.call, None)
    seconds = median(device.time(probe.call, None).seconds for _ in range(SAMPLES))
    print(probe.bytes_moved / seconds / 1e9)


if __name__ == "__main__":
    main(sys.argv[1:])
