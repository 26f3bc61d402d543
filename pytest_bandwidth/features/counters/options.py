"""Declare the options of hardware counters. Loaded in every pytest run, so it imports nothing of weight."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain import values
from pytest_bandwidth.options.settings import option


@dataclass(frozen=True)
class CountersOptions:
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
