"""Read hardware counters of DRAM with the profiler that the user installed: by its command line and its CSV.

The hooks here add the options and the columns, and count and profile judged tests.
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
    """Raise UsageError for a profiler that was named but cannot count, and for a folder that is not writable."""
    from pytest_bandwidth.features.counters.evidence import check_options

    check_options(config, identity)


@hookimpl
def pytest_bandwidth_judged(config: pytest.Config, test: JudgedTest, judged: dict[str, Judged]) -> None:
    """Count the bytes that DRAM moves for each measurement, judge by them, and profile REGRESSED measurements."""
    from pytest_bandwidth.features.counters.evidence import count_and_profile

    count_and_profile(config, test, judged)


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the columns for what the profiler counted."""
    from pytest_bandwidth.features.counters.dram_traffic import COLUMNS

    return list(COLUMNS)
