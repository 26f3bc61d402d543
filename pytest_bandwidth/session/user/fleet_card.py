"""Know whether this run measures one card of a fleet, and where it puts what it hands to the fleet's caller.

`cli/fleet/on_node.py` starts such a run and names the places in the environment. The run writes its document there and
nothing else: the caller alone writes baselines, histories and reports.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

# JSON: `document`, `evidence`, `baseline` or null, and `current`.
FLEET_VARIABLE = "PYTEST_BANDWIDTH_FLEET"


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


def card_places(environment: Mapping[str, str] = os.environ) -> CardPlaces | None:
    """Return the places that this run was given; None where it is no card of a fleet."""
    told = environment.get(FLEET_VARIABLE)
    if not told:
        return None
    names = json.loads(told)
    baseline, current = names["baseline"], names.get("current")
    return CardPlaces(
        Path(names["document"]),
        Path(names["evidence"]),
        None if baseline is None else Path(baseline),
        None if current is None else Path(current),
    )
