"""Know whether this run measures one card of a fleet, and where it puts what it hands to the fleet's caller.

`cli/fleet/on_node.py` starts such a run and hands the places over (`handed_over`). The run writes its document there
and nothing else: the caller alone writes baselines, histories and reports.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.options.handed_over import FLEET_VARIABLE
from pytest_bandwidth.options.own_process import told

# In what xdist tells its workers.
OF_WORKER = "bandwidth_card"


@dataclass(frozen=True, slots=True)
class CardPlaces:
    """Hold a card's files.

    document: the run's JSON document. evidence: what an update further needs. baseline: a copy of the caller's, which
    the run may write to; None where the caller has none. current: the test that runs; None where nobody asks.
    """

    document: Path
    evidence: Path
    baseline: Path | None
    current: Path | None = None


class CurrentTest:
    """Note, as a plugin of pytest, the test that runs, for the caller's table."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        # A table is not worth a failed test: the disk may be full.
        with suppress(OSError):
            self._file.write_text(nodeid, encoding="utf-8", errors="replace")


def plain_places(config: pytest.Config) -> dict[str, Any] | None:
    """Return the places by name, `document`, `evidence`, `baseline` or None, and `current`; None without a fleet."""
    places: dict[str, Any] | None = getattr(config, "workerinput", {}).get(OF_WORKER)
    return told(config, FLEET_VARIABLE) or places


def card_places(config: pytest.Config) -> CardPlaces | None:
    """Return the places that this run was given; None where it is no card of a fleet."""
    names = plain_places(config)
    if names is None:
        return None
    baseline, current = names["baseline"], names.get("current")
    return CardPlaces(
        Path(names["document"]),
        Path(names["evidence"]),
        None if baseline is None else Path(baseline),
        None if current is None else Path(current),
    )
