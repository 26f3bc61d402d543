"""Judge two revisions measured in pairs of fresh processes, on the paired log-ratios.

What a pair's two processes share is the machine's state in those seconds, or, where they sample in turn, in each round.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median, stdev

from pytest_bandwidth.domain.baseline import Entry, Metric
from pytest_bandwidth.domain.judging.by_code.looks import Looks, mean_of_many
from pytest_bandwidth.domain.judging.drop import MeasurementSetup, moved, not_comparable, without_share
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, middle_of, steadier_metric
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Status, Verdict

# |ln| of the probes' ratio past which the machine itself changed between the two processes of a pair. The memory of a
# shared host was seen in two states for seconds to minutes each, copies at 49 and at 72 GB/s: |ln| = 0.385.
EVEN_PROBES = 0.10
# The code of verdicts that rest on pairs.
PAIRS = "pairs"
# An interval needs two pairs; with them it is so wide that nothing is ever judged by it alone.
FEWEST_PAIRS = 2
MOST_ADVISED = 100


@dataclass(frozen=True, slots=True)
class Pair:
    """Hold one measurement's figures in two fresh processes: this code's, the other revision's.

    in_turn: where they sampled in turn, the median over the rounds of ln(this code's seconds ÷ the other's); None where
    one followed the other. alike: whether both had the same addresses, and all arrays in the same memory.
    """

    head: Metrics
    base: Metrics
    in_turn: float | None = None
    alike: bool = False

    @property
    def even(self) -> bool:
        """Return whether both saw the same machine: in turn, or by their probes, as far as both have one."""
        if self.in_turn is not None:
            return True
        head, base = self.head.probe_gbps, self.base.probe_gbps
        return not head or not base or abs(math.log(head / base)) <= EVEN_PROBES

    def drop(self, figure: Metric) -> float | None:
        """Return ln(base ÷ head) of a figure: positive where this code is slower.

        What was sampled in turn needs no probe beside it.
        """
        if self.in_turn is not None:
            return self.in_turn
        head, base = self.head.of(figure), self.base.of(figure)
        return math.log(base / head) if head and base else None


# Those that are to settle a suspect err no more often together than the two of `looks_of`.
# Drops that spread by nearly the tolerance take twelve: of 3 % at a tolerance of 2 % whose pairs spread by 1.8 %, eight
# find two in five, twelve more than four in five.
# Now and then a process is 10 or 20 % slower than its twin throughout, by where its heap placed what its code allocates
# or for no known reason: one such pair of eight made a drop that the others agreed on INSUFFICIENT.
# Where the two of a pair have addresses or pages of their own, a process can have one of two speeds: that four pairs
# have the same sign by chance is then no rarity, and Student's t takes them for certain: see
# benchmarks/pairs_simulation.py.
SETTLING = Looks((4, 5, 6, 8, 12), 2 * (1 - REGRESSED_LEVEL), trims=True, from_unlike=5, settles=True)
# Undecided tests get so many times the pairs that were asked for.
EXTENSION = 2


def looks_of(pairs: int) -> Looks:
    """Return when it is looked where so many pairs are asked for: each look errs once in a thousand times."""
    return Looks((pairs, EXTENSION * pairs), 2 * (1 - REGRESSED_LEVEL))


def judge_by_pairs(
    setup: MeasurementSetup,
    entry: Entry,
    pairs: Sequence[Pair],
    limits: Limits,
    regime: str | None,
    other: str,
    looks: Looks,
    *,
    last: bool,
) -> Verdict | None:
    """Judge a measurement by its pairs; None where they are comparable, and there are none.

    setup: how this code was measured. entry, regime, other: the other revision's processes, how its kernel was classed,
    and what it is called.
    looks, last: as in `judge_pairs`.
    """
    different = not_comparable(setup, entry, other=other)
    if different is not None or not pairs:
        return different
    figure = _metric_of(pairs, limits.marker.judged_on, regime)
    even = [pair for pair in pairs if pair.even]
    if figure == "relative" and even and middle_of([pair.base for pair in even]).share_told:
        head = middle_of([pair.head for pair in even])
        if not head.share_told:
            return without_share(head)
    tolerance = limits.tolerance if limits.marker.tolerance is None else limits.marker.tolerance
    return judge_pairs(pairs, figure, tolerance, other, looks, last=last)


def _metric_of(pairs: Sequence[Pair], settled: Metric | None, regime: str | None) -> Metric:
    """Choose by what the other revision shows: a kernel that has lost its bandwidth must not choose its own metric."""
    if all(pair.in_turn is not None for pair in pairs):
        return "gbps"
    base = middle_of([pair.base for pair in pairs])
    if base.relative is None or any(pair.head.relative is None for pair in pairs):
        return "gbps"
    metric = choose_metric(settled, None, base, regime)
    return metric if settled else steadier_of_pairs(metric, pairs)


def steadier_of_pairs(figure: Metric, pairs: Sequence[Pair]) -> Metric:
    """Choose `relative`, unless GB/s differ less from pair to pair.

    The choice looks at spreads alone, of which a normal mean is independent; that the smaller of two is taken makes the
    interval err about twice as often as it says, at worst.
    """
    even = [pair for pair in pairs if pair.even]

    def spread_of(which: Metric) -> float:
        return stdev(drop for pair in even if (drop := pair.drop(which)) is not None)

    return steadier_metric(figure, len(even), spread_of)


def judge_pairs(
    pairs: Sequence[Pair], figure: Metric, tolerance: float, other: str, looks: Looks, *, last: bool
) -> Verdict:
    """Judge REGRESSED, INVALID, INSUFFICIENT, IMPROVED or WITHIN. other: what the other revision is called.

    looks: how sure each look at them has to be (`Looks.tell`). last: whether no look follows this one.

    INSUFFICIENT where they do not tell. INVALID where the machine changed within so many pairs that too few are left.
    Uneven pairs never count.
    """
    even = [pair for pair in pairs if pair.even]
    drops = [drop for pair in even if (drop := pair.drop(figure)) is not None]
    uneven = len(pairs) - len(even)
    if len(drops) < FEWEST_PAIRS:
        return Verdict(
            Status.INVALID,
            "unsteady",
            f"{len(drops)} of {len(pairs)} pairs can be compared: the probe's GB/s differed by more than "
            f"{format_percent(math.expm1(EVEN_PROBES), 1)} between the two processes of {uneven}",
            figure=figure,
        )
    allowed = log_of_drop(tolerance)
    shown = looks.tell(drops, allowed, last=last)
    seen = shown.mean
    head = [value for pair in even if (value := pair.head.of(figure)) is not None]
    base = [value for pair in even if (value := pair.base.of(figure)) is not None]
    verdict = Verdict(
        Status.WITHIN,
        PAIRS,
        "",
        figure=figure,
        observed=median(head),
        reference=median(base),
        tolerance=tolerance,
        drop=drop_of_log(seen.centre),
        allowed_drop=tolerance,
        visible_drop=drop_of_log(looks.visible(seen, allowed, last=last)),
        spread=seen.spread,
        degrees=seen.degrees,
        baseline_runs=len(drops),
        confirmations=tuple(head),
    )
    in_turn = " in turn" if all(pair.in_turn is not None for pair in even) else ""
    trimmed = ", without the largest and the smallest" if seen.left_out else ""
    pairs_seen = f"{moved(verdict, other)} in {len(drops)} pairs of fresh processes{in_turn}{trimmed}"
    again = f"; {uneven} taken again, since the machine changed between its processes" if uneven else ""
    reason = f"{pairs_seen} {looks.evidence(shown, tolerance)}{again}"
    if shown.status is not None:
        return replace(verdict, status=shown.status, reason=reason)
    reason = f"{reason}; {_remedy(seen.spread, allowed, looks)}"
    return replace(verdict, status=Status.INSUFFICIENT, code="noise", reason=reason)


def pairs_needed(spread: float, allowed: float) -> int | None:
    """Find the fewest pairs of this spread to ask for that tell whatever their mean is; None where 100 do not do.

    Their last look is to find no mean between what is surely lost and what is surely no more than allowed, a log drop.
    """
    for number in range(FEWEST_PAIRS, MOST_ADVISED + 1):
        looks = looks_of(number)
        seen = mean_of_many(looks.most, 0.0, spread)
        if seen.reach(looks.loss_level) + seen.reach(looks.within_level) <= allowed:
            return number
    return None


def _remedy(spread: float, allowed: float, looks: Looks) -> str:
    quiet = "raise the tolerance or quiet the machine"
    if looks.settles:
        return quiet
    needed = pairs_needed(spread, allowed)
    if needed is None:
        return f"no number of pairs up to {MOST_ADVISED} would do: {quiet}"
    return f"--bandwidth-pairs={needed} would do"
