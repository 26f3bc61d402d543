"""Read hardware counters of DRAM through the profiler that the user installed: its command line and its CSV.

Plugged in here: the options, what counts and profiles a judged test, and the columns.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pytest_bandwidth.domain import values
from pytest_bandwidth.hooks import hookimpl
from pytest_bandwidth.options.settings import Options, option

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.domain.device import DeviceIdentity
    from pytest_bandwidth.hooks import Column, Judged, JudgedTest


class CountersOptions(Options):
    """Hold the options."""

    counters: str = option(
        "NAME",
        "count DRAM traffic once after each test: auto, ncu, rocprofv3 or off (default: off)",
        values.one_of("auto", "ncu", "rocprofv3", "off"),
        "off",
    )
    profile: Path | None = option(
        "DIR", "run REGRESSED tests once under ncu --set full, and write its reports to this folder", values.path
    )


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-counters` and `--bandwidth-profile`."""
    return CountersOptions


@hookimpl
def pytest_bandwidth_start(config: pytest.Config, identity: DeviceIdentity) -> None:
    """Refuse a profiler that was asked for by name and cannot count, and a folder that takes no reports."""
    from pytest_bandwidth.features.counters.evidence import check_options

    check_options(config, identity)


@hookimpl
def pytest_bandwidth_judged(config: pytest.Config, test: JudgedTest, judged: dict[str, Judged]) -> None:
    """Count what DRAM moves for each measurement, judge by that, and profile what is REGRESSED."""
    from pytest_bandwidth.features.counters.evidence import count_and_profile

    count_and_profile(config, test, judged)


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the figures and facts of a result that it brings."""
    from pytest_bandwidth.features.counters.dram_traffic import COLUMNS

    return list(COLUMNS)
