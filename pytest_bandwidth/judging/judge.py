"""Judge the measurements of one test: gather evidence, as long as there is time, until each can be decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.units import format_seconds, log_of_drop
from pytest_bandwidth.domain.verdict import Decision
from pytest_bandwidth.judging.decide import decide
from pytest_bandwidth.judging.evidence import Ask, Evidence
from pytest_bandwidth.judging.limits import Limits
from pytest_bandwidth.judging.stored import SLOW_SHARE

# Of a measurement's time budget, for the rounds of a new process: a test waits for two or three of them, and their
# median is steadier than any (benchmarks/gate.py has the seconds, and what is found).
ROUNDS_SHARE = 0.75
# The same of the two processes of a pair that sample alternately, at most: most have enough before. What a pair says
# depends on the pages that its processes were given more than on many rounds: five short pairs say more than three
# long ones.
ALTERNATE_SHARE = 0.5

Rule = Callable[[Evidence], Decision | Ask]


class Resolver(Protocol):
    """Get one kind of evidence for measurements that need it."""

    @property
    def answers(self) -> Ask: ...

    def gather(self, asking: Mapping[str, Evidence], rule: Rule) -> Mapping[str, Evidence]:
        """Return more evidence, by key, as long as `rule` asks for it; a reason in `why_not` where there is none."""
        ...


@dataclass(frozen=True, slots=True)
class FreshRow:
    """Hold what one new process saw of one measurement, and what it cost.

    wall_seconds: from its start to measure until its end.
    """

    figures: Metrics
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """Hold a measurement, what it was compared with, the decision, and what new processes saw.

    profile: the path of a profiler's report on it; None where none was taken.
    old_resources: what the compiler gave the old code that ran next to it; None where none did.
    old_sectors: what a block asked for by that code, `then`, and by the new one, `now`; None where it is not counted.
    """

    measurement: Measurement
    entry: Entry | None
    decision: Decision
    fresh: tuple[FreshRow, ...] = ()
    profile: str | None = None
    old_resources: Mapping[str, int] | None = None
    old_sectors: Mapping[str, int] | None = None


def judge(evidence: Mapping[str, Evidence], limits: Limits, resolvers: Sequence[Resolver] = ()) -> dict[str, Judged]:
    """Decide each measurement, by key; resolvers are asked in order for what is missing.

    Raises UsageError for a floor that is a share of an unknown peak.
    """
    rule: Rule = partial(decide, limits=limits)
    known = dict(evidence)
    decided: dict[str, Decision] = {}
    while True:
        ruled = {key: rule(one) for key, one in known.items() if key not in decided}
        decided |= {key: one for key, one in ruled.items() if isinstance(one, Decision)}
        asks = {one for one in ruled.values() if isinstance(one, Ask)}
        if not asks:
            return {key: Judged(one.measurement, one.entry, decided[key]) for key, one in known.items()}
        # New processes last: what old code settles needs none.
        ask = Ask.OLD_CODE if Ask.OLD_CODE in asks else Ask.PROCESSES
        known |= _gathered({key: known[key] for key, one in ruled.items() if one is ask}, ask, rule, resolvers)


def _gathered(
    asking: Mapping[str, Evidence], ask: Ask, rule: Rule, resolvers: Sequence[Resolver]
) -> dict[str, Evidence]:
    """Return all evidence of one kind that resolvers have."""
    known = dict(asking)
    for resolver in resolvers:
        left = {key: one for key, one in known.items() if rule(one) is ask}
        if left and resolver.answers is ask:
            known |= resolver.gather(left, rule)
    return {key: one.without(ask) if rule(one) is ask else one for key, one in known.items()}


# Tests are judged one by one: what looks well leaves so much of the time to those that may come and look slow.
SHARE_OF_UNSUSPICIOUS = 0.5


@dataclass(slots=True)
class OldCodeTime:
    """Count the seconds that old code took in this run. limit: of all tests together."""

    limit: float
    spent: float = 0.0

    def allows(self, evidence: Evidence) -> bool:
        """Return whether there is time to compare this measurement with its old code."""
        return self.spent < self.limit * (1.0 if _is_suspicious(evidence) else SHARE_OF_UNSUSPICIOUS)


@dataclass(frozen=True, slots=True)
class Timed:
    """Ask another resolver as long as there is time."""

    resolver: Resolver
    time: OldCodeTime

    @property
    def answers(self) -> Ask:
        return self.resolver.answers

    def gather(self, asking: Mapping[str, Evidence], rule: Rule) -> Mapping[str, Evidence]:
        """Return what the resolver has for those that there is time for; say of the others that there is none."""
        allowed = {key: one for key, one in asking.items() if self.time.allows(one)}
        why = f"the run's {format_seconds(self.time.limit)} for old code are spent (bandwidth_settle_time)"
        refused = {
            key: replace(one, why_not=tuple(dict.fromkeys((*one.why_not, why))))
            for key, one in asking.items()
            if key not in allowed
        }
        if not allowed:
            return refused
        begun = time.monotonic()
        try:
            return {**refused, **self.resolver.gather(allowed, rule)}
        finally:
            self.time.spent += time.monotonic() - begun


def _is_suspicious(evidence: Evidence) -> bool:
    """Return whether stored figures are silent, or show a loss."""
    reference, figures = evidence.stored, evidence.figures
    observed = None if reference is None or figures is None else figures.of(reference.figure)
    if reference is None or observed is None:
        return True
    return reference.drop(observed) > SLOW_SHARE * log_of_drop(evidence.tolerance)
