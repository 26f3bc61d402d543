"""Plug hardware counters in: the options, what counts and profiles a judged test, and the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.domain.device import DeviceIdentity
    from pytest_bandwidth.hooks import Column, Judged, JudgedTest, Reporter


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-counters` and `--bandwidth-profile`."""
    from pytest_bandwidth.features.counters.options import CountersOptions

    return CountersOptions


@hookimpl
def pytest_bandwidth_start(config: pytest.Config, identity: DeviceIdentity) -> None:
    """Refuse a profiler that was asked for by name and cannot count."""
    from pytest_bandwidth.features.counters.evidence import check_profiler

    check_profiler(config, identity)


@hookimpl
def pytest_bandwidth_judged(config: pytest.Config, test: JudgedTest, judged: dict[str, Judged]) -> None:
    """Count what DRAM moves for each measurement, judge by that, and profile what is REGRESSED."""
    from pytest_bandwidth.features.counters.evidence import count_and_profile

    count_and_profile(config, test, judged)


@hookimpl
def pytest_bandwidth_reporters(config: pytest.Config) -> list[Reporter]:
    """Check the folder of profilers' reports before any test runs."""
    from pytest_bandwidth.features.counters.options import CountersOptions
    from pytest_bandwidth.options.reading import options_of

    folder = options_of(config, CountersOptions).profile
    if folder is None:
        return []
    from pytest_bandwidth.features.counters.evidence import ProfileFolder

    return [ProfileFolder(config, folder)]


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the figures and facts of a result that it brings."""
    from pytest_bandwidth.features.counters.columns import COLUMNS

    return list(COLUMNS)
