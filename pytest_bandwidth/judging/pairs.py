"""Turn pairs of new processes of two revisions into drops: by their alternate samples, or by their figures."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import stdev

from pytest_bandwidth.domain.baseline import Metric
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, middle_of, steadier_metric

# |ln| of the probes' ratio past which the machine itself changed between the two processes of a pair. The memory of a
# shared host was seen in two states for seconds to minutes each, copies at 49 and at 72 GB/s: |ln| = 0.385.
EVEN_PROBES = 0.10


@dataclass(frozen=True, slots=True)
class Pair:
    """Hold one measurement's figures in two new processes: this code's, the other revision's.

    alternate: where they sampled alternately, the median over the rounds of ln(this code's seconds ÷ the other's); None
    where one ran after the other. alike: whether both had the same addresses, and all arrays in the same memory.
    """

    head: Metrics
    base: Metrics
    alternate: float | None = None
    alike: bool = False

    @property
    def even(self) -> bool:
        """Return whether both saw the same machine: sampled alternately, or by their probes where both have one."""
        if self.alternate is not None:
            return True
        head, base = self.head.probe_gbps, self.base.probe_gbps
        return not head or not base or abs(math.log(head / base)) <= EVEN_PROBES

    def drop(self, figure: Metric) -> float | None:
        """Return ln(base ÷ head) of a figure: positive where this code is slower."""
        if self.alternate is not None:
            return self.alternate
        head, base = self.head.of(figure), self.base.of(figure)
        return math.log(base / head) if head and base else None


def figure_of_pairs(pairs: Sequence[Pair], asked: Metric | None, regime: str | None) -> Metric:
    """Choose the figure to compare, by the other revision: a kernel that lost bandwidth must not choose its own.

    asked: the marker's. regime: what the other revision's kernel was classed as.
    """
    if all(pair.alternate is not None for pair in pairs):
        return "gbps"
    base = middle_of([pair.base for pair in pairs])
    if base.relative is None or any(pair.head.relative is None for pair in pairs):
        return "gbps"
    figure = choose_metric(asked, None, base, regime)
    return figure if asked else steadier_of_pairs(figure, pairs)


def steadier_of_pairs(figure: Metric, pairs: Sequence[Pair]) -> Metric:
    """Choose `relative`, unless GB/s differ less from pair to pair.

    The choice looks at spreads alone, of which a normal mean is independent; that the smaller of two is taken makes the
    interval err about twice as often as it says, at worst.
    """
    even = [pair for pair in pairs if pair.even]

    def spread_of(which: Metric) -> float:
        return stdev(drop for pair in even if (drop := pair.drop(which)) is not None)

    return steadier_metric(figure, len(even), spread_of)
