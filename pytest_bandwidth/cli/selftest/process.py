"""Measure the shipped triad in a process of the self-test, unchanged and slowed, and print figures as JSON."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Launch, Workload
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import disbelief, metrics_of_measurement
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.progress import Progress
from pytest_bandwidth.options.settings import Settings

BLOCK = 256
GRID = 132 * 16


def measurer_of(asked: Mapping[str, Any]) -> Measurer:
    """Return what a fresh process measures with: the device's lock is its parent's."""
    settings = Settings(device=asked["device"], busy_processors=asked["busy_processors"])
    return Measurer(settings, Path(), ChildRequest(asked["device"]))


def answer(measurer: Measurer, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return `runs`, figures by drop, measured in an order that changes with the turn; or why one stayed `invalid`."""
    order = [0.0, *asked["drops"]]
    random.Random(asked["turn"]).shuffle(order)
    runs = {}
    for drop in order:
        measurement = measure(measurer, asked["mib"], drop)
        reason = why_no_evidence(measurement)
        if reason is not None:
            return {"invalid": reason}
        runs[str(drop)] = {
            "gbps": measurement.gbps,
            "relative": measurement.relative,
            "probe_gbps": measurement.probe_gbps,
        }
    return {"runs": runs}


def measure(measurer: Measurer, mib: int, drop: float) -> Measurement:
    """Measure a triad of `mib` MiB a vector that works 1/(1 − drop) times as much as it declares, as a test would."""
    device = measurer.device
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
    return measurer.measure(workload, MarkerOptions(), Progress())


def why_no_evidence(measurement: Measurement) -> str | None:
    """Say why a test with this measurement could not be judged; None where it could."""
    if measurement.invalid is not None:
        return measurement.invalid.text
    figures = metrics_of_measurement(measurement)
    return None if figures.share_told else disbelief(figures)


def main(text: str) -> int:
    """Print the answer to what is asked, a JSON object: device, mib, drops, busy_processors, turn."""
    asked = json.loads(text)
    try:
        print(json.dumps(answer(measurer_of(asked), asked)))
    except BandwidthError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0
