"""Define the six verdicts, their effect on a test, and the numbers that a decision is based on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from types import MappingProxyType
from typing import Any

from pytest_bandwidth.domain.baseline import Metric


class Status(str, Enum):
    """List the verdicts in order of precedence."""

    REGRESSED = "REGRESSED"
    MISMATCH = "MISMATCH"
    UNDECIDED = "UNDECIDED"
    IMPROVED = "IMPROVED"
    OK = "OK"
    SAVED = "SAVED"

    def __str__(self) -> str:
        return self.value

    @property
    def always_fails(self) -> bool:
        return self in _FAILING

    @property
    def warns(self) -> bool:
        """Return whether the test could not be judged: it passes with a warning, or fails with ``strict``."""
        return self is _UNDECIDED

    def fails(self, *, strict: bool) -> bool:
        return self in _FAILING or (strict and self is _UNDECIDED)


# Looking a member up in its class takes a microsecond, and this happens often for every row.
_FAILING = (Status.REGRESSED, Status.MISMATCH)
_UNDECIDED = Status.UNDECIDED


class Rule:
    """Name the core's rules: the `reason_code` of reports. A floor's is ``floor:NAME``; features add their own."""

    WRITTEN = "written"
    LEFT_OUT = "left-out"
    CODE_UNCHANGED = "code-unchanged"
    OLD_KERNEL = "old-kernel"
    PAIRS = "pairs"
    STORED = "stored"
    NOT_REPRODUCED = "not-reproduced"
    FLOORS = "floors"
    COUNTS = "counts"
    LESS_WORK = "less-work"
    UNGATED = "ungated"
    BYTES = "bytes"
    METHOD = "method"
    TOO_NOISY = "too-noisy"
    NO_PROBE = "no-probe"
    UNSTEADY = "unsteady"
    NOT_RERUN = "not-rerun"
    NO_BASELINE = "no-baseline"
    NO_ENTRY = "no-entry"
    EMPTY_ENTRY = "empty-entry"
    CODE_ALONE = "code-alone"
    NOT_THERE = "not-there"
    NOT_WRITTEN = "not-written"
    NOTHING_VALID = "nothing-valid"
    OUT_OF_BOUNDS = "out-of-bounds"


@dataclass(frozen=True, slots=True)
class Numbers:
    """Hold the numbers that a decision is based on; None for numbers that it does not use.

    figure: the compared figure. observed, reference: its values (GB/s, or a share of the probe) for this code, and for
    the old code or the baseline. For a floor: the observed figure, and the limit.
    drop: fraction of the reference that was lost; low, high: its bounds, 99.7 % and 99 % one-sided over all looks.
    tolerance: the smallest loss that has to be caught. allowed_drop: the drop above which the test is REGRESSED.
    detects: the smallest drop that is found 95 times in 100.
    spread: standard deviation of ln(figure) from process to process, or of pairs' log ratios; degrees: of freedom.
    runs: the number of the baseline's runs, of pairs, or of comparisons in one process.
    confirmations: the figure in each new process.
    """

    figure: Metric | None = None
    observed: float | None = None
    reference: float | None = None
    tolerance: float | None = None
    drop: float | None = None
    low: float | None = None
    high: float | None = None
    allowed_drop: float | None = None
    detects: float | None = None
    spread: float | None = None
    degrees: float | None = None
    runs: int | None = None
    confirmations: tuple[float, ...] = ()


NO_NUMBERS = Numbers()
_NO_FACTS: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Decision:
    """Hold a verdict, the rule that gave it, its numbers, and plain facts for the sentence about it.

    rule: one of `Rule`, a validity finding's code, ``floor:NAME`` or ``setting:NAME``. facts: by name, plain data;
    `reports.wording` uses them by rule. why_not: why better evidence was not available, in words.
    """

    status: Status
    rule: str
    numbers: Numbers = NO_NUMBERS
    facts: Mapping[str, Any] = field(default_factory=lambda: _NO_FACTS)
    why_not: tuple[str, ...] = ()
