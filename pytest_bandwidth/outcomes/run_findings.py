"""Say what is to be told of a whole run: its device changed, tests failed unjudged, entries went unmeasured."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median

from pytest_bandwidth.domain.address import DOCUMENTATION
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.causes import changed_facts
from pytest_bandwidth.outcomes.outcome import Outcome

DEVICE_LOSS = "device-loss"
UNJUDGED = "failed-unjudged"
# Between a test's node id and what it failed with.
FAILED_BEFORE = " failed before it was judged: "
# What ends the text of the plugin's own errors, with the anchor.
HELP = re.compile(rf" \(help: {re.escape(DOCUMENTATION)}/troubleshooting\.html#([\w-]+)\)$")
HIDDEN = "failure-hidden"
FAILED = "failed-otherwise"
NOT_MEASURED = "not-measured"
ABSENT = "absent"
ONE_CAUSE = "one-cause"
MOVED = "moved"
# Each says of entries of the baseline that they were not measured.
OF_UNMEASURED = (NOT_MEASURED, ABSENT, MOVED)
# What to say of a hash that changed, by its name; the first that did is told.
_CHANGED = {
    "ptx": "the same kernel's code changed",
    "function": "the same function's code changed",
    "sass": "the same kernel became other machine code",
}
HASH_SHOWN = 8
NAMED_AT_MOST = 5
# Of what a test failed with, so much is kept.
SAID_AT_MOST = 400


@dataclass(frozen=True, slots=True)
class Unmeasurable:
    """Hold the entries of a baseline for which no test is going to run.

    not_measured: why, by key, of those whose test may exist. gone: keys of those whose test does not. moved: a test
    without an entry, and the entry that names the same test from another folder; None where there is no such.
    elsewhere: by key, the other rootdir whose runs measure the entry. exempt: how many of entries that a person left
    out on the command line.
    """

    not_measured: dict[str, str] = field(default_factory=dict)
    gone: tuple[str, ...] = ()
    moved: tuple[str, str] | None = None
    elsewhere: dict[str, str] = field(default_factory=dict)
    exempt: int = 0


@dataclass(frozen=True, slots=True)
class DeviceLoss:
    """Hold what tests lost whose code lost nothing: the device, its driver, libraries or neighbours did.

    median, least, most: of ln(GB/s of the baseline ÷ GB/s now) over those tests. changes: versions and settings that
    differ from the baseline's newest runs in most of them.
    """

    median: float
    least: float
    most: float
    tests: int
    changes: tuple[str, ...]


# Of fewer tests a median says little about a device.
FEWEST_FOR_DEVICE = 3


def device_loss(outcomes: Sequence[Outcome], facts: Mapping[str, object]) -> DeviceLoss | None:
    """Return what unchanged tests lost against the baseline; None where fewer than three can say.

    facts: the device's, of which the baseline's runs record some.
    """
    lost: list[float] = []
    changes: Counter[str] = Counter()
    for outcome in outcomes:
        then = (outcome.baseline or {}).get("gbps")
        # Its code is what it was, or was shown to have lost nothing next to its old code.
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
    """Hold a change of code that several regressions run. text: what changed, and how many they are."""

    outcomes: tuple[Outcome, ...]
    text: str

    def finding(self) -> Finding:
        """Return it as the document holds it."""
        return Finding(ONE_CAUSE, f"{self.text}: {listed([one.key for one in self.outcomes], NAMED_AT_MOST)}")


def shared_causes(outcomes: Sequence[Outcome]) -> list[SharedCause]:
    """Find kernels whose changed code several REGRESSED measurements run, the most of them first."""
    regressed = [outcome for outcome in outcomes if outcome.status == Status.REGRESSED.value]
    by_change: dict[tuple[str, str, str], list[Outcome]] = {}
    for outcome in regressed:
        before = (outcome.baseline or {}).get("code")
        if not isinstance(before, Mapping):
            continue
        old, new = identity_of_plain(before).known(), identity_of_plain(outcome.code_identity).known()
        # A change of PTX is one of machine code as well; another launch alone is the test's, not the kernel's.
        changed = [name for name in _CHANGED if name in old and name in new and old[name] != new[name]]
        if changed:
            by_change.setdefault((changed[0], old[changed[0]], new[changed[0]]), []).append(outcome)
    found = []
    for (name, then, now), alike in by_change.items():
        what = f"{_CHANGED[name]} ({then[:HASH_SHOWN]} → {now[:HASH_SHOWN]})"
        text = f"{what}, the likely cause of {len(alike)} of {len(regressed)} REGRESSED"
        found += [SharedCause(tuple(alike), text)] if len(alike) > 1 else []
    return sorted(found, key=lambda cause: -len(cause.outcomes))


def unjudged_finding(nodeid: str, said: str) -> dict[str, str]:
    """Name a test that failed before it was judged: without it a report would look as if all were well.

    said: what the test failed with. Its first line counts, and the next where a colon announces it, as before what a
    compiler said; a link to help stays. The finding is as the document holds it.
    """
    said = said.strip()
    link = found[0] if (found := HELP.search(said)) else ""
    first, *others = said.removesuffix(link).splitlines() or [""]
    if first.endswith(":") and others:
        first = f"{first} {others[0].strip()}"
    return {"code": UNJUDGED, "text": f"{nodeid}{FAILED_BEFORE}{first[:SAID_AT_MOST]}{link}"}


def failed_finding(nodeid: str) -> dict[str, str]:
    """Name a test that failed and that no verdict fails: a report of verdicts alone would look as if all were well."""
    return {"code": FAILED, "text": f"{nodeid} failed for another reason than bandwidth"}


def hidden_finding(nodeid: str, said: str) -> dict[str, str]:
    """Name a test that failed and was not reported as failed, as the document holds it. said: what it failed by."""
    first = said.strip().partition("\n")[0][:SAID_AT_MOST]
    return {
        "code": HIDDEN,
        "text": f"{nodeid} failed by {first}, and was not reported as failed: look for what changes reports or "
        "outcomes (a conftest.py, a plugin, the test)",
    }


def not_measured_finding(key: str, why: str) -> dict[str, str]:
    """Name an entry of the baseline whose test ran and measured nothing for it, as the document holds it."""
    return {"code": NOT_MEASURED, "text": f"{key} is in the baseline and was not measured: {why[:SAID_AT_MOST]}"}
