"""Declare the HTML summary's option. Loaded in every pytest run, so it imports nothing of weight."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.domain.values import path
from pytest_bandwidth.options.settings import option


@dataclass(frozen=True)
class HtmlOptions:
    """Hold the option."""

    html: Path | None = option("FILE", "write a page with tables and charts", path, writes=True)
