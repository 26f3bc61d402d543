"""A `bandwidth` fixture of a run of its own, for tests that measure on a device of their choice."""

from __future__ import annotations

from pathlib import Path
from unittest.mock import patch

from user_project import SMALL_CACHE

from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.task import Task
from pytest_bandwidth.options.settings import Settings


def bandwidth_on(device: str, folder: Path) -> Bandwidth:
    """Return what measures on the device by a few short samples; files it leaves lie in the folder."""
    measurer = Measurer(Settings(), folder, Task(device))
    if device == "cpu":
        with patch("pytest_bandwidth.devices.cpu.device.read_caches", lambda: SMALL_CACHE):
            assert measurer.device  # opened
    return Bandwidth(measurer, MarkerOptions(max_time=0.01, min_samples=3), folder / "test_it.py")
