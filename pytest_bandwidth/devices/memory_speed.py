"""The pace of a device, as a probe shows it, and waiting for memory to slow down to one that is known.

A hypervisor puts virtual processors elsewhere, where memory is faster or slower, for seconds or minutes; how often one
pace follows the other, benchmarks/pace.py measures.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.domain.errors import BandwidthError

if TYPE_CHECKING:
    from pytest_bandwidth.devices.base import Probe, TimedDevice

# For all measurements of a process; a confirmation mostly has less time to give (see `fresh_processes`).
LONGEST_SECONDS = 4.0
LOOK_SAMPLES = 3
# Looking takes memory from whoever else is on the machine. benchmarks/pace.py tries longer ones.
NAP_SECONDS = 0.03


class NoPace(BandwidthError):
    """A probe has no figure: none of its samples counts."""


def pace_gbps(device: TimedDevice, probe: Probe, stream: Any, samples: int) -> float:
    """GB/s of a probe, the median of those of so many samples that count. Raises NoPace where none does."""
    taken = [device.time(probe.call, stream) for _ in range(samples)]
    seconds = [sample.seconds for sample in taken if sample.drop is None and sample.seconds > 0]
    if not seconds:
        why = sorted({sample.drop.text if sample.drop else "it took no time" for sample in taken})
        raise NoPace(
            f"the probe ({probe.name}) has no figure: expected a sample that counts, found {samples} that do not "
            f"({'; '.join(why)}); try again when the device is at rest"
        )
    return probe.bytes_moved / median(seconds) / 1e9


@dataclass(slots=True)
class Patience:
    """How long one process may still wait, whatever it measures."""

    seconds_left: float = LONGEST_SECONDS


@dataclass(frozen=True, slots=True)
class Pace:
    """fastest_gbps: of the probe beside which samples are wanted; patience: shared by a process's measurements."""

    fastest_gbps: float
    patience: Patience = field(default_factory=Patience)

    def wait(self, device: TimedDevice, probe: Probe, stream: Any) -> float:
        """Looks and naps in turn until the probe is no faster, or has no figure, or patience ends; seconds taken."""
        started = device.now()
        left = self.patience.seconds_left
        while device.now() - started < left and self._is_faster(device, probe, stream):
            time.sleep(NAP_SECONDS)  # nothing tells when a hypervisor moves processors
        taken = device.now() - started
        self.patience.seconds_left = max(0.0, left - taken)
        return taken

    def _is_faster(self, device: TimedDevice, probe: Probe, stream: Any) -> bool:
        try:
            return pace_gbps(device, probe, stream, LOOK_SAMPLES) > self.fastest_gbps
        except NoPace:  # the rounds will say what is wrong
            return False
