"""Compare the devices of a run: which are of one model, and which of those is not like the others.

A device's offset is the median, over its tests, of ln(GB/s ÷ the devices' median for that test). The offsets' own
median and median absolute deviation (MAD) describe their middle and their spread; both hold while fewer than
half of the devices are off. A device is an outlier if it is further from that median than the tolerance, and further
than t₀.₉₉₉,ₙ₊₄ · s, where s = 1.4826 · MAD, but no less than the prior between-process spread: some devices agree by
chance. With two devices nothing says which of them is off.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.judging.stored import GATE_LEVEL, PRIOR_DEGREES, prior_spread
from pytest_bandwidth.outcomes.outcome import Outcome

OUTLIER = "outlier"
DIFFER = "devices-differ"
# Of three, the two that agree say who is alone.
FEWEST_DEVICES = 3
# MAD of a normal distribution × this = its standard deviation: 1 ÷ the normal's upper quartile.
NORMAL_MAD = 1.4826
# Of two devices neither is known to be off: the level at which they are said to differ.
DIFFERENCE_LEVEL = 0.99


@dataclass(frozen=True, slots=True)
class Member:
    """Name one of several devices, with what it achieved: GB/s by the test's key."""

    name: str
    gbps: Mapping[str, float]


def model_of(device: Mapping[str, Any]) -> tuple[str, str, int | None]:
    """Return what devices have in common that share a baseline file: kind, name, memory in GiB.

    Device: a document's.
    """
    return device["kind"], str(device["name"]), device.get("memory_gib")


def unlike_others(
    devices: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    outcomes: Sequence[Sequence[Outcome]],
    tolerance: float,
) -> list[Finding | None]:
    """Find for each device of a run whether it is unlike the others of its model, by all valid figures.

    names: as sentences name the devices. tolerance: the difference that matters, a fraction.
    """
    members = [
        Member(name, {o.key: o.gbps for o in measured if o.gbps and o.is_valid})
        for name, measured in zip(names, outcomes, strict=True)
    ]
    models = [model_of(device) for device in devices]
    found: list[Finding | None] = [None] * len(devices)
    for model in dict.fromkeys(models):
        places = [i for i, other in enumerate(models) if other == model]
        prior = prior_spread("gbps", on_host=devices[places[0]]["timed_on"] == "host")
        for i, finding in zip(places, findings_of([members[i] for i in places], tolerance, prior), strict=True):
            found[i] = finding
    return found


def findings_of(members: Sequence[Member], tolerance: float, prior: float) -> list[Finding | None]:
    """Say of each device of one model how it is unlike the others; None where it is like them.

    tolerance: the difference that matters, a fraction; prior: standard deviation of ln(GB/s) that processes on one
    device show, the least that is assumed among devices.
    """
    if len(members) == 2:
        finding = _difference(members[0], members[1], tolerance, prior)
        return [finding, finding]
    offsets = _offsets(members)
    known = [offset for offset in offsets if offset is not None]
    if len(known) < FEWEST_DEVICES:
        return [None] * len(members)
    centre = median(known)
    spread = max(NORMAL_MAD * median(abs(offset - centre) for offset in known), prior)
    noise = t_quantile(GATE_LEVEL, len(known) - 1 + PRIOR_DEGREES) * spread
    found: list[Finding | None] = []
    for member, offset in zip(members, offsets, strict=True):
        if offset is None or abs(offset - centre) <= max(log_of_drop(tolerance), noise):
            found.append(None)
            continue
        spread_explains = abs(drop_of_log(math.copysign(noise, centre - offset)))
        text = (
            f"{member.name} is {_compared(offset - centre)} than the median of {len(known)} devices of its model: "
            f"{format_percent(tolerance, 1)} matters, and their spread explains {format_percent(spread_explains, 1)}. "
            "Compare its clocks, temperature and errors with the others'"
        )
        found.append(Finding(OUTLIER, text))
    return found


def _offsets(members: Sequence[Member]) -> list[float | None]:
    """Return each device's offset; None for one that shares no test with two others."""
    by_key: dict[str, list[float]] = {}
    for member in members:
        for key, gbps in member.gbps.items():
            by_key.setdefault(key, []).append(gbps)
    middle = {key: median(values) for key, values in by_key.items() if len(values) >= FEWEST_DEVICES}
    offsets: list[float | None] = []
    for member in members:
        logs = [math.log(gbps / middle[key]) for key, gbps in member.gbps.items() if key in middle]
        offsets.append(median(logs) if logs else None)
    return offsets


def _difference(first: Member, second: Member, tolerance: float, prior: float) -> Finding | None:
    logs = [math.log(gbps / second.gbps[key]) for key, gbps in first.gbps.items() if key in second.gbps]
    if not logs:
        return None
    distance = median(logs)
    # Both devices have a process's noise.
    noise = t_quantile(DIFFERENCE_LEVEL, 1 + PRIOR_DEGREES) * prior * math.sqrt(2.0)
    # The same upwards as downwards: which device comes first is chance.
    if abs(distance) <= max(log_of_drop(tolerance), noise):
        return None
    return Finding(
        DIFFER,
        f"{first.name} is {_compared(distance)} than {second.name}, of the same model, "
        f"{format_percent(tolerance, 1)} matters: a third device would tell which of them is off",
    )


def _compared(distance: float) -> str:
    return f"{format_percent(abs(drop_of_log(-distance)), 1)} {'slower' if distance < 0 else 'faster'}"
