"""Say what is to be told of a whole run: its device changed, tests failed unjudged, entries went unmeasured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_bandwidth.domain.measurement import Finding
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.verdict import Status

DEVICE_CHANGED = "device-changed"
UNJUDGED = "failed-unjudged"
NOT_MEASURED = "not-measured"
ABSENT = "absent"
MOVED = "moved"
# Each says of entries of the baseline that they were not measured.
OF_UNMEASURED = (NOT_MEASURED, ABSENT, MOVED)
# Of what a test failed with, so much is kept.
SAID_AT_MOST = 400


@dataclass(frozen=True, slots=True)
class Unmeasurable:
    """Hold the entries of a baseline for which no test is going to run.

    not_measured: why, by key, of those whose test may exist. gone: keys of those whose test does not. moved: a test
    without an entry, and the entry that names the same test from another folder; None where there is no such.
    elsewhere: by key, the other rootdir whose runs measure the entry.
    """

    not_measured: dict[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    moved: tuple[str, str] | None = None
    elsewhere: dict[str, str] = field(default_factory=dict)


def device_finding(outcomes: Sequence[Outcome]) -> Finding | None:
    """Say once why measurements are DEVICE, and how many are; None where none is."""
    spoilt = [outcome for outcome in outcomes if outcome.status == Status.DEVICE.value]
    if not spoilt:
        return None
    share = f"{len(spoilt)} of {counted(len(outcomes), 'measurement')}"
    return Finding(DEVICE_CHANGED, f"{share} could not be judged, since the device changed: {spoilt[0].reason}")


def unjudged_finding(nodeid: str, said: str) -> dict[str, str]:
    """Name a test that failed before it was judged: without it a report would look as if all were well.

    said: what the test failed with; its first line counts. The finding is as the document holds it.
    """
    first = said.strip().partition("\n")[0][:SAID_AT_MOST]
    return {"code": UNJUDGED, "text": f"{nodeid} failed before it was judged: {first}"}


def not_measured_finding(key: str, why: str) -> dict[str, str]:
    """Name an entry of the baseline whose test ran and measured nothing for it, as the document holds it."""
    return {"code": NOT_MEASURED, "text": f"{key} is in the baseline and was not measured: {why[:SAID_AT_MOST]}"}
