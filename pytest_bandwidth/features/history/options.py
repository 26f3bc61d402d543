"""Declare the history's option. Loaded in every pytest run, so it imports nothing of weight."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.options.settings import option

if TYPE_CHECKING:
    from pytest_bandwidth.domain.address import Address

MISSING = "the history needs DuckDB and ruptures: pip install 'pytest-bandwidth[history]'"


def _place(text: str) -> Path | Address:
    from pytest_bandwidth.domain.address import Address, is_address

    if text.startswith("memory://"):
        raise ValueError(f"found {text[:40]!r}, which ends with this process, expected a folder or a bucket")
    place = Address(text) if is_address(text) else path(text)
    if importlib.util.find_spec("duckdb") is None:
        raise ValueError(MISSING)
    return place


@dataclass(frozen=True)
class HistoryOptions:
    """Hold the option."""

    history: Path | Address | None = option(
        "PATH", "append the run to the history in this folder or bucket", _place, writes=True
    )
