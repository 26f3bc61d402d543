"""Follow tests, and the cards of a fleet, over many runs.

A history is a folder or bucket of Parquet files, to which `writing.append` adds one a run, and of which `reading.ask`
asks by DuckDB. DuckDB is imported when one of them runs, fsspec where an address is given.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.hooks import Command, hookimpl
from pytest_bandwidth.options.settings import Options, option

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.domain.address import Address
    from pytest_bandwidth.hooks import Outcome, Reporter

MISSING = "the history needs DuckDB and ruptures: pip install 'pytest-bandwidth[history]'"


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth history`."""
    module = "pytest_bandwidth.features.history.command"
    return [Command("history", "show how tests fared over many runs, and where their level changed", module)]


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-history`."""
    return HistoryOptions


@hookimpl
def pytest_bandwidth_reporters(config: pytest.Config) -> list[Reporter]:
    """Append the run where `--bandwidth-history` says."""
    from pytest_bandwidth.options.reading import options_of

    place = options_of(config, HistoryOptions).history
    return [] if place is None else [HistoryReporter(config, place)]


def _place(text: str) -> Path | Address:
    from pytest_bandwidth.domain.address import Address, is_address

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


class HistoryReporter:
    """Append each device's results. place: the folder or bucket, as the option names it."""

    def __init__(self, config: pytest.Config, place: Path | Address) -> None:
        from pytest_bandwidth.options.options import places_of

        self._place, self._given_by = place, places_of(config)["history"]
        self._at = config.invocation_params.dir / place

    def check(self) -> None:
        """Raise UsageError where the folder cannot be written, or the bucket not listed."""
        from pytest_bandwidth.domain.errors import UsageError
        from pytest_bandwidth.features.history.bucket import Bucket
        from pytest_bandwidth.session.publishing.run_files import check_writable

        if isinstance(self._at, Path):
            check_writable(self._given_by, self._at, a_file=False)
            return
        try:
            Bucket(self._at).names()
        except UsageError as error:
            raise UsageError(f"{self._given_by}: {error}") from None

    def write(self, document: Mapping[str, Any], outcomes: Sequence[Outcome], suffix: str | None) -> list[str]:
        """Append one device's results, and return the name of their file; nothing where nothing was measured."""
        from pytest_bandwidth.domain.errors import BandwidthError, UsageError
        from pytest_bandwidth.features.history.writing import append

        del suffix  # the run's id holds it
        if not outcomes:
            return []
        try:
            return [str(self._place / append(self._at, document, outcomes).name)]
        except (OSError, BandwidthError) as error:
            raise UsageError(f"{self._place} was not appended to: {error}") from None
