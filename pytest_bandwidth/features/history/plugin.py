"""Plug the history in: the command."""

from __future__ import annotations

from pytest_bandwidth.hooks import Command, hookimpl


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth history`."""
    module = "pytest_bandwidth.features.history.commands.command"
    return [Command("history", "show how tests fared over many runs, and where their level changed", module)]
