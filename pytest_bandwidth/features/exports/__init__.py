"""Render saved runs for the trackers that teams have, a module for each form, and a run for code scanning."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.hooks import Command, hookimpl
from pytest_bandwidth.options.settings import Options, option

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
    return [Format("sarif", _sarif, begins, "bandwidth_sarif", further_endings=(".json",))]


def _sarif(document: Mapping[str, Any]) -> str:
    from pytest_bandwidth.features.exports.sarif import render_sarif

    return render_sarif(document)
