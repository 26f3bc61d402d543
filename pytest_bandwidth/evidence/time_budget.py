"""Bound the time that a run spends on old code: the most suspicious tests may use all of it, others half."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.units import format_seconds, log_of_drop
from pytest_bandwidth.judging.evidence import Ask, Evidence
from pytest_bandwidth.judging.judge import Resolver, Rule
from pytest_bandwidth.judging.stored import SLOW_SHARE

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
