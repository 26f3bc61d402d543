"""Choose what says the last word on a suspect: the best way to settle it that is at hand, in a fixed order.

Code that is the baseline's needs none of them (`same_code`); what none of them settles is left to fresh processes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.judging.confirmation import Case
from pytest_bandwidth.domain.judging.drop import moved
from pytest_bandwidth.domain.verdict import Status, Verdict

# What stored runs cannot tell.
UNSURE = (Status.INSUFFICIENT, Status.DEVICE)


@dataclass(frozen=True, slots=True)
class Suspect:
    """Hold a measurement that needs a last word, the baseline's entry, and the verdict of the first look."""

    case: Case
    entry: Entry
    first: Verdict


@dataclass(frozen=True, slots=True)
class LastWords:
    """Hold what suspects came to, by key.

    verdicts: of those that are settled. why_not: why others are not, in words. cleared: verdicts on code that lost
    nothing, of which fresh processes may have to say whether the device did. A way that does not concern a suspect
    names it in none.
    """

    verdicts: Mapping[str, Verdict] = field(default_factory=dict)
    why_not: Mapping[str, str] = field(default_factory=dict)
    cleared: Mapping[str, Verdict] = field(default_factory=dict)


# A way to settle suspects of one test: old code beside new in some manner.
Way = Callable[[Mapping[str, Suspect]], LastWords]


def settle(suspects: Mapping[str, Suspect], ways: Sequence[Way]) -> LastWords:
    """Ask each way, the best first, for the suspects that none before it has settled."""
    verdicts: dict[str, Verdict] = {}
    cleared: dict[str, Verdict] = {}
    why_not: dict[str, str] = {}
    for way in ways:
        left = {key: suspect for key, suspect in suspects.items() if key not in verdicts and key not in cleared}
        if not left:
            break
        said = way(left)
        for key in left:
            before = why_not.pop(key, None)
            here = said.why_not.get(key)
            why = "; ".join(filter(None, (before, here)))
            if key in said.verdicts:
                verdicts[key] = with_why(said.verdicts[key], why)
            elif key in said.cleared:
                cleared[key] = with_why(said.cleared[key], why)
            elif why:
                why_not[key] = why
    return LastWords(verdicts, why_not, cleared)


def with_why(verdict: Verdict, why: str | None) -> Verdict:
    """Return the verdict with the reason why no better way has settled it, if there is one."""
    return replace(verdict, reason=f"{verdict.reason}; {why}", why_not=why) if why else verdict


def after_first_look(first: Verdict, last: Verdict) -> Verdict:
    """Return which of the two stands: what was allowed at first stays so, unless something was lost after all.

    What stays so tells what was seen beside it; what does not, how far it is from the baseline, where nobody sees it.
    """
    if first.status in (Status.SUSPECT, Status.NO_BASELINE, *UNSURE):
        return last
    if last.status is Status.REGRESSED:
        return replace(last, reason=f"{moved(first, 'the baseline')} here, but {last.reason}")
    if last.status is Status.DEVICE:
        return last
    return replace(first, reason=f"{first.reason}; {last.reason}", why_not=last.why_not)
