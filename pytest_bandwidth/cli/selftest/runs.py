"""Run the self-test's fresh processes, one after the other under the device's lock, and tell which are evidence."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.evidence.processes.start_and_end import output_of
from pytest_bandwidth.measuring.device_lock import DeviceLock
from pytest_bandwidth.measuring.progress import ConsoleProgress

# Of a process that has the device: what it waited before does not count.
PROCESS_SECONDS = 300
LOCK_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Plan:
    """Say what to ask of the processes. busy_processors: as in `busy_with_others`; drops: besides identical code."""

    device: DeviceIdentity
    runs: int
    mib: int
    drops: tuple[float, ...]
    busy_processors: float | None = None


@dataclass(frozen=True, slots=True)
class MeasuredRuns:
    """Hold runs by drop (0.0: identical code), one of each a process; why others were left out, by number from 1."""

    runs: dict[float, list[Run]]
    left_out: dict[int, str] = field(default_factory=dict)

    @property
    def same(self) -> list[Run]:
        return self.runs[0.0]


def measure(plan: Plan, least: int) -> MeasuredRuns:
    """Run the processes and say which are left out.

    Raises BandwidthError where one fails, where so many are left out that fewer than `least` would remain, and where
    the device stays taken.
    """
    seen = MeasuredRuns({drop: [] for drop in (0.0, *plan.drops)})
    progress = ConsoleProgress(plan.runs)
    lock = DeviceLock(
        plan.device,
        LOCK_SECONDS,
        advice="wait for it or end it",  # no ini file is read here, so that its time-out is no way out
    )
    try:
        for process in range(1, plan.runs + 1):
            _take_in(_answer(plan, process, lock, progress), process, seen, progress)
            if plan.runs - len(seen.left_out) < least:
                raise BandwidthError(_too_few(plan, process, least, seen))
    finally:
        progress.clear()
    return seen


def _answer(plan: Plan, process: int, lock: DeviceLock, progress: ConsoleProgress) -> dict[str, Any]:
    """Measure in one process while no other measures, and return its answer."""
    with lock.held(progress.show, progress.log):
        progress.bar(process - 1)
        return _one_process(plan, process)


def _one_process(plan: Plan, process: int) -> dict[str, Any]:
    asked = {
        "device": plan.device.option,
        "mib": plan.mib,
        "drops": plan.drops,
        "busy_processors": plan.busy_processors,
        "turn": process,
    }
    module = "pytest_bandwidth.cli.selftest.process"
    try:
        answer: dict[str, Any] = json.loads(output_of(module, json.dumps(asked), seconds=PROCESS_SECONDS))
    except subprocess.TimeoutExpired:
        raise BandwidthError(
            f"a process did not measure the kernel {1 + len(plan.drops)} times in {PROCESS_SECONDS} s: "
            "try a smaller --mib or fewer of --drop"
        ) from None
    except BandwidthError as error:
        raise BandwidthError(f"a process measured nothing: {error}") from None
    return answer


def _take_in(answer: dict[str, Any], process: int, seen: MeasuredRuns, progress: ConsoleProgress) -> None:
    reason = answer.get("invalid")
    if reason is not None:
        seen.left_out[process] = reason
        progress.note(f"process {process} was left out: {reason}")
        return
    for drop, figures in answer["runs"].items():
        seen.runs[float(drop)].append(Run(**figures))


def _too_few(plan: Plan, process: int, least: int, seen: MeasuredRuns) -> str:
    others = ", or say in --busy-processors what others may use" if plan.device.on_host else ""
    return (
        f"{len(seen.left_out)} of {plan.runs} processes left out by now, at least {least} have to stay "
        f"(the last: {seen.left_out[process]}): quiet the machine or raise --runs{others}"
    )
