"""The pace of a device, as a probe shows it, and waiting for memory to slow down to one that is known.

A hypervisor puts virtual processors elsewhere, where memory is faster or slower, every few seconds to minutes
(benchmarks/pace.py).
"""

from __future__ import annotations

import time
from statistics import median
from typing import Any

from pytest_bandwidth.devices.base import Probe, TimedDevice

# Longer would pay where a pace lasts for long, and every fresh process of a confirmation may wait.
LONGEST_SECONDS = 4.0
LOOK_SAMPLES = 3
# Between looks the processors are left alone, for whoever else wants them.
NAP_SECONDS = 0.02


def pace_gbps(device: TimedDevice, probe: Probe, stream: Any, samples: int) -> float:
    """GB/s of a probe, the median of so many samples."""
    return probe.bytes_moved / median(device.time(probe.call, stream).seconds for _ in range(samples)) / 1e9


def await_pace(device: TimedDevice, probe: Probe, stream: Any, fastest_gbps: float) -> bool:
    """Naps until the probe reaches no more than so many GB/s, `LONGEST_SECONDS` at most; whether it came to that."""
    until = device.now() + LONGEST_SECONDS
    while pace_gbps(device, probe, stream, LOOK_SAMPLES) > fastest_gbps:
        if device.now() >= until:
            return False
        time.sleep(NAP_SECONDS)
    return True
