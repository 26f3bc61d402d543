"""The pace of a device, as a probe shows it, and waiting for memory to slow down to one that is known.

A hypervisor puts virtual processors elsewhere, where memory is faster or slower, for seconds or minutes; how often one
pace follows the other, benchmarks/pace.py measures.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_bandwidth.devices.base import Probe, TimedDevice

# For all measurements of a process. Longer would often help, but every fresh process of a confirmation may wait.
LONGEST_SECONDS = 4.0
LOOK_SAMPLES = 3
# Looking takes memory from whoever else is on the machine.
NAP_SECONDS = 0.1


def pace_gbps(device: TimedDevice, probe: Probe, stream: Any, samples: int) -> float:
    """GB/s of a probe, the median of so many samples."""
    return probe.bytes_moved / median(device.time(probe.call, stream).seconds for _ in range(samples)) / 1e9


@dataclass(slots=True)
class Patience:
    """How long one process may still wait, whatever it measures."""

    seconds_left: float = LONGEST_SECONDS


@dataclass(frozen=True, slots=True)
class Pace:
    """fastest_gbps: of the probe beside which samples are wanted; patience: shared by a process's measurements."""

    fastest_gbps: float
    patience: Patience = field(default_factory=Patience)

    def wait(self, device: TimedDevice, probe: Probe, stream: Any) -> None:
        """Looks and naps in turn until the probe is no faster, or patience ends."""
        started = device.now()
        left = self.patience.seconds_left
        while pace_gbps(device, probe, stream, LOOK_SAMPLES) > self.fastest_gbps and device.now() - started < left:
            time.sleep(NAP_SECONDS)  # nothing tells when a hypervisor moves processors
        self.patience.seconds_left = max(0.0, left - (device.now() - started))
