"""Plug the fleet in: the command."""

from __future__ import annotations

from pytest_bandwidth.hooks import Command, hookimpl


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth fleet`."""
    module = "pytest_bandwidth.features.fleet.command"
    return [
        Command("fleet", "measure every GPU of a Ray cluster, each in a process of its own", module, takes_rest=True)
    ]
