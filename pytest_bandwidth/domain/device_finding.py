"""One finding for a run whose device changed, instead of a row's reason for every test that it spoilt."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_bandwidth.domain.measurement import Finding
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.verdict import Status

DEVICE_CHANGED = "device-changed"


def device_finding(outcomes: Sequence[Outcome]) -> Finding | None:
    """What the first DEVICE verdict says, and of how many measurements that was said; None without one."""
    spoilt = [outcome for outcome in outcomes if outcome.status == Status.DEVICE.value]
    if not spoilt:
        return None
    share = f"{len(spoilt)} of {counted(len(outcomes), 'measurement')}"
    return Finding(DEVICE_CHANGED, f"{share} could not be judged, since the device changed: {spoilt[0].reason}")
