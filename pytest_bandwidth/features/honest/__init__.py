"""Find work that was not done: code that is fast because it does less."""

from __future__ import annotations

from pytest_bandwidth.hooks import Command, hookimpl


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth arena`."""
    module = "pytest_bandwidth.features.honest.arena"
    return [Command("arena", "compare candidates with a reference, each in a process of its own", module)]
