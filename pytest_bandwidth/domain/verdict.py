"""Name the verdicts: their statuses, what each does to a test, and the figures they rest on."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from pytest_bandwidth.domain.baseline import Metric


class Status(str, Enum):
    """List the statuses in order of precedence. SUSPECT is on its way to one of the others and is never reported."""

    INVALID = "INVALID"
    NOT_COMPARABLE = "NOT_COMPARABLE"
    REGRESSED = "REGRESSED"
    DEVICE = "DEVICE"
    UNCONFIRMED = "UNCONFIRMED"
    INSUFFICIENT = "INSUFFICIENT"
    NO_BASELINE = "NO_BASELINE"
    IMPROVED = "IMPROVED"
    WITHIN = "WITHIN"
    UNCHANGED = "UNCHANGED"
    UPDATED = "UPDATED"
    SUSPECT = "SUSPECT"

    def __str__(self) -> str:
        return self.value

    @property
    def always_fails(self) -> bool:
        return self in _FAILING

    @property
    def warns(self) -> bool:
        """Return whether it could not be judged: then it passes with a warning, and fails with ``strict``."""
        return self in _UNJUDGED

    def fails(self, *, strict: bool) -> bool:
        return self.always_fails or (strict and self.warns)


# Looking a member up in its class takes a microsecond, and every row is asked often.
_FAILING = (Status.REGRESSED, Status.NOT_COMPARABLE)
_UNJUDGED = (Status.INVALID, Status.DEVICE, Status.UNCONFIRMED, Status.INSUFFICIENT, Status.NO_BASELINE)


# The code of NO_BASELINE where a run was to write the entry, and did not.
NOT_WRITTEN = "not-written"


class Numbers(NamedTuple):
    """Hold what the verdict on a drop rests on; each as in `Verdict`."""

    figure: Metric
    observed: float
    reference: float
    tolerance: float
    drop: float
    allowed_drop: float
    visible_drop: float
    spread: float
    degrees: float
    baseline_runs: int
    confirmations: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    """Hold a status, the sentence that gives its reason, and every number that was used.

    code: short reason for programs (``drop``, ``floor:min_gbps``, ``bytes``, …).
    figure: what was judged; observed and reference are values of it (GB/s, or a share of the probe).
    drop, allowed_drop, visible_drop: fractions of the reference: seen; let pass; the smallest that would have failed.
    spread: s, the between-process standard deviation of ln(figure) that was assumed.
    confirmations: the figure, or a floor's own figure, in each fresh process.
    why_not: why no better way had the last word, as the end of the reason says, too.
    """

    status: Status
    code: str
    reason: str
    figure: Metric | None = None
    observed: float | None = None
    reference: float | None = None
    tolerance: float | None = None
    drop: float | None = None
    allowed_drop: float | None = None
    visible_drop: float | None = None
    spread: float | None = None
    degrees: float | None = None
    baseline_runs: int | None = None
    confirmations: tuple[float, ...] = ()
    runs_advised: int | None = None
    why_not: str | None = None
