"""One process of the self-test: measures the shipped triad, unchanged and slowed, and prints the figures as JSON."""

from __future__ import annotations

import json
import random
import sys

import numpy as np

from pytest_bandwidth.devices.base import Budget, Device, Launch, Workload
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.devices.opening import open_device
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.locking import DeviceLock
from pytest_bandwidth.orphans import end_with_parent

BLOCK = 256
GRID = 132 * 16
LOCK_SECONDS = 600.0


def measure(device: Device, mib: int, drop: float) -> dict[str, float]:
    """Figures of a triad of `mib` MiB a vector that works 1/(1 − drop) times as much as it declares."""
    declared = mib * 2**20 // 4
    b, c = device.random(declared, "float32"), device.random(declared, "float32")
    a = device.empty(declared, "float32")
    kernel = device.kernel(read_source("stream.cu", "triad_f32", ()))

    def launch(n: int) -> Launch:
        return Launch(kernel, (GRID, 1, 1), (BLOCK, 1, 1), (a, b, c, np.float32(3), np.int64(n)))

    # The further work is done in the same arrays: memory's speed depends on where they lie to each other.
    whole, rest = divmod(round(declared / (1 - drop)), declared)
    calls = [device.launcher(launch(n), None) for n in (*[declared] * whole, rest) if n]

    def work() -> None:
        for call in calls:
            call()

    workload = Workload(work, Traffic(8 * declared, 4 * declared), launch=launch(declared))
    found = device.measure(workload, Budget(), lambda _: None)
    if found.gbps is None or found.relative is None or found.probe_gbps is None:
        raise BandwidthError(f"nothing valid was measured: {found.invalid and found.invalid.text}")
    return {"gbps": found.gbps, "relative": found.relative, "probe_gbps": found.probe_gbps}


def main(arguments: list[str]) -> int:
    """DEVICE MIB TURN DROP…: prints figures by drop, measured in an order that changes with the turn."""
    end_with_parent()
    name, mib, turn, *drops = arguments
    try:
        device = open_device(name)
        order = [0.0, *map(float, drops)]
        random.Random(int(turn)).shuffle(order)
        with DeviceLock(device.identity, LOCK_SECONDS).held():
            found = {str(drop): measure(device, int(mib), drop) for drop in order}
    except BandwidthError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
