"""Plug hardware counters in: the columns."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    from pytest_bandwidth.hooks import Column


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the figures and facts of a result that it brings."""
    from pytest_bandwidth.features.counters.columns import COLUMNS

    return list(COLUMNS)
