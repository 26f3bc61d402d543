"""How long the host's memory keeps its pace, while it is busy and with naps in between.

    python benchmarks/pace.py [--seconds 30] [--mib 256] [--nap 0.02 --nap 0.1]

A look is the median of three samples of the probe that stands beside a triad. The pace has changed where two looks in a
row are more than 20 % away from it. Each length of nap is tried for so many seconds, no nap first. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
from datetime import datetime, timezone
from math import log
from statistics import median

from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.devices.opening import open_device
from pytest_bandwidth.devices.pace import LOOK_SAMPLES, NAP_SECONDS, pace_gbps
from pytest_bandwidth.domain.traffic import Traffic

CHANGED = log(1.2)
# One look may have been interrupted.
LOOKS_THAT_AGREE = 2


def looks(device: TimedDevice, probe: Probe, nap: float, seconds: float) -> list[float]:
    """GB/s of each look."""
    found = []
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        found.append(pace_gbps(device, probe, None, LOOK_SAMPLES))
        time.sleep(nap)
    return found


def paces(found: list[float]) -> list[list[float]]:
    """The looks, cut where the pace has changed and stayed so."""
    pieces = [found[:1]]
    for i in range(1, len(found)):
        ahead = found[i : i + LOOKS_THAT_AGREE]
        if len(ahead) == LOOKS_THAT_AGREE and all(abs(log(gbps / median(pieces[-1]))) > CHANGED for gbps in ahead):
            pieces.append([])
        pieces[-1].append(found[i])
    return pieces


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="for each length of nap (default: 30)")
    parser.add_argument("--mib", type=int, default=256, help="MiB of each of the probe's three arrays (default: 256)")
    parser.add_argument("--nap", type=float, action="append", help=f"seconds (default: {NAP_SECONDS} 0.1 0.4)")
    options = parser.parse_args()
    device = open_device("cpu")
    assert isinstance(device, TimedDevice)
    size = options.mib << 20
    probe = device.probe(Traffic(2 * size, size))
    pace_gbps(device, probe, None, LOOK_SAMPLES)  # compiles
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {device.identity.name}, ", end="")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; {probe.name}, {options.mib} MiB arrays\n")
    print("| nap, s | seconds | looks | changes of pace | paces, GB/s |\n|---|---|---|---|---|")
    for nap in (0.0, *(options.nap or (NAP_SECONDS, 0.1, 0.4))):
        begun = time.monotonic()
        found = looks(device, probe, nap, options.seconds)
        pieces = paces(found)
        told = ", ".join(f"{median(piece):.0f}" for piece in pieces[:20]) + ", …" * (len(pieces) > 20)
        print(f"| {nap:g} | {time.monotonic() - begun:.0f} | {len(found)} | {len(pieces) - 1} | {told} |", flush=True)


if __name__ == "__main__":
    main()
