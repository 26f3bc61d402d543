"""Plug the history in: the command, the option, and what appends a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_bandwidth.hooks import Command, hookimpl

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.hooks import Reporter


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth history`."""
    module = "pytest_bandwidth.features.history.command"
    return [Command("history", "show how tests fared over many runs, and where their level changed", module)]


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-history`."""
    from pytest_bandwidth.features.history.options import HistoryOptions

    return HistoryOptions


@hookimpl
def pytest_bandwidth_reporters(config: pytest.Config) -> list[Reporter]:
    """Append the run where `--bandwidth-history` says."""
    from pytest_bandwidth.features.history.options import HistoryOptions
    from pytest_bandwidth.options.reading import options_of

    place = options_of(config, HistoryOptions).history
    if place is None:
        return []
    from pytest_bandwidth.features.history.reporter import HistoryReporter

    return [HistoryReporter(config, place)]
