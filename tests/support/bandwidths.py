"""A `bandwidth` fixture of a run of its own, for tests that measure on a device of their choice."""

from __future__ import annotations

from pathlib import Path

from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.session.run import JudgingRun


def bandwidth_on(device: str, folder: Path) -> Bandwidth:
    """Return what measures on the device by a few short samples; files it leaves lie in the folder."""
    run = JudgingRun(Settings(device=device), Invocation((), folder, as_module=True), folder)
    return Bandwidth(run, MarkerOptions(max_time=0.01, min_samples=3), folder / "test_it.py")
