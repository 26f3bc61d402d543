"""Give time that only a test's kernels spend: they take as long as they say that they sleep, however busy the machine.

Nothing waits, so that verdicts do not depend on when a processor was free; processes, files and all else are real.
"""

from __future__ import annotations

from scripted import ScriptedDevice

# What a callable takes that does not sleep, and what a probe does.
LEAST_SECONDS = PROBE_SECONDS = 1e-4
# What `sitecustomize.py` holds for the processes of a run.
SITE = """
import pytest_bandwidth.devices.open as opening
import pytest_bandwidth.judging.decide as decide
import pytest_bandwidth.judging.pairs as pairs
import virtual_time

opening.open_device = virtual_time.open_device
pairs.Looks.after, decide._FEWEST_UNALIKE = property(lambda _: virtual_time.AFTER), virtual_time.FEWEST_UNALIKE
"""
# Of times without noise few pairs of processes tell all; one more where they cannot have the same addresses.
AFTER, FEWEST_UNALIKE = (2, 3, 4), 3
# As a conftest.py: where the variable SLOW slows kernels, it does in the first process alone.
ONLY_HERE = """
import os, sys

def pytest_configure():
    if "pytest_bandwidth.evidence.processes.child_plugin" in sys.modules:
        os.environ["SLOW"] = "0.002"
"""
_slept: list[float] = []


def sleep(seconds: float) -> None:
    """Take so long."""
    _slept.append(seconds)


def open_device(name: str = "cpu") -> ScriptedDevice:
    """Return a device that runs the callables and takes what they slept for their samples."""
    del name
    return ScriptedDevice(lambda _: LEAST_SECONDS + _taken(), lambda _: PROBE_SECONDS)


def _taken() -> float:
    seconds = sum(_slept)
    _slept.clear()
    return seconds
