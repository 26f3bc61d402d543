"""Measure how fast a probe finds the memory, and wait for memory that is too fast to compare with.

A hypervisor puts virtual processors elsewhere, where memory is faster or slower, for seconds or minutes; how often one
follows the other, benchmarks/memory_speed.py measures.
"""

from __future__ import annotations

from statistics import median
from typing import Any

from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.domain.clock import clock
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.rounds import RUN_DELAY

# For all measurements of a process; a confirmation mostly has less time to give (see `session.fresh.confirm`).
LONGEST_WAIT_SECONDS = 4.0
LOOK_SAMPLES = 3
# Looking takes memory from whoever else is on the machine. benchmarks/memory_speed.py tries longer ones.
NAP_SECONDS = 0.03


class NoProbeSamples(BandwidthError):
    """Raised where none of a probe's samples counts."""


def median_probe_gbps(
    device: TimedDevice, probe: Probe, stream: Any, samples: int, *, tolerates_run_delay: bool = False
) -> float:
    """Return a probe's GB/s, the median of those of so many samples that count. Raises NoProbeSamples.

    tolerates_run_delay: as in `Budget`, for a look that nothing is judged by.
    """
    taken = [device.time(probe.call, stream) for _ in range(samples)]
    seconds = [sample.seconds for sample in taken if sample.drop is None and sample.seconds > 0]
    if not seconds and tolerates_run_delay:
        seconds = [sample.seconds for sample in taken if sample.drop and sample.drop.code == RUN_DELAY]
    if not seconds:
        why = sorted({sample.drop.text if sample.drop else "it took no time" for sample in taken})
        raise NoProbeSamples(
            f"the probe ({probe.name}) has no figure: expected a sample that counts, found {samples} that do not "
            f"({'; '.join(why)}); try again when the device is at rest"
        )
    return probe.bytes_moved / median(seconds) / 1e9


def wait_for_memory(device: TimedDevice, probe: Probe, stream: Any, fastest_gbps: float, most_seconds: float) -> float:
    """Look and nap in turn while the probe is faster than `fastest_gbps`; return the seconds that it took.

    Ends after most_seconds, and where the probe has no figure: the rounds will say what is wrong.
    """
    started = device.now()
    while device.now() - started < most_seconds and _is_faster(device, probe, stream, fastest_gbps):
        clock.sleep(NAP_SECONDS)  # nothing tells when a hypervisor moves processors
    return device.now() - started


def _is_faster(device: TimedDevice, probe: Probe, stream: Any, gbps: float) -> bool:
    try:
        return median_probe_gbps(device, probe, stream, LOOK_SAMPLES) > gbps
    except NoProbeSamples:
        return False
