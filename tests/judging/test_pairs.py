"""What pairs of new processes of two revisions show: their drops, and the figure that is compared."""

import math
import random
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.decide import decide_comparison
from pytest_bandwidth.judging.evidence import comparison_of_pairs
from pytest_bandwidth.judging.interval import Looks
from pytest_bandwidth.judging.pairs import EVEN_PROBES, Pair, figure_of_pairs, steadier_of_pairs


def pairs(*log_drops, probe_here=100.0, probe_there=100.0):
    """One pair for each drop of ln(GB/s) and of ln(relative)."""
    return [
        Pair(Metrics(80 * math.exp(-d), 0.8 * math.exp(-d), probe_here), Metrics(80.0, 0.8, probe_there))
        for d in log_drops
    ]


def alternate(*log_drops):
    """Pairs whose processes sampled alternately: what that shows, whatever the processes reached."""
    return [replace(pair, alternate=drop, alike=True) for pair, drop in zip(pairs(*[0.0] * 9), log_drops, strict=False)]


def taken(found, asked=None, **more):
    return comparison_of_pairs(found, asked, None, "HEAD~1 (3f2c1ab)", **{"ended": False, **more})


@pytest.mark.parametrize("figure", ["relative", "gbps"])
def test_a_drop_is_of_the_figure_or_of_alternate_samples(figure):
    (pair,) = pairs(0.1)
    assert pair.drop(figure) == pytest.approx(0.1)
    assert Pair(Metrics(80.0), Metrics(80.0)).drop("relative") is None
    assert alternate(0.05)[0].drop(figure) == 0.05


def test_evenness_at_its_boundary_and_without_a_probe():
    def even(log_ratio):
        (pair,) = pairs(0.0, probe_here=100.0 * math.exp(log_ratio))
        return pair.even

    assert even(EVEN_PROBES - 1e-9)
    assert even(-EVEN_PROBES + 1e-9)
    assert not even(EVEN_PROBES + 1e-9)
    assert Pair(Metrics(80.0), Metrics(70.0)).even
    (uneven,) = pairs(0.0, probe_here=49.0, probe_there=72.0)
    assert not uneven.even
    assert replace(uneven, alternate=0.0).even


def test_pairs_within_which_the_machine_changed_do_not_count():
    found = taken([*pairs(0.01, 0.02), *pairs(1.0, 1.0, probe_here=49.0, probe_there=72.0)])
    assert found.drops == pytest.approx((0.01, 0.02))
    assert (found.rule, found.uneven, found.ended, len(found.new), len(found.old)) == (Rule.PAIRS, 2, False, 2, 2)
    assert taken(pairs(1.0, probe_here=49.0, probe_there=72.0), ended=True).drops == ()


def with_noise_of_the_probe(*log_noise):
    """A kernel of steady GB/s beside a probe that is not: the share moves, GB/s do not."""
    return [Pair(Metrics(40.0, 0.4 * math.exp(d), 100 * math.exp(-d)), Metrics(40.0, 0.4, 100.0)) for d in log_noise]


def test_the_figure_that_differs_less_from_pair_to_pair():
    noisy_probe = with_noise_of_the_probe(0.05, -0.05, 0.05, -0.05, 0.0)
    assert steadier_of_pairs("relative", noisy_probe) == "gbps"
    assert steadier_of_pairs("relative", noisy_probe[:4]) == "relative", "four pairs tell too little"
    shared = [Pair(Metrics(80 * g, 0.8, 100 * g), Metrics(80.0, 0.8, 100.0)) for g in (0.95, 1.0, 1.05, 1.0, 0.97)]
    assert steadier_of_pairs("relative", shared) == "relative"
    flipped = with_noise_of_the_probe(0.5, -0.5, 0.5, -0.5, 0.5)
    assert steadier_of_pairs("relative", [*flipped, *noisy_probe[:4]]) == "relative", "uneven pairs do not count"


@pytest.mark.parametrize("number", [8, 12])
def test_false_alarms_with_the_steadier_of_two_figures(number):
    """The worst case, two figures of equal and independent noise, and a tolerance of next to nothing."""
    draw, alarms = random.Random(number), 0
    for _ in range(2_000):
        found = [
            Pair(Metrics(math.exp(draw.gauss(0, 0.02)), math.exp(draw.gauss(0, 0.02)), 1.0), Metrics(1.0, 1.0, 1.0))
            for _ in range(number)
        ]
        alarms += decide_comparison(taken(found, ended=True), 1e-9, Looks()).status is Status.REGRESSED
    # Twice one in a thousand, and a fifth more for the narrowest interval: Poisson with mean 4.8, past 13 in one of
    # 10³ seeds.
    assert alarms <= 13


@pytest.mark.parametrize(
    ("found", "asked", "regime", "figure"),
    [
        (pairs(0.0, 0.0), None, None, "relative"),
        (pairs(0.0, 0.0), "gbps", None, "gbps"),
        (pairs(0.0, 0.0), None, "compute-bound", "gbps"),
        (alternate(0.0, 0.0), "relative", None, "gbps"),
        ([*pairs(0.0), Pair(Metrics(80.0), Metrics(80.0, 0.8, 100.0))], "relative", None, "gbps"),
        ([Pair(Metrics(20.0, 0.2, 100.0), Metrics(80.0, 0.8, 100.0))] * 2, None, None, "relative"),
        ([Pair(Metrics(80.0, 0.8, 100.0), Metrics(20.0, 0.2, 100.0))] * 2, None, None, "gbps"),
    ],
)
def test_the_other_revision_chooses_the_figure(found, asked, regime, figure):
    assert figure_of_pairs(found, asked, regime) == figure


def test_a_comparison_is_alike_and_alternate_where_each_pair_is():
    whole = taken(alternate(0.01, 0.02))
    assert (whole.drops, whole.alike, whole.alternate, whole.figure) == ((0.01, 0.02), True, True, "gbps")
    mixed = taken([*alternate(0.01), *pairs(0.02)])
    assert (mixed.alike, mixed.alternate) == (False, False)


@pytest.mark.parametrize(("here", "there", "lost"), [(2.01, 0.8, True), (2.0, 0.8, False), (2.01, 2.01, False)])
def test_a_share_that_only_this_code_cannot_show_is_lost(here, there, lost):
    found = [Pair(Metrics(100 * here, here, 100.0), Metrics(100 * there, there, 100.0))] * 3
    assert taken(found, "relative").lost_share is lost
    assert not taken(found, "gbps").lost_share
