"""Ask a child process to run one workload so that a profiler, which started it, can count what it moves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from pytest_bandwidth.devices.base import Device, Workload
from pytest_bandwidth.evidence.old_kernel.in_child import load_old
from pytest_bandwidth.evidence.processes.requests import ChildRequest, OldKernel, read_old_kernel

# Steps that the child notes: the workload begins; it has come to its end.
REACHED, COUNTED = "reached", "counted"


@dataclass(frozen=True, slots=True)
class CountRequest(ChildRequest):
    """Name the workload by its label. old_kernel: the code that is counted in its place; None: its own."""

    label: str | None = None
    old_kernel: OldKernel | None = None
    untimed: ClassVar[bool] = True

    @staticmethod
    def values_of(plain: Mapping[str, Any]) -> dict[str, Any]:
        old = plain["old_kernel"]
        return {**ChildRequest.values_of(plain), "old_kernel": old and read_old_kernel(old)}

    def run(self, device: Device, workload: Workload) -> object:
        """Run the workload; the one that is counted in the range that the profiler knows."""
        if workload.label != self.label:
            return device.run(workload)
        if self.old_kernel is not None and device.launches_old_code:
            old, _ = load_old(device, self.old_kernel, workload)
            workload = replace(workload, call=old.calls[0])
        self.note(REACHED)
        value = device.run_counted(workload)
        self.note(COUNTED)
        return value
