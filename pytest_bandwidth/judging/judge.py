"""Judge the measurements of one test: gather evidence, as long as there is time, until each can be decided."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.units import format_seconds, log_of_drop
from pytest_bandwidth.domain.verdict import Decision
from pytest_bandwidth.judging.decide import decide
from pytest_bandwidth.judging.evidence import Ask, Evidence
from pytest_bandwidth.judging.limits import Limits
from pytest_bandwidth.judging.stored import SLOW_SHARE

# The share of a measurement's time budget for the rounds of a new process. A test waits for two or three processes, and
# their median is steadier than each of them (benchmarks/gate.py has the seconds, and the drops that are found).
ROUNDS_SHARE = 0.75
# The largest such share for the two processes of a pair that sample alternately; most need less. The result of a pair
# depends more on the memory pages of its processes than on the number of rounds: five short pairs are better evidence
# than three long ones.
ALTERNATE_SHARE = 0.5
# Tests are judged one by one: a test that looks fast leaves so much of the time to later ones that may look slow.
SHARE_OF_UNSUSPICIOUS = 0.5

Decider = Callable[[Evidence], Decision | Ask]
# Returns more evidence, by key, as long as the rule asks for it; without more evidence, the reason in `why_not`.
Resolver = Callable[[Mapping[str, Evidence], Decider], Mapping[str, Evidence]]


@dataclass(frozen=True, slots=True)
class FreshRow:
    """Hold the figures of one measurement in one new process, and its cost.

    wall_seconds: from the start of the measurement to its end.
    """

    figures: Metrics
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Judged:
    """Hold a measurement, the entry it was compared with, the decision, and the figures of new processes.

    profile: the path of a profiler's report on it; None without a report.
    old_resources: the compiled resources of the old code that ran next to it; None where no old code ran.
    old_sectors: the sectors that a block asks for in that code, `then`, and in the new one, `now`; None if not counted.
    """

    measurement: Measurement
    entry: Entry | None
    decision: Decision
    fresh: tuple[FreshRow, ...] = ()
    profile: str | None = None
    old_resources: Mapping[str, int] | None = None
    old_sectors: Mapping[str, int] | None = None


def judge(
    evidence: Mapping[str, Evidence],
    limits: Limits,
    old_code: Sequence[Resolver] = (),
    processes: Sequence[Resolver] = (),
) -> dict[str, Judged]:
    """Decide each measurement, by key; resolvers are called in order for old code, or for new processes.

    Raises UsageError for a floor that is a share of an unknown peak.
    """
    rule: Decider = partial(decide, limits=limits)
    known = dict(evidence)
    decided: dict[str, Decision] = {}
    while True:
        ruled = {key: rule(one) for key, one in known.items() if key not in decided}
        decided |= {key: one for key, one in ruled.items() if isinstance(one, Decision)}
        asks = {one for one in ruled.values() if isinstance(one, Ask)}
        if not asks:
            return {key: Judged(one.measurement, one.entry, decided[key]) for key, one in known.items()}
        # New processes last: a decision by old code does not need them.
        ask, resolvers = (Ask.OLD_CODE, old_code) if Ask.OLD_CODE in asks else (Ask.PROCESSES, processes)
        asking = {key: known[key] for key, one in ruled.items() if one is ask}
        for resolver in resolvers:
            if left := {key: one for key, one in asking.items() if rule(one) is ask}:
                asking |= resolver(left, rule)
        known |= {key: one.without(ask) if rule(one) is ask else one for key, one in asking.items()}


@dataclass(slots=True)
class OldCodeTime:
    """Limit the seconds that a run spends on old code for all tests. Only suspicious tests may use them all."""

    limit: float
    spent: float = 0.0

    def bounded(self, resolver: Resolver) -> Resolver:
        """Return the resolver with a limit of time: afterwards it only adds the reason to `why_not`."""

        def gather(asking: Mapping[str, Evidence], rule: Decider) -> Mapping[str, Evidence]:
            allowed = {}
            for key, one in asking.items():
                # A test without stored figures, or with a loss by them, may use all of the time.
                reference, observed, limit = one.stored, one.observed, self.limit
                slow = SLOW_SHARE * log_of_drop(one.tolerance)
                if reference is not None and observed is not None and reference.drop(observed) <= slow:
                    limit *= SHARE_OF_UNSUSPICIOUS
                if self.spent < limit:
                    allowed[key] = one
            why = f"the run's {format_seconds(self.limit)} for old code are used up (raise bandwidth_settle_time)"
            refused = {
                key: replace(one, why_not=tuple(dict.fromkeys((*one.why_not, why))))
                for key, one in asking.items()
                if key not in allowed
            }
            begun = time.monotonic()
            try:
                return {**refused, **(resolver(allowed, rule) if allowed else {})}
            finally:
                self.spent += time.monotonic() - begun

        return gather
