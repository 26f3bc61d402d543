"""What a baseline's runs say together."""

import math
from dataclasses import replace
from statistics import stdev

import pytest
from entries_of_shares import entry, reference

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.reference import (
    LOWEST_SHARE,
    Past,
    pool_of,
    prior_spread,
    reference_of,
    steadier_of_runs,
)
from pytest_bandwidth.domain.statistics import t_quantile


def test_spread_pools_the_prior_with_what_the_runs_show():
    known = reference(0.99, 1.0, 1.01)
    logs = [math.log(v) for v in (0.99, 1.0, 1.01)]
    mean = sum(logs) / 3
    variance = sum((v - mean) ** 2 for v in logs) / 2
    assert known.spread == pytest.approx(math.sqrt((5 * 0.01**2 + 2 * variance) / 7))
    assert known.degrees == 7
    assert known.value == pytest.approx(1.0)


def test_hand_written_entry_is_exact_with_five_degrees():
    known = reference_of(Entry("t", gbps=100.0), "gbps", 0.03)
    assert known is not None
    assert (known.runs, known.degrees, known.spread) == (0, 5, 0.03)
    assert known.bound(0.99, 0.0, 1) == pytest.approx(t_quantile(0.99, 5) * 0.03)


def file_of(*runs):
    """Entries of one file: each has a key of its own."""
    return [replace(entry(*shares), key=f"t{number}") for number, shares in enumerate(runs)]


PRIOR = 0.01


def prior_beside(entries, key, figure="relative", prior=PRIOR):
    """The prior spread of an entry in the file of these, and of one more without runs."""
    every = [*entries, Entry("nothing measured yet")]
    return pool_of(every, figure).prior_beside(next(e for e in every if e.key == key), prior)


def runs_with(spread):
    """Five shares of that standard deviation."""
    return tuple(math.exp(spread * z / math.sqrt(2.5)) for z in (-2, -1, 0, 1, 2))


def test_the_spread_of_others_needs_five_degrees_of_freedom():
    assert prior_beside(file_of((0.9, 1.1), (0.9, 1.1)), "nothing measured yet") == PRIOR
    many = file_of(*[(0.98, 1.02)] * 6)
    seen = prior_beside(many, "nothing measured yet")
    assert seen == pytest.approx((math.log(1.02) - math.log(0.98)) / math.sqrt(2))


@pytest.mark.parametrize("left_out", range(7))
def test_the_prior_beside_one_entry_is_by_the_others(left_out):
    entries = file_of((0.9, 0.93, 0.95, 0.97, 1.0), (0.5,), (0.8, 0.85), (0.8, 0.9), (), (0.7, 0.75, 0.77), (1, 1.2))
    others = entries[:left_out] + entries[left_out + 1 :]
    found = prior_beside(entries, f"t{left_out}")
    assert found == pytest.approx(prior_beside(others, "nothing measured yet"))
    assert found > PRIOR


def test_an_entry_that_scatters_alone_takes_the_others_prior_neither_up_nor_down():
    wild_and_calm = file_of((0.1, 9.0), *[(0.7, 0.7)] * 6)
    assert prior_beside(wild_and_calm, "t0") == PRIOR


def test_what_is_judged_by_another_figure_tells_nothing_of_an_entrys_spread():
    # Softmax computes: at 45 and at 70 GB/s of memory it is as fast, and its share of the probe 50 and 33 %.
    computes = [replace(e, judged_on="gbps") for e in file_of((0.5, 0.33, 0.5, 0.33), (0.48, 0.33, 0.5, 0.34))]
    waits = [
        replace(entry(*shares), key=f"waits{number}", judged_on="relative")
        for number, shares in enumerate([(0.98, 1.0), (0.97, 0.99, 0.98, 0.99), (0.88, 0.9, 0.9, 0.89)])
    ]
    assert prior_beside([*waits, *computes], "waits0") == pytest.approx(prior_beside(waits, "waits0"))
    assert prior_beside([*waits, *computes], "waits0") < 0.015
    # Entries from before `judged_on` count with both.
    unsettled = [replace(e, judged_on=None) for e in computes]
    assert prior_beside([*waits, *unsettled], "waits0") > 0.1


# One variance in a hundred is below 1 / 14.80 of another, of 4 and 8 degrees of freedom (NIST/SEMATECH e-Handbook,
# §1.3.6.7.3: F of 8 and 4 at 1 %); its root is 0.2599.
@pytest.mark.parametrize(("share_of_their_spread", "counts"), [(0.25, False), (0.27, True), (3.0, True)])
def test_noisier_others_count_unless_an_entrys_own_runs_are_clearly_less_noisy(share_of_their_spread, counts):
    file = file_of(runs_with(0.1 * share_of_their_spread), runs_with(0.1), runs_with(0.1))
    assert prior_beside(file, "t0") == pytest.approx(0.1 if counts else PRIOR)


@pytest.mark.parametrize(
    ("others", "spread", "expected"),
    [
        (2, 0.008, PRIOR),  # eight degrees of freedom
        (3, 0.008, 0.008),
        (3, 0.005, 0.005),
        (3, 0.001, LOWEST_SHARE["relative"] * PRIOR),
        (3, 0.0, LOWEST_SHARE["relative"] * PRIOR),
        (3, 0.012, 0.012),
    ],
)
@pytest.mark.parametrize("own", [(), (0.9,), runs_with(0.008)])
def test_others_that_repeat_better_than_the_prior_lower_it(others, spread, expected, own):
    assert prior_beside(file_of(own, *[runs_with(spread)] * others), "t0") == pytest.approx(expected)


