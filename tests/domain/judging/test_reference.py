"""What a baseline's runs say together."""

import math
from dataclasses import replace

import pytest
from entries_of_shares import entry, reference

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.judging.reference import pool_of, prior_spread, reference_of, steadier_of_runs
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


def spread_beside(entries, key, figure="relative"):
    """The spread of the others in the file of these entries, and of one more without runs: that of all."""
    every = [*entries, Entry("nothing measured yet")]
    return pool_of(every, figure).spread_beside(next(e for e in every if e.key == key))


def test_pooled_spread_needs_five_degrees_of_freedom():
    assert spread_beside(file_of((0.9, 1.1), (0.9, 1.1)), "nothing measured yet") == 0.0
    many = file_of(*[(0.99, 1.01)] * 6)
    seen = spread_beside(many, "nothing measured yet")
    assert seen == pytest.approx((math.log(1.01) - math.log(0.99)) / math.sqrt(2))


@pytest.mark.parametrize("left_out", range(7))
def test_the_spread_beside_one_entry_is_that_of_the_others(left_out):
    entries = file_of((0.9, 0.93, 0.95, 0.97, 1.0), (0.5,), (0.8, 0.85), (0.8, 0.9), (), (0.7, 0.75, 0.77), (1, 1.2))
    others = entries[:left_out] + entries[left_out + 1 :]
    found = spread_beside(entries, f"t{left_out}")
    assert found == pytest.approx(spread_beside(others, "nothing measured yet"))
    assert found > 0


def test_an_entry_that_scatters_alone_leaves_nothing_to_the_others():
    wild_and_calm = file_of((0.1, 9.0), *[(0.7, 0.7)] * 6)
    assert spread_beside(wild_and_calm, "t0") == pytest.approx(0, abs=1e-6)


def test_what_is_judged_by_another_figure_tells_nothing_of_an_entrys_spread():
    # Softmax computes: at 45 and at 70 GB/s of memory it is as fast, and its share of the probe 50 and 33 %.
    computes = [replace(e, judged_on="gbps") for e in file_of((0.5, 0.33, 0.5, 0.33), (0.48, 0.33, 0.5, 0.34))]
    waits = [
        replace(entry(*shares), key=f"waits{number}", judged_on="relative")
        for number, shares in enumerate([(0.98, 1.0), (0.97, 0.99, 0.98, 0.99), (0.88, 0.9, 0.9, 0.89)])
    ]
    assert spread_beside([*waits, *computes], "waits0") == pytest.approx(spread_beside(waits, "waits0"))
    assert spread_beside([*waits, *computes], "waits0") < 0.015
    # Entries from before `judged_on` count with both.
    unsettled = [replace(e, judged_on=None) for e in computes]
    assert spread_beside([*waits, *unsettled], "waits0") > 0.1


# One variance in a hundred is below 1 / 14.80 of another, of 4 and 8 degrees of freedom (NIST/SEMATECH e-Handbook,
# §1.3.6.7.3: F of 8 and 4 at 1 %); its root is 0.2599.
@pytest.mark.parametrize(("share_of_their_spread", "counts"), [(0.25, False), (0.27, True), (3.0, True)])
def test_others_count_unless_an_entrys_own_runs_are_clearly_less_noisy(share_of_their_spread, counts):
    def runs(spread):
        return tuple(math.exp(spread * z / math.sqrt(2.5)) for z in (-2, -1, 0, 1, 2))

    file = file_of(runs(0.1 * share_of_their_spread), runs(0.1), runs(0.1))
    assert spread_beside(file, "t0") == pytest.approx(0.1 if counts else 0.0)


def test_prior_grows_with_what_other_entries_show():
    assert prior_spread("relative", on_host=True) == 0.01
    assert prior_spread("gbps", on_host=True) == 0.03
    assert prior_spread("gbps", on_host=False) == 0.01
    assert prior_spread("gbps", on_host=False, others=0.07) == 0.07


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
