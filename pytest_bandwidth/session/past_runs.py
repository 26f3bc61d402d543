"""Ask the history how a baseline's tests scattered in the runs that it has."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.judging.judge import PastRuns
from pytest_bandwidth.session.user.settings import Settings

# A finding of this code says why the history told nothing.
HISTORY_UNREAD = "history-unread"


def past_runs(settings: Settings, folder: Path, identity: DeviceIdentity, keys: Collection[str]) -> PastRuns:
    """Return how tests scattered on devices of that model; empty where there is no history, or none to be had at once.

    folder: what a relative path starts from. keys: the tests' in the baseline.
    A bucket is not read: no test waits for a network. Raises UsageError for a folder that holds no history; OSError.
    """
    place = settings.history
    if place is None or isinstance(place, Address) or identity.counts_only:
        return {}
    if not any((folder / place).glob("*.parquet")):
        return {}
    from pytest_bandwidth.storage.history import ask, noise_in  # kept out of start-up

    return ask(folder / place, lambda history: noise_in(history, identity.kind, identity.name, keys))
