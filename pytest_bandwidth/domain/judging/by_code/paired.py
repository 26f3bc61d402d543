"""Judge two revisions measured in pairs of fresh processes, on the paired log-ratios.

What a pair's two processes share (the machine's state in those seconds, or, where they sample in turn, in each round)
leaves the ratio; what differs between them is the noise that Student's t-interval knows about. No prior: the pairs are
this run's only evidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import mean, median, stdev

from pytest_bandwidth.domain.baseline import Entry, Metric
from pytest_bandwidth.domain.judging.drop import MeasurementSetup, moved, not_comparable, without_share
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.rule import REGRESSED_LEVEL
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, middle_of, steadier_metric
from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.units import drop_of_log, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Status, Verdict

# |ln| of the probes' ratio past which the machine itself changed between the two processes of a pair. The memory of a
# shared host was seen in two states for seconds to minutes each, copies at 49 and at 72 GB/s: |ln| = 0.385.
EVEN_PROBES = 0.10
# The code of verdicts that rest on pairs.
PAIRS = "pairs"
# How sure pairs have to be that code lost no more than the tolerance. It costs no false alarm; of drops of twice the
# tolerance none passes where pairs spread by two fifths of it, one to three in a thousand by four fifths. At 99.9 %
# rows took two pairs more by two fifths, and three of four had no verdict by four (benchmarks/pairs_simulation.py).
WITHIN_LEVEL = 0.99
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


@dataclass(frozen=True, slots=True)
class Looks:
    """Say after how many pairs a verdict is looked for, and at which level each time.

    from_unlike: the pairs that it takes at least where those of one pair had not all in common. trims_from: from how
    many on they are looked at once more without the two extreme ones, where all of them do not tell; None: never.
    """

    after: Sequence[int]
    level: float = REGRESSED_LEVEL
    from_unlike: int = 0
    trims_from: int | None = None

    @property
    def settle(self) -> bool:
        """Return whether these decide what stored figures cannot: how many pairs they take is not the user's to say."""
        return self.level > REGRESSED_LEVEL

    def is_due(self, number: int, pairs: Sequence[Pair]) -> bool:
        """Return whether these pairs are looked at after so many."""
        return number >= self.from_unlike or all(pair.alike for pair in pairs)


_FOUR_LOOKS = (4, 5, 6, 8)
# Those that are to settle a suspect, of which the last may be two: together they err no more often than two at
# REGRESSED_LEVEL (union bound). Now and then a process is 10 or 20 % slower than its twin throughout, for no reason
# that can be taken from it: one such pair of eight made a drop that the others agreed on INSUFFICIENT.
# Where the two of a pair have addresses or pages of their own, a process can have one of two speeds: that four pairs
# have the same sign by chance is then no rarity, and Student's t takes them for certain: see
# benchmarks/pairs_simulation.py.
SETTLING = Looks(
    _FOUR_LOOKS, 1 - 2 * (1 - REGRESSED_LEVEL) / (len(_FOUR_LOOKS) + 1), from_unlike=5, trims_from=_FOUR_LOOKS[-1]
)
ONE_LOOK = Looks(())


@dataclass(frozen=True, slots=True)
class Mean:
    """Hold a mean of drops, their standard deviation, the mean's standard error and the degrees of freedom of that.

    left_out: how many drops it leaves out.
    """

    centre: float
    spread: float
    error: float
    degrees: int
    left_out: int = 0

    def reach(self, level: float = REGRESSED_LEVEL) -> float:
        """Return how far the one-sided interval about it reaches."""
        return t_quantile(level, self.degrees) * self.error


def mean_of(drops: Sequence[float]) -> Mean:
    """Return the mean of two drops at least."""
    return mean_of_many(len(drops), mean(drops), stdev(drops))


def mean_of_many(count: int, centre: float, spread: float) -> Mean:
    """Return what the mean of two drops at least would be, had they this mean and this standard deviation."""
    return Mean(centre, spread, spread / math.sqrt(count), count - 1)


def trimmed_mean_of(drops: Sequence[float]) -> Mean:
    """Return the mean of four drops at least without the largest and the smallest one.

    Its error is that of Tukey and McLaughlin (Sankhyā A 25, 1963, p. 331), from the drops with the extreme ones moved
    to the next: sd ÷ ((1 − 2/n) · √n), with n − 3 degrees of freedom.
    """
    n, (_, *kept, _) = len(drops), sorted(drops)
    spread = stdev([kept[0], *kept, kept[-1]])
    return Mean(mean(kept), spread, spread / ((1 - 2 / n) * math.sqrt(n)), n - 3, left_out=2)


