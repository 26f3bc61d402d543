"""Find what concerns a whole run: its devices, tests that failed unjudged, entries that were not measured."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.text import DOCUMENTATION, listed
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.causes import changed_facts
from pytest_bandwidth.judging.stored import GATE_LEVEL, PRIOR_DEGREES, prior_spread
from pytest_bandwidth.outcomes.outcome import Outcome

DEVICE_LOSS = "device-loss"
UNJUDGED = "failed-unjudged"
# Separates a test's node id from the text of its failure.
FAILED_BEFORE = " failed before it was judged: "
# The end of the text of the plugin's own errors, with the anchor of the help.
HELP = re.compile(rf" \(help: {re.escape(DOCUMENTATION)}/troubleshooting\.html#([\w-]+)\)$")
HIDDEN = "failure-hidden"
FAILED = "failed-otherwise"
NOT_MEASURED = "not-measured"
ABSENT = "absent"
ONE_CAUSE = "one-cause"
MOVED = "moved"
# Codes of findings on entries of the baseline that were not measured.
OF_UNMEASURED = (NOT_MEASURED, ABSENT, MOVED)
# The words for a changed hash, by its name; reports name the first that changed.
_CHANGED = {
    "ptx": "the same kernel's code changed",
    "function": "the same function's code changed",
    "sass": "the same kernel's machine code changed",
}
HASH_SHOWN = 8
NAMED_AT_MOST = 5
# Characters that are kept of a failure's text, or of a reason.
KEPT_AT_MOST = 400


@dataclass(frozen=True, slots=True)
class Unmeasurable:
    """Hold the entries of a baseline for which no test is going to run.

    not_measured: why, by key, for entries whose test may exist. gone: keys of entries whose test does not exist. moved:
    a test without an entry, and the entry that names the same test from another folder; None without such a pair.
    elsewhere: by key, the other rootdir whose runs measure the entry. exempt: the number of entries that the user left
    out on the command line.
    """

    not_measured: dict[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    moved: tuple[str, str] | None = None
    elsewhere: dict[str, str] = field(default_factory=dict)
    exempt: int = 0


@dataclass(frozen=True, slots=True)
class DeviceLoss:
    """Hold the loss of tests whose code lost nothing: the device, its driver, libraries or other processes caused it.

    median, least, most: of ln(GB/s of the baseline ÷ GB/s now) over those tests. changes: versions and settings that
    differ from the baseline's newest runs in most of them.
    """

    median: float
    least: float
    most: float
    tests: int
    changes: tuple[str, ...]


# The median of fewer tests is weak evidence on a device.
FEWEST_FOR_DEVICE = 3


def device_loss(outcomes: Sequence[Outcome], facts: Mapping[str, object]) -> DeviceLoss | None:
    """Return what unchanged tests lost against the baseline; None for fewer than three such tests.

    facts: the device's; the baseline's runs record some of them.
    """
    lost: list[float] = []
    changes: Counter[str] = Counter()
    for outcome in outcomes:
        then = (outcome.baseline or {}).get("gbps")
        # Its code is unchanged, or lost nothing in a comparison with its old code.
        cleared = outcome.reason_code in (Rule.OLD_KERNEL, Rule.PAIRS) and outcome.status == Status.OK.value
        comparable = outcome.is_valid and not outcome.counts and (outcome.reason_code == Rule.CODE_UNCHANGED or cleared)
        if not comparable or not outcome.gbps or not isinstance(then, (int, float)) or then <= 0:
            continue
        lost.append(math.log(then / outcome.gbps))
        runs = (outcome.baseline or {}).get("runs") or ()
        recorded = runs[-1].get("extra", {}) if runs else {}
        changes.update(changed_facts(recorded, {**facts, **outcome.software}).values())
    if len(lost) < FEWEST_FOR_DEVICE:
        return None
    common = tuple(text for text, count in changes.items() if 2 * count > len(lost))
    return DeviceLoss(median(lost), min(lost), max(lost), len(lost), common)


@dataclass(frozen=True, slots=True)
class SharedCause:
    """Hold a change of code that several regressions have in common. text: what changed, and their number."""

    outcomes: tuple[Outcome, ...]
    text: str

    def finding(self) -> Finding:
        """Return the finding of the document."""
        return Finding(ONE_CAUSE, f"{self.text}: {listed([one.key for one in self.outcomes], NAMED_AT_MOST)}")


def shared_causes(outcomes: Sequence[Outcome]) -> list[SharedCause]:
    """Find kernels whose changed code several REGRESSED measurements run, the most frequent first."""
    regressed = [outcome for outcome in outcomes if outcome.status == Status.REGRESSED.value]
    by_change: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in regressed:
        before = (outcome.baseline or {}).get("code")
        if not isinstance(before, Mapping):
            continue
        old, new = identity_of_plain(before).known(), identity_of_plain(outcome.code_identity).known()
        # A change of PTX also changes machine code. A change of launch alone is the test's, not the kernel's.
        changed = [name for name in _CHANGED if name in old and name in new and old[name] != new[name]]
        if changed:
            by_change.setdefault((changed[0], old[changed[0]], new[changed[0]]), []).append(outcome)
    found = []
    for (name, then, now), alike in by_change.items():
        what = f"{_CHANGED[name]} ({then[:HASH_SHOWN]} → {now[:HASH_SHOWN]})"
        text = f"{what}, the likely cause of {len(alike)} of {len(regressed)} REGRESSED"
        found += [SharedCause(tuple(alike), text)] if len(alike) > 1 else []
    return sorted(found, key=lambda cause: -len(cause.outcomes))


def unjudged_finding(nodeid: str, failure: str) -> dict[str, str]:
    """Return the document's finding on a test that failed before it was judged, which reports would otherwise miss.

    failure: the text of the failure. Its first line is kept, a second line after a colon (as before a compiler's
    output), and a link to help.
    """
    failure = failure.strip()
    link = found[0] if (found := HELP.search(failure)) else ""
    first, *others = failure.removesuffix(link).splitlines() or [""]
    if first.endswith(":") and others:
        first = f"{first} {others[0].strip()}"
    return {"code": UNJUDGED, "text": f"{nodeid}{FAILED_BEFORE}{first[:KEPT_AT_MOST]}{link}"}


def failed_finding(nodeid: str) -> dict[str, str]:
    """Return the document's finding on a test that failed, but not by its verdict. Reports would otherwise miss it."""
    return {"code": FAILED, "text": f"{nodeid} failed for another reason than bandwidth"}