def test_the_prior_of_gbps_is_not_lowered():
    assert prior_beside(file_of((), *[runs_with(0.001)] * 9), "t0", "gbps") == PRIOR
    assert prior_beside(file_of((), *[runs_with(0.05)] * 9), "t0", "gbps") == pytest.approx(0.05)


# One variance in a hundred is above 4.43 times another, of 4 and 20 degrees of freedom (ibid.); the root is 2.105.
@pytest.mark.parametrize(("times_their_spread", "lowered"), [(2.09, True), (2.12, False), (0.1, True)])
def test_quieter_others_count_unless_an_entrys_own_runs_are_clearly_noisier(times_their_spread, lowered):
    file = file_of(runs_with(0.006 * times_their_spread), *[runs_with(0.006)] * 5)
    assert prior_beside(file, "t0") == pytest.approx(0.006 if lowered else PRIOR)


def test_the_prior_of_an_entry_alone():
    assert prior_spread("relative", on_host=True) == 0.01
    assert prior_spread("gbps", on_host=True) == 0.03
    assert prior_spread("gbps", on_host=False) == 0.01


def runs_of(*pairs):
    return Entry("t", runs=tuple(Run(gbps=gbps, probe_gbps=probe) for gbps, probe in pairs))


def test_the_figure_that_repeats_better_over_five_runs():
    # The probe goes from 49 to 72 and back; one kernel follows, the other does not.
    probes = (49.0, 72.0, 49.5, 71.0, 49.2)
    waits = runs_of(*((p * 0.9, p) for p in probes))
    computes = runs_of(*((30.0, p) for p in probes))
    assert steadier_of_runs("relative", waits, on_host=True) == "relative"
    assert steadier_of_runs("relative", computes, on_host=True) == "gbps"


def test_under_five_runs_or_once_on_gbps_the_spread_decides_nothing():
    few = runs_of((30.0, 49.0), (30.0, 72.0), (30.0, 49.0), (30.0, 72.0))
    steady = runs_of(*((p * 0.2, p) for p in (49.0, 72.0, 49.5, 71.0, 49.2)))
    assert steadier_of_runs("relative", few, on_host=True) == "relative"
    assert steadier_of_runs("gbps", steady, on_host=True) == "gbps"


def past_of(spread, runs=9):
    return Past((runs - 1) * spread**2, runs - 1)


def test_a_history_tells_how_noisy_an_entry_is_and_not_where_its_figure_lies():
    known, past = entry(0.98, 1.0, 1.02), past_of(0.002, runs=30)
    alone, beside = reference_of(known, "relative", PRIOR), reference_of(known, "relative", PRIOR, past=past)
    assert (beside.centre, beside.runs) == (alone.centre, 3)
    squares = 5 * PRIOR**2 + 2 * stdev(map(math.log, (0.98, 1.0, 1.02))) ** 2 + 29 * 0.002**2
    assert beside.spread == pytest.approx(math.sqrt(squares / 36))
    assert beside.degrees == alone.degrees + 29 == 36


def test_a_history_never_takes_the_spread_far_below_the_prior():
    quiet = reference_of(entry(1.0), "gbps", PRIOR, past=past_of(0.0, runs=30))
    assert quiet.spread == pytest.approx(PRIOR * math.sqrt(5 / 34))


def test_a_history_of_noise_widens_what_is_allowed():
    known = entry(1.0, 1.0, 1.0)
    noisy = reference_of(known, "relative", PRIOR, past=past_of(0.05, runs=30))
    assert noisy.noise(0.999, 3) > 3 * reference_of(known, "relative", PRIOR).noise(0.999, 3)


def test_an_entry_by_hand_has_a_history_too():
    known = reference_of(Entry("t", gbps=100.0), "gbps", 0.03, past=past_of(0.01, runs=21))
    assert (known.runs, known.degrees) == (0, 25)
    assert known.spread == pytest.approx(math.sqrt((5 * 0.03**2 + 20 * 0.01**2) / 25))


def test_the_histories_of_others_lend_their_noise_and_an_entrys_own_counts_once():
    file, past = file_of((0.9,), (0.8,), (0.7,)), {"t1": past_of(0.03), "t2": past_of(0.03)}
    pool = pool_of(file, "relative", past)
    assert pool.prior_beside(file[0], PRIOR) == pytest.approx(0.03)
    assert pool.prior_beside(file[1], PRIOR) == pytest.approx(0.03)
    own = pool_of(file, "relative", {"t1": past_of(0.03)})
    assert own.prior_beside(file[1], PRIOR) == PRIOR
    spread = math.sqrt((5 * PRIOR**2 + 8 * 0.03**2) / 13)
    assert own.reference(file[1], PRIOR).spread == pytest.approx(spread)


# As above: of 4 and 8 degrees of freedom a ratio of variances of 1 / 14.80 is one in a hundred.
@pytest.mark.parametrize(("share_of_their_spread", "lent"), [(0.25, False), (0.27, True)])
def test_an_entry_whose_history_is_quiet_keeps_clear_of_noisy_others(share_of_their_spread, lent):
    file = file_of((0.9,), runs_with(0.1), runs_with(0.1))
    pool = pool_of(file, "relative", {"t0": past_of(0.1 * share_of_their_spread, runs=5)})
    assert pool.prior_beside(file[0], PRIOR) == pytest.approx(0.1 if lent else PRIOR)


def test_a_history_of_keys_that_the_file_has_not_tells_nothing():
    file = file_of((0.9,), (0.8,))
    assert pool_of(file, "relative", {"other": past_of(0.2)}).prior_beside(file[0], PRIOR) == PRIOR
