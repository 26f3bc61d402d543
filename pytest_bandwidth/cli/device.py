"""Show this machine's device: identity, peaks with their sources, what a probe reaches by mix, ridge points."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from statistics import median
from typing import Any

from pytest_bandwidth.cli.main import print_json
from pytest_bandwidth.devices.base import Probe, TimedDevice
from pytest_bandwidth.devices.open import known_names, open_device
from pytest_bandwidth.domain.device import device_plain
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import RUN_DELAY
from pytest_bandwidth.domain.measured.roofline import ridge_point
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import digits, format_gbps, format_percent
from pytest_bandwidth.reports.text_safe import printable

# Read and written shares of a probe's bytes.
_COPY = "copy (1:1)"
MIXES = {"read only": (1, 0), "write only": (0, 1), _COPY: (1, 1), "2 reads, 1 write": (2, 1)}
PROBE_BYTES = 768 * 2**20
SAMPLES = 15
WARM_SECONDS = 0.3
PRECISIONS = ("fp64", "fp32", "fp16-tensor", "bf16-tensor")


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--device", default="auto", metavar="NAME", help=f"{known_names()} (default: auto)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    device = open_device(options.device)
    facts = device_plain(device.identity, device.peak)
    probes: dict[str, float] = {}
    if isinstance(device, TimedDevice):
        # By mix, the median of a few samples: for orientation, not for a verdict.
        for name, (read, written) in MIXES.items():
            part = PROBE_BYTES // (read + written)
            probes[name] = _probe_gbps(device, device.probe(Traffic(read * part, written * part)))
    # FLOP per byte by precision; by the plain copy's bandwidth where no peak is known.
    bandwidth = probes.get(_COPY, 0.0) * 1e9 if device.peak is None else device.peak.bytes_per_second
    rates = {name: device.peak_flops(name) for name in PRECISIONS} if bandwidth else {}
    ridges = {name: ridge_point(rate, bandwidth) for name, rate in rates.items() if rate is not None}
    facts |= {"probe_gbps": probes, "ridge_points": ridges}
    if options.json:
        print_json(facts)
    else:
        print("\n".join(_lines(facts)))
    return 0


def _probe_gbps(device: TimedDevice, probe: Probe) -> float:
    """Return a probe's GB/s: the median of its valid samples, after a warm-up of fixed time, in which clocks rise.

    Raises BandwidthError without a valid sample.
    """
    until = device.now() + WARM_SECONDS
    device.time(probe.call, None)
    while device.now() < until:
        device.time(probe.call, None)
    taken = [device.time(probe.call, None) for _ in range(SAMPLES)]
    seconds = [sample.seconds for sample in taken if sample.drop is None and sample.seconds > 0]
    # On a busy host a thread waits in each sample: use such samples rather than no sample.
    seconds = seconds or [sample.seconds for sample in taken if sample.drop and sample.drop.code == RUN_DELAY]
    if not seconds:
        why = sorted({sample.drop.text if sample.drop else "it took no time" for sample in taken})
        raise BandwidthError(
            f"the probe ({probe.name}) has no figure: expected a sample that counts, found {SAMPLES} that do not "
            f"({'; '.join(why)}); try again when the device is idle"
        )
    return probe.bytes_moved / median(seconds) / 1e9


def _lines(facts: Mapping[str, Any]) -> list[str]:
    peak = facts["peak"]
    memory = "" if facts["memory_gib"] is None else f", {facts['memory_gib']} GiB"
    lines = [
        f"{facts['kind']}: {printable(facts['name'])}{memory}",
        f"  peak             {format_gbps(peak['gbps'])} ({peak['source']})" if peak else "  peak             unknown",
    ]
    for name, gbps in facts["probe_gbps"].items():
        share = f" ({format_percent(gbps / peak['gbps'])} of peak)" if peak else ""
        lines.append(f"  {name:16} {format_gbps(gbps)}{share}")
    by = "" if peak else " (by the rates measured here)"
    lines += [f"  ridge {name:10} {digits(point)} FLOP/byte{by}" for name, point in facts["ridge_points"].items()]
    lines += [f"  {name:16} {printable(str(value))}" for name, value in facts["settings"].items()]
    lines += [f"  {name:16} {printable(str(value))}" for name, value in facts["facts"].items() if value is not None]
    return lines
