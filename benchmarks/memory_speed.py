"""Measure how long the host's memory keeps its speed, and how often it pays to wait for it to slow down.

    python benchmarks/memory_speed.py [--seconds 60] [--mib 256] [--nap 0.03 --nap 0.1 --nap 0.4]

A look is the median of three samples of the probe that stands beside a triad. The speed has changed where two looks in
a row are more than 20 % above it, or below. Each length of nap is tried for so many seconds, no nap first. The last
column: of all looks at one of the higher speeds, after how many a lower one was there within the time that a fresh
process waits. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import time
from dataclasses import dataclass, field
from datetime import datetime, timezone
from math import log
from statistics import median

from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.devices.memory_speed import LONGEST_WAIT_SECONDS, LOOK_SAMPLES, NAP_SECONDS, median_probe_gbps
from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent

CHANGED = log(1.2)


@dataclass
class Look:
    at: float
    gbps: float


@dataclass
class Piece:
    """Hold the looks between two changes of speed."""

    looks: list[Look] = field(default_factory=list)

    @property
    def gbps(self) -> float:
        return median(look.gbps for look in self.looks)

    def differs(self, looks: list[Look]) -> bool:
        """Return whether two looks are on the same side of the speed, and far from it."""
        away = [log(look.gbps / self.gbps) for look in looks]
        return len(away) == 2 and (min(away) > CHANGED or max(away) < -CHANGED)


def looks(device: TimedDevice, probe: Probe, nap: float, seconds: float) -> list[Look]:
    found: list[Look] = []
    begun = time.monotonic()
    while not found or found[-1].at < seconds:
        gbps = median_probe_gbps(device, probe, None, LOOK_SAMPLES, tolerates_run_delay=True)
        found.append(Look(time.monotonic() - begun, gbps))
        time.sleep(nap)  # what a pause does to the speed is what is asked
    return found


def pieces(found: list[Look]) -> list[Piece]:
    cut = [Piece(found[:1])]
    for i in range(1, len(found)):
        if cut[-1].differs(found[i : i + 2]):
            cut.append(Piece())
        cut[-1].looks.append(found[i])
    return cut


def lengths(cut: list[Piece]) -> str:
    """Return the first dozen speeds, each with its seconds."""
    ends = [piece.looks[-1].at for piece in cut]
    told = [
        f"{piece.gbps:.0f} for {end - begin:.1f} s" for piece, begin, end in zip(cut, [0.0, *ends], ends, strict=False)
    ]
    return ", ".join(told[:12]) + ", …" * (len(told) > 12)


def worth_waiting(cut: list[Piece]) -> str:
    """Return, of looks at a higher speed that were watched long enough, the share that a lower one followed in time."""
    slowest = min(piece.gbps for piece in cut)
    slow_at = [look.at for piece in cut if log(piece.gbps / slowest) <= CHANGED for look in piece.looks]
    fast_at = [look.at for piece in cut if log(piece.gbps / slowest) > CHANGED for look in piece.looks]
    watched = [at for at in fast_at if at + LONGEST_WAIT_SECONDS <= cut[-1].looks[-1].at]
    followed = sum(any(at < slow <= at + LONGEST_WAIT_SECONDS for slow in slow_at) for at in watched)
    return f"{format_percent(followed / len(watched))} of {len(watched)}" if watched else "none was faster"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="for each length of nap (default: 60)")
    parser.add_argument("--mib", type=int, default=256, help="MiB of each of the probe's three arrays (default: 256)")
    parser.add_argument("--nap", type=float, action="append", help=f"seconds (default: {NAP_SECONDS} 0.1 0.4)")
    options = parser.parse_args()
    device = open_device("cpu")
    assert isinstance(device, TimedDevice)
    size = options.mib << 20
    probe = device.probe(Traffic(2 * size, size))
    median_probe_gbps(device, probe, None, LOOK_SAMPLES, tolerates_run_delay=True)  # compiles
    print(f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {device.identity.name}, ", end="")
    print(f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}; {probe.name}, {options.mib} MiB arrays\n")
    print(f"| nap, s | looks | speeds, GB/s | slower within {LONGEST_WAIT_SECONDS:g} s of a faster look |")
    print("|---|---|---|---|")
    for nap in (0.0, *(options.nap or (NAP_SECONDS, 0.1, 0.4))):
        found = looks(device, probe, nap, options.seconds)
        cut = pieces(found)
        print(f"| {nap:g} | {len(found)} | {lengths(cut)} | {worth_waiting(cut)} |", flush=True)


if __name__ == "__main__":
    main()
