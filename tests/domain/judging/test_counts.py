"""Counts are exact: which changes are a regression, which a gain, and what is said of them."""

import pytest

from pytest_bandwidth.domain.judging.counts import COSTS, judge_counts, pattern_of
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status

NOTHING = Traffic(0, 0)
KNOWN = {"load_sectors": 100, "store_sectors": 50, "bank_conflicts": 0}


def judge(tolerance=0.0, lines=(), **changes):
    return judge_counts({**KNOWN, **changes}, KNOWN, NOTHING, lines, tolerance)


@pytest.mark.parametrize("name", COSTS)
def test_one_more_of_any_cost_is_a_regression(name):
    assert judge_counts({name: 8}, {name: 7}, NOTHING, (), 0.0).status is Status.REGRESSED
    assert judge_counts({name: 7}, {name: 7}, NOTHING, (), 0.0).status is Status.WITHIN
    assert judge_counts({name: 6}, {name: 7}, NOTHING, (), 0.0).status is Status.IMPROVED


@pytest.mark.parametrize(("sectors", "status"), [(103, Status.WITHIN), (104, Status.REGRESSED)])
def test_a_tolerance_lets_pass_what_it_says(sectors, status):
    assert judge(tolerance=0.03, load_sectors=sectors).status is status


def test_what_rose_outweighs_what_fell():
    verdict = judge(load_sectors=200, store_sectors=10, bank_conflicts=3)
    assert verdict.status is Status.REGRESSED
    assert verdict.reason == "sectors loaded 100 → 200, 2×, bank conflicts 0 → 3"


def test_what_costs_nothing_and_what_was_not_known_is_not_judged():
    assert judge(load_requests=10**6, local_bytes=64).status is Status.WITHIN


def test_a_cost_that_was_no_longer_counted_is_not_judged():
    assert judge_counts({"load_sectors": 100}, KNOWN, NOTHING, (), 0.0).status is Status.WITHIN
    assert judge_counts({"load_sectors": 99}, KNOWN, NOTHING, (), 0.0).reason.startswith("sectors loaded 100 → 99")


def test_a_gain_ends_with_the_advice_where_there_is_a_baseline_to_update():
    assert judge(load_sectors=25).reason == "sectors loaded 100 → 25, 0.25×: --bandwidth-update keeps it"
    assert judge_counts({"load_sectors": 1}, {"load_sectors": 2}, NOTHING, (), 0.0, advice="").reason.endswith("0.5×")


def test_a_rise_within_the_tolerance_is_not_called_no_change():
    assert judge().reason == "no count has changed"
    assert judge(tolerance=0.03, load_sectors=103).reason == "no count rose by more than 3.0 %"


def test_the_line_that_wastes_most_is_named():
    def line(number, sectors, coalescing):
        access = {"requests": 1, "sectors": sectors, "sectors_per_request": 32.0, "coalescing": coalescing}
        return {"file": "k.cu", "line": number, "loads": {**access, "pattern": "strided (32 bytes)"}}

    lines = [line(10, 100, 0.5), line(11, 1000, 0.9), line(12, 10_000, 1.0), {"file": "k.cu", "line": 13}]
    reason = judge(lines=lines, load_sectors=200).reason
    assert reason.endswith("; k.cu:11 loads strided (32 bytes), 32.0 sectors a request")


def test_patterns_are_of_what_was_accessed():
    some, none = {"requests": 4, "pattern": "coalesced"}, {"requests": 0, "pattern": "none"}
    assert pattern_of({"loads": some, "stores": none}) == "loads coalesced"
    assert pattern_of({}) == "no global access"


@pytest.mark.parametrize(
    ("seen", "then", "declared", "less"),
    [
        (99, 100, 100, True),
        (100, 100, 100, False),
        (0, 100, 100, True),
        (100, 150, 100, False),  # it no longer reads what nobody declared
        (99, 150, 100, True),
        (80, 80, 100, False),  # as ever
    ],
)
@pytest.mark.parametrize("name", ["distinct_bytes_read", "distinct_bytes_written"])
def test_a_part_of_the_work_that_is_not_done_is_no_gain(name, seen, then, declared, less):
    traffic = Traffic(declared, 0) if name == "distinct_bytes_read" else Traffic(0, declared)
    verdict = judge_counts({name: seen}, {name: then}, traffic, (), 0.0)
    assert ((verdict.status, verdict.code) == (Status.NOT_COMPARABLE, "less-work")) is less


def test_a_rise_elsewhere_outweighs_work_that_is_not_done():
    counts, known = {"distinct_bytes_read": 50, "load_sectors": 2}, {"distinct_bytes_read": 100, "load_sectors": 1}
    assert judge_counts(counts, known, Traffic(100, 0), (), 0.0).status is Status.REGRESSED


def test_counts_that_an_entry_does_not_hold_tell_nothing():
    assert judge_counts({"distinct_bytes_read": 1}, {}, Traffic(100, 100), (), 0.0).status is Status.WITHIN
