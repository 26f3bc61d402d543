"""Render saved runs for the trackers that teams have: a module for each form."""

from __future__ import annotations

from pytest_bandwidth.hooks import Command, hookimpl


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth export`."""
    module = "pytest_bandwidth.features.exports.forms"
    return [Command("export", "write saved runs for Bencher, Otava, OpenMetrics and others", module)]
