"""A scripted GPU whose kernels tell what DRAM moved for them, as the emulated card's do: for the stand-in profilers."""

from __future__ import annotations

import os
from dataclasses import replace

from scripted import ScriptedDevice

from pytest_bandwidth.devices.base import CLOSING_KERNEL, COUNTED_RANGE, Workload
from pytest_bandwidth.domain.device import DeviceIdentity

GPU = DeviceIdentity(
    "cuda",
    "scripted GPU",
    2**30,
    "GPU-0",
    {"mig": "disabled"},
    {"index": 0, "compute_capability": "9.0", "last_cache_bytes": 1 << 16},
    timed_on="gpu",
)
AMD = replace(GPU, name="scripted AMD", facts={"index": 0, "gfx": "gfx942", "last_cache_bytes": 1 << 16})
# What `sitecustomize.py` holds for the processes of a run.
SITE = """
import counted_device
import pytest_bandwidth.devices.open as opening

opening.open_device = counted_device.open_device
"""


class CountedDevice(ScriptedDevice):
    """Run callables as a GPU would; they move what is declared, times DRAM_READ and DRAM_WRITTEN (1 where not said)."""

    def run_counted(self, workload: Workload) -> object:
        self.run(workload)
        flush = f"emulated card: {CLOSING_KERNEL} 1×1 1000 ns, DRAM 64 + 0 sectors"
        _say(flush)
        _say(f"nvtx push {COUNTED_RANGE}")
        value = self.run(workload)
        read = round(workload.traffic.bytes_read * float(os.environ.get("DRAM_READ", "1")) / 32)
        written = round(workload.traffic.bytes_written * float(os.environ.get("DRAM_WRITTEN", "1")) / 32)
        if read + written:
            _say(f"emulated card: {workload.label or 'kernel'} 1×1 1000 ns, DRAM {read} + {written} sectors")
        _say("nvtx pop")
        _say(flush)
        return value


def open_device(name: str = "cuda") -> ScriptedDevice:
    """Return the GPU, or a host where that is asked for."""
    return (
        ScriptedDevice() if name == "cpu" else CountedDevice(identity=AMD if os.environ.get("VENDOR") == "AMD" else GPU)
    )


def _say(line: str) -> None:
    os.write(2, f"{line}\n".encode())