def hidden_finding(nodeid: str, failure: str) -> dict[str, str]:
    """Return the document's finding on a failed test that was not reported as failed. failure: its error message."""
    first = failure.strip().partition("\n")[0][:KEPT_AT_MOST]
    return {
        "code": HIDDEN,
        "text": f"{nodeid} failed by {first}, and was not reported as failed: look for what changes reports or "
        "outcomes (a conftest.py, a plugin, the test)",
    }


def not_measured_finding(key: str, why: str) -> dict[str, str]:
    """Return the document's finding on an entry of the baseline whose test ran and did not measure it."""
    return {"code": NOT_MEASURED, "text": f"{key} is in the baseline and was not measured: {why[:KEPT_AT_MOST]}"}


# ---- which of a run's devices are of one model, and which of those is not like the others ----------------------------

# A device's offset is the median, over its tests, of ln(GB/s ÷ the devices' median for that test). The offsets' own
# median and median absolute deviation (MAD) describe their middle and their spread; both hold while fewer than half of
# the devices are off. A device is an outlier if it is further from that median than the tolerance, and further than
# t₀.₉₉₉,ₙ₊₄ · s. Here s = 1.4826 · MAD, but no less than the prior between-process spread, since some devices agree by
# chance. With two devices, nothing shows which of them is off.

OUTLIER = "outlier"
DIFFER = "devices-differ"
# Of three devices, the two that agree show which one differs.
FEWEST_DEVICES = 3
# MAD of a normal distribution × this = its standard deviation: 1 ÷ the normal's upper quartile.
NORMAL_MAD = 1.4826
# Of two devices, neither is known to be off: the level at which a finding names their difference.
DIFFERENCE_LEVEL = 0.99


@dataclass(frozen=True, slots=True)
class Member:
    """Name one of several devices, with its bandwidths: GB/s by the test's key."""

    name: str
    gbps: Mapping[str, float]


def model_of(device: Mapping[str, Any]) -> tuple[str, str, int | None]:
    """Return what devices that share a baseline file have in common: kind, name, memory in GiB.

    device: a document's.
    """
    return device["kind"], str(device["name"]), device.get("memory_gib")


def unlike_others(
    devices: Sequence[Mapping[str, Any]],
    names: Sequence[str],
    outcomes: Sequence[Sequence[Outcome]],
    tolerance: float,
) -> list[Finding | None]:
    """Find for each device of a run whether it is unlike the others of its model, by all valid figures.

    names: the names of the devices in sentences. tolerance: the difference that matters, a fraction.
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
    """Find for each device of one model whether it is unlike the others; None where it is like them.

    tolerance: the difference that matters, a fraction; prior: standard deviation of ln(GB/s) between processes on one
    device, which is the least that is assumed between devices.
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
            f"{member.name} is {_compared(offset - centre)} than the median of {len(known)} devices of its model "
            f"(limit {format_percent(tolerance, 1)}; their spread explains {format_percent(spread_explains, 1)}). "
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
    # Each device has the noise of a process.
    noise = t_quantile(DIFFERENCE_LEVEL, 1 + PRIOR_DEGREES) * prior * math.sqrt(2.0)
    # The order of the devices is chance, so one limit holds for both directions.
    if abs(distance) <= max(log_of_drop(tolerance), noise):
        return None
    return Finding(
        DIFFER,
        f"{first.name} is {_compared(distance)} than {second.name}, of the same model (limit "
        f"{format_percent(tolerance, 1)}): measure a third device to find which of them is wrong",
    )


def _compared(distance: float) -> str:
    return f"{format_percent(abs(drop_of_log(-distance)), 1)} {'slower' if distance < 0 else 'faster'}"
