"""Follow tests, and the cards of a fleet, over many runs.

A history is a folder or bucket of Parquet files. `writing.append` adds a file for each run, and `reading.ask` queries
them by DuckDB. Both import DuckDB when they run, and fsspec for an address.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.hooks import Command, hookimpl
from pytest_bandwidth.options.settings import Options, option

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.domain.text import Address
    from pytest_bandwidth.hooks import Reporter

MISSING = "the history needs DuckDB and ruptures: pip install 'pytest-bandwidth[history]'"


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth history`."""
    module = "pytest_bandwidth.features.history.command"
    return [Command("history", "show tests' figures over many runs, and where their level changed", module)]


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-history`."""
    return HistoryOptions


@hookimpl
def pytest_bandwidth_reporters(config: pytest.Config) -> list[Reporter]:
    """Append the run to the history that `--bandwidth-history` names."""
    from pytest_bandwidth.options.options import options_of

    place = options_of(config, HistoryOptions).history
    if place is None:
        return []
    from pytest_bandwidth.features.history.writing import HistoryReporter

    return [HistoryReporter(config, place)]


def _place(text: str) -> Path | Address:
    from pytest_bandwidth.domain.text import Address, is_address

    if text.startswith("memory://"):
        raise ValueError(f"found {text[:40]!r}, which ends with this process, expected a folder or a bucket")
    place = Address(text) if is_address(text) else path(text)
    if importlib.util.find_spec("duckdb") is None:
        raise ValueError(MISSING)
    return place


class HistoryOptions(Options):
    """Hold the option."""

    history: Path | Address | None = option(
        "PATH", "append the run to the history in this folder or bucket", _place, writes=True
    )
