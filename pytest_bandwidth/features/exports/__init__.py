"""Render saved runs for the trackers that teams have, and a run for code scanning."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.hooks import Command, hookimpl
from pytest_bandwidth.options.settings import Options, option
from pytest_bandwidth.registry import later

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Format

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"


class SarifOptions(Options):
    """Hold the option."""

    sarif: Path | None = option("FILE", "write failures for code scanning, as SARIF", path, writes=True)


@hookimpl
def pytest_bandwidth_options() -> type:
    """Add `--bandwidth-sarif`."""
    return SarifOptions


@hookimpl
def pytest_bandwidth_commands() -> list[Command]:
    """Add `pytest-bandwidth export`."""
    module = "pytest_bandwidth.features.exports.forms"
    return [Command("export", "write saved runs for Bencher, Otava, OpenMetrics and others", module)]


@hookimpl
def pytest_bandwidth_formats() -> list[Format]:
    """Add SARIF."""
    from pytest_bandwidth.hooks import Format

    begins = rf'\s*\{{\s*"\$schema": "{re.escape(SARIF_SCHEMA)}"'
    render = later("features.exports.forms:render_sarif")
    return [Format("sarif", render, begins, "bandwidth_sarif", further_endings=(".json",))]