def judge_by_pairs(
    setup: MeasurementSetup,
    entry: Entry,
    pairs: Sequence[Pair],
    limits: Limits,
    regime: str | None,
    other: str,
    looks: Looks = ONE_LOOK,
) -> Verdict | None:
    """Judge a measurement by its pairs; None where they are comparable, and there are none.

    setup: how this code was measured. entry, regime, other: the other revision's processes, how its kernel was classed,
    and what it is called.
    looks: as in `judge_pairs`.
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
    return judge_pairs(pairs, figure, tolerance, other, looks)


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
    pairs: Sequence[Pair], figure: Metric, tolerance: float, other: str, looks: Looks = ONE_LOOK
) -> Verdict:
    """Judge REGRESSED, INVALID, INSUFFICIENT, IMPROVED or WITHIN. other: what the other revision is called.

    looks: whose level the interval has that excludes no drop, or no gain; a stricter one where there are more than two.

    REGRESSED where the mean drop exceeds the tolerance and the interval excludes none. INSUFFICIENT where it does not,
    and where the interval at WITHIN_LEVEL is wider than the tolerance: neither a drop of that size nor its absence is
    shown. INVALID where the machine changed within so many pairs that too few are left. Uneven pairs never count.
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
    told, allowed = mean_of(drops), log_of_drop(tolerance)
    if looks.trims_from is not None and len(drops) >= looks.trims_from and _tells(told, allowed, looks) is None:
        trimmed = trimmed_mean_of(drops)
        told = told if _tells(trimmed, allowed, looks) is None else trimmed
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
        drop=drop_of_log(told.centre),
        allowed_drop=tolerance,
        visible_drop=drop_of_log(max(told.reach(looks.level), allowed)),
        spread=told.spread,
        degrees=told.degrees,
        baseline_runs=len(drops),
        confirmations=tuple(head),
    )
    in_turn = all(pair.in_turn is not None for pair in even)
    verdict = replace(verdict, reason=_sentence(verdict, told, uneven, other, in_turn=in_turn))
    status = _tells(told, allowed, looks)
    return _insufficient(verdict, uneven, looks) if status is None else replace(verdict, status=status)


def _tells(told: Mean, allowed: float, looks: Looks) -> Status | None:
    """Return what a mean of drops shows; None where it is too uncertain. allowed: the tolerance's log drop."""
    surely = told.reach(looks.level)
    if told.centre > allowed and told.centre > surely:
        return Status.REGRESSED
    if told.centre > allowed or told.reach(WITHIN_LEVEL) > allowed:
        return None
    return Status.IMPROVED if -told.centre > allowed and -told.centre > surely else Status.WITHIN


def pairs_needed(spread: float, tolerance: float) -> int | None:
    """Find the fewest pairs of this spread whose interval is as narrow as the tolerance; None where 100 do not do."""
    limit = log_of_drop(tolerance)
    numbers = range(FEWEST_PAIRS, MOST_ADVISED + 1)
    return next((number for number in numbers if mean_of_many(number, 0.0, spread).reach() <= limit), None)


def _insufficient(verdict: Verdict, uneven: int, looks: Looks) -> Verdict:
    needed = pairs_needed(verdict.spread or 0.0, verdict.tolerance or 0.0)
    remedy = (
        "raise the tolerance or quiet the machine"
        if looks.settle
        else f"--bandwidth-pairs={needed} would do"
        if needed
        else f"no number of pairs up to {MOST_ADVISED} would do: raise the tolerance or quiet the machine"
    )
    return replace(
        verdict,
        status=Status.INSUFFICIENT,
        code="noise",
        reason=f"drops under {format_percent(verdict.visible_drop or 0, 1)} cannot be told from noise in "
        f"{verdict.baseline_runs} pairs (tolerance {format_percent(verdict.tolerance or 0, 1)}, "
        f"spread {format_percent(verdict.spread or 0, 1)}){_again(uneven)}; "
        f"{remedy}",
    )


def _sentence(verdict: Verdict, told: Mean, uneven: int, other: str, *, in_turn: bool) -> str:
    drop = verdict.drop or 0.0
    # The interval is one-sided, to the side that would excuse the code.
    least = drop_of_log(abs(log_of_drop(drop)) - told.reach())
    bound = f"at least {format_percent(least, 1)} with 99.9 % confidence" if least > 0 else "not told from none"
    return (
        f"{moved(verdict, other)} in {verdict.baseline_runs} pairs of fresh processes{' in turn' if in_turn else ''}"
        f"{', without the largest and the smallest' if told.left_out else ''} "
        f"({bound}, spread {format_percent(verdict.spread or 0, 1)}), "
        f"{format_percent(verdict.tolerance or 0, 1)} allowed{_again(uneven)}"
    )


def _again(uneven: int) -> str:
    return f"; {uneven} taken again, since the machine changed between its processes" if uneven else ""
