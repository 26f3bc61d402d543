"""Say what a reporter is, which a feature or a user adds to a run (`pytest_bandwidth_reporters`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from pytest_bandwidth.outcomes.outcome import Outcome


class Reporter(Protocol):
    """Make files of a run's results."""

    def check(self) -> None:
        """Raise UsageError where it could not write, before any test runs."""

    def write(self, document: Mapping[str, Any], outcomes: Sequence[Outcome], suffix: str | None) -> list[str]:
        """Write the results of one device; return names of what was written. Raises BandwidthError.

        document: as `--bandwidth-json` writes it. suffix: a part for the names of files that tells the run's devices
        apart; None where there is one device.
        """
