"""Run the self-test's fresh processes, one after the other under the device's lock, and tell which are evidence.

Each of them runs this module's `main`: it measures the shipped triad, unchanged and slowed, and prints figures as JSON.
"""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Launch, Workload
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import disbelief, metrics_of_measurement
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.evidence.processes.requests import ChildRequest
from pytest_bandwidth.evidence.processes.start_and_end import output_of
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.progress import ConsoleProgress, Progress
from pytest_bandwidth.options.settings import Settings

# Of a process that has the device: what it waited before does not count.
PROCESS_SECONDS = 300
LOCK_SECONDS = 600.0
# What each measurement gives, by the names of `Run`.
FIGURES = ("gbps", "relative", "probe_gbps")
BLOCK = 256
GRID = 132 * 16


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Hold runs by drop (0.0: identical code), one of each a process; why others were left out, by number from 1."""

    runs: dict[float, list[Run]]
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def same(self) -> list[Run]:
        return self.runs[0.0]


def measure(device: DeviceIdentity, runs: int, asked: Mapping[str, Any], least: int) -> MeasuredRuns:
    """Run the processes and say which are left out. asked: what `main` answers, but for each one's turn.

    Raises BandwidthError where one fails, where so many are left out that fewer than `least` would remain, and where
    the device stays taken.
    """
    seen = MeasuredRuns({drop: [] for drop in (0.0, *asked["drops"])})
    progress = ConsoleProgress(runs)
    lock = DeviceLock(
        device,
        LOCK_SECONDS,
        advice="wait for it or end it",  # no ini file is read here, so that its time-out is no way out
    )
    try:
        for process in range(1, runs + 1):
            with lock.held(progress.show, progress.log):
                progress.bar(process - 1)
                answered = _answer({**asked, "turn": process})
            reason = answered.get("invalid")
            if reason is None:
                for drop, figures in answered["runs"].items():
                    seen.runs[float(drop)].append(Run(**figures))
                continue
            seen.left_out[process] = reason
            progress.note(f"process {process} was left out: {reason}")
            if runs - len(seen.left_out) < least:
                others = ", or say in --busy-processors what others may use" if device.on_host else ""
                raise BandwidthError(
                    f"{len(seen.left_out)} of {runs} processes left out by now, at least {least} have to stay "
                    f"(the last: {reason}): quiet the machine or raise --runs{others}"
                )
    finally:
        progress.clear()
    return seen


def _answer(asked: Mapping[str, Any]) -> dict[str, Any]:
    try:
        answer: dict[str, Any] = json.loads(output_of(__name__, json.dumps(asked), seconds=PROCESS_SECONDS))
    except subprocess.TimeoutExpired:
        raise BandwidthError(
            f"a process did not measure the kernel {1 + len(asked['drops'])} times in {PROCESS_SECONDS} s: "
            "try a smaller --mib or fewer of --drop"
        ) from None
    except BandwidthError as error:
        raise BandwidthError(f"a process measured nothing: {error}") from None
    return answer


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
        measurement = measured_triad(measurer, asked["mib"], drop)
        reason = None if measurement.invalid is None else measurement.invalid.text
        if reason is None and not (figures := metrics_of_measurement(measurement)).share_told:
            reason = disbelief(figures)
        if reason is not None:
            return {"invalid": reason}
        runs[str(drop)] = {name: getattr(measurement, name) for name in FIGURES}
    return {"runs": runs}


def measured_triad(measurer: Measurer, mib: int, drop: float) -> Measurement:
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


def main(text: str) -> int:
    """Print the answer to what is asked, a JSON object: device, mib, drops, busy_processors, turn.

    drops: besides identical code. busy_processors: as in `busy_with_others`.
    """
    asked = json.loads(text)
    try:
        print(json.dumps(answer(measurer_of(asked), asked)))
    except BandwidthError as error:
        print(" ".join(str(error).split()), file=sys.stderr)
        return 2
    return 0
