"""Alternate a kernel's old code with the new one in this child process, which a fault of the old one ends."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from statistics import median
from typing import Any, NoReturn

from pytest_bandwidth.devices.base import Device, OldCode, Workload
from pytest_bandwidth.domain.code.stored_kernel import cubin_of_text
from pytest_bandwidth.domain.errors import BandwidthError, DeviceLost, KernelError
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.units import format_seconds
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.evidence.processes.requests import ChildRequest, OldKernel, read_old_kernel
from pytest_bandwidth.judging.causes import recorded_resources
from pytest_bandwidth.registry import hooks

# Old code that runs for longer than this, or for so many times as long as the new one where that is more, hangs.
HANGS_SECONDS = 10.0
HANGS_FACTOR = 100.0
# In what is told of it in a row's `detail`.
DROP, RESOURCES, SECTORS, TROUBLE, REFUSED = "drop", "resources", "sectors", "trouble", "refused"

Report = Callable[[Sequence[Mapping[str, Any]]], None]


@dataclass(frozen=True, slots=True)
class MeasureWithOldKernels(ChildRequest):
    """Ask a child to alternate kernels with their old code, while it measures them."""

    old_kernels: tuple[OldKernel, ...] = ()

    @staticmethod
    def values_of(plain: Mapping[str, Any]) -> dict[str, Any]:
        return {**ChildRequest.values_of(plain), "old_kernels": tuple(map(read_old_kernel, plain["old_kernels"]))}

    def measure(self, device: Device, workload: Workload, measure: Callable[[Workload], Measurement]) -> Measurement:
        """Measure the workload with its old code where there is some."""
        old = next((old for old in self.old_kernels if old.label == workload.label), None)
        if old is None or not device.launches_old_code:
            return measure(workload)
        return measure_with_old_code(device, old, workload, measure, self.hand_over)


def measure_with_old_code(
    device: Device,
    asked: OldKernel,
    workload: Workload,
    measure: Callable[[Workload], Measurement],
    report: Report,
) -> Measurement:
    """Measure a workload while its old code takes turns with it; its arrays hold the new code's output then.

    What came of it stands in `detail`: the drop, or the trouble, where the workload is measured alone. Where the old
    code faults or hangs, `report` is given a row that says so and the process ends: it can measure nothing more.
    """
    try:
        with _ended_if_it_hangs(asked, report):
            old, refused = load_old(device, asked, workload)
    except DeviceLost as error:
        _give_up(asked, report, f"it faults: {_first_line(error)}")
    except BandwidthError as error:
        return measure(workload).with_detail(Rule.OLD_KERNEL, {TROUBLE: _first_line(error)})
    try:
        measured = measure(replace(workload, interleaved=old.calls, setup_for_all=True))
        old.restore()
        sectors = _sectors(asked, workload, old)
        device.run(replace(workload, interleaved=()))
    except DeviceLost as error:
        _give_up(asked, report, f"where old and new take turns one of them faults: {_first_line(error)}")
    alone = replace(measured, rounds=replace(measured.rounds, interleaved=()))
    seen = {**_comparison_of(measured.rounds, old), SECTORS: sectors, REFUSED: refused}
    return alone.with_detail(Rule.OLD_KERNEL, seen)


def load_old(device: Device, asked: OldKernel, workload: Workload) -> tuple[OldCode, str | None]:
    """Load old code from its machine code, or else its PTX; return why not from the first, where that was kept.

    Raises as `Device.old_code`.
    """
    refused = None
    if asked.cubin is not None:
        try:
            cubin = cubin_of_text(asked.cubin)
            return device.old_code(workload, asked.old, asked.new, asked.shape, cubin), None
        except KernelError as error:
            if asked.needs_cubin:
                raise
            refused = _first_line(error)
    return device.old_code(workload, asked.old, asked.new, asked.shape), refused


def _comparison_of(rounds: Rounds, old: OldCode) -> Mapping[str, Any]:
    """Return the drop, and what the compiler gave the old code."""
    before, *as_before = rounds.interleaved or ((),)
    now = as_before[0] if as_before else rounds.kernel_seconds
    if not before or min(*before, *now) <= 0:
        return {TROUBLE: "no round counted in which both ran"}
    resources = recorded_resources(asdict(old.resources)) if old.resources is not None else {}
    return {DROP: median(math.log(n / b) for n, b in zip(now, before, strict=True)), RESOURCES: resources}


def _sectors(asked: OldKernel, workload: Workload, old: OldCode) -> Mapping[str, int] | None:
    if not asked.counts or workload.launch is None or asked.shape is not None:  # a block is another piece of work then
        return None
    if workload.setup is not None:
        workload.setup()
    found: Mapping[str, int] | None = hooks().pytest_bandwidth_sectors(
        old=asked.old, new=asked.new, launch=workload.launch, host_args=old.host_args
    )
    return found


@contextmanager
def _ended_if_it_hangs(asked: OldKernel, report: Report) -> Iterator[None]:
    longest = max(HANGS_SECONDS, HANGS_FACTOR * asked.seconds)
    watch = threading.Timer(longest, _give_up, (asked, report, f"it did not end in {format_seconds(longest)}"))
    watch.daemon = True
    watch.start()
    try:
        yield
    finally:
        watch.cancel()


def _give_up(asked: OldKernel, report: Report, why: str) -> NoReturn:
    """Report why and end this process at once: to tidy up would wait for the device, or fail on its lost context."""
    report([{"label": asked.label, "detail": {Rule.OLD_KERNEL: {TROUBLE: why}}}])
    os._exit(1)


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
