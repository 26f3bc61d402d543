"""Append a run of pytest to the history that `--bandwidth-history` names."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.features.history.store import Bucket, Place, append
from pytest_bandwidth.options.options import places_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.session.publishing.run_files import check_writable


class HistoryReporter:
    """Append each device's results. place: the folder or bucket, as the option names it."""

    def __init__(self, config: pytest.Config, place: Place) -> None:
        self._place, self._given_by = place, places_of(config)["history"]
        self._at = config.invocation_params.dir / place

    def check(self) -> None:
        """Raise UsageError where the folder cannot be written, or the bucket not listed."""
        if not isinstance(self._at, Address):
            check_writable(self._given_by, self._at, a_file=False)
            return
        try:
            Bucket(self._at).names()
        except UsageError as error:
            raise UsageError(f"{self._given_by}: {error}") from None

    def write(self, document: Mapping[str, Any], outcomes: Sequence[Outcome], suffix: str | None) -> list[str]:
        """Append one device's results, and return the name of their file; nothing where nothing was measured."""
        del suffix  # the run's id holds it
        if not outcomes:
            return []
        try:
            return [str(self._place / append(self._at, document, outcomes).name)]
        except (OSError, BandwidthError) as error:
            raise UsageError(f"{self._place} was not appended to: {error}") from None
