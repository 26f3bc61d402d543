"""Counts are exact: which changes are a regression, which a gain, and which are none."""

from dataclasses import replace

import pytest
from judged_kernels import CODE, EDITED, KEY, LIMITS, decided

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import UNTOUCHED, Finding, Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.decide import COSTS, decide_counts, decide_measured_counts, pattern_of
from pytest_bandwidth.judging.limits import MarkerOptions

NOTHING = Traffic(0, 0)
KNOWN = {"load_sectors": 100, "store_sectors": 50, "bank_conflicts": 0}


def judge(counts, known=KNOWN, declared=NOTHING, tolerance=0.0, **more):
    moved = {"bytes_read": declared.bytes_read, "bytes_written": declared.bytes_written}
    return decide_counts(Entry(KEY, **moved, counts=counts), Entry(KEY, counts=known), tolerance, **more)


def beside(tolerance=0.0, **changes):
    return judge({**KNOWN, **changes}, tolerance=tolerance)


@pytest.mark.parametrize("name", [*COSTS, "of_a_device_that_is_plugged_in"])
def test_one_more_of_any_cost_is_a_regression(name):
    for count, status in ((8, Status.REGRESSED), (7, Status.OK), (6, Status.IMPROVED)):
        assert judge({name: count}, {name: 7}).status is status


def test_occupancy_costs_where_it_falls():
    for warps, status in ((31, Status.REGRESSED), (32, Status.OK), (33, Status.IMPROVED)):
        assert judge({"resident_warps": warps}, {"resident_warps": 32}).status is status
    for warps, status in ((29, Status.OK), (28, Status.REGRESSED)):
        assert judge({"resident_warps": warps}, {"resident_warps": 32}, tolerance=0.1).status is status


@pytest.mark.parametrize(("sectors", "status"), [(103, Status.OK), (104, Status.REGRESSED)])
def test_a_tolerance_lets_pass_what_it_says(sectors, status):
    found = beside(tolerance=0.03, load_sectors=sectors)
    assert (found.status, found.rule) == (status, Rule.COUNTS)
    assert found.facts["changes"] == (("load_sectors", 100, sectors),)


def test_what_rose_outweighs_all_else_and_what_costs_nothing_or_was_not_known_is_not_judged():
    found = beside(load_sectors=200, store_sectors=10, bank_conflicts=3)
    assert found.status is Status.REGRESSED
    assert found.facts["changes"] == (("load_sectors", 100, 200), ("bank_conflicts", 0, 3))
    assert beside(load_bytes=10**6, local_bytes=64).status is Status.OK
    counts, known = {"distinct_bytes_read": 50, "load_sectors": 2}, {"distinct_bytes_read": 100, "load_sectors": 1}
    assert judge(counts, known, Traffic(100, 0)).status is Status.REGRESSED


@pytest.mark.parametrize(
    ("counts", "known", "uncounted"),
    [
        ({"function_calls": 8}, {"calls": 5}, ("calls",)),
        ({"calls": 5}, {"calls": 5, "frames": 0}, ("frames",)),
        ({"load_sectors": 100}, KNOWN, ("store_sectors", "bank_conflicts")),
        ({"load_sectors": 100}, {"load_sectors": 100, "load_bytes": 4}, ()),
    ],
)
def test_what_is_no_longer_counted_is_not_green(counts, known, uncounted):
    found = judge(counts, known)
    assert found.facts.get("uncounted", ()) == uncounted
    assert found.rule == (Rule.UNGATED if uncounted else Rule.COUNTS)


@pytest.mark.parametrize(("count", "ungated"), [(0, False), (1, True)])
@pytest.mark.parametrize("name", ["load_sectors", "store_sectors", "atomic_sectors"])
def test_sectors_that_the_entry_lacks_are_ungated_and_not_green(name, count, ungated):
    found = judge({name: count, "local_bytes": 0}, {"local_bytes": 0})
    assert (found.rule == Rule.UNGATED) is ungated
    assert found.status is (Status.UNDECIDED if ungated else Status.OK)
    gained = judge({name: count, "local_bytes": 0}, {"local_bytes": 8})
    assert gained.status is (Status.UNDECIDED if ungated else Status.IMPROVED)


def test_an_entry_without_counts_decides_nothing():
    found = judge({"load_sectors": 1}, {})
    assert (found.status, found.rule, found.facts) == (Status.UNDECIDED, Rule.EMPTY_ENTRY, {"lacks": "counts"})


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
    found = judge({name: seen}, {name: then}, traffic)
    assert ((found.status, found.rule) == (Status.MISMATCH, Rule.LESS_WORK)) is less
    assert not less or found.facts == {"change": (name, then, seen, declared)}


@pytest.mark.parametrize(("sectors", "status"), [(99, "MISMATCH"), (100, "OK"), (101, "REGRESSED")])
def test_fewer_counts_are_no_gain_where_no_kernel_touches_a_declared_array(sectors, status):
    untouched = Finding(UNTOUCHED, "array 1 of writes= is written by no kernel")
    device = DeviceIdentity("traffic", "traffic sm_90", None, "t", timed_on="nothing")
    counts, rounds = {"load_sectors": sectors}, Rounds(stop="counted")
    measured = Measurement(None, NOTHING, device, "ptx", rounds, counts=counts, findings=(untouched,))
    found = decide_measured_counts(measured, Entry(KEY, counts={"load_sectors": 100}), 0.0)
    assert found.status == status
    unlike = decide_measured_counts(replace(measured, findings=()), Entry(KEY, counts={"load_sectors": 102}), 0.0)
    assert unlike.status is Status.IMPROVED


COUNTING = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")


def counted(code=CODE, declared=64, settings=None, **counts):
    device = replace(COUNTING, settings=settings or {})
    return Measurement(None, Traffic(declared, 0), device, "ptx", Rounds(), counts=counts, code=code)


def of_counts(settings=None, tolerance=None, **counts):
    entry = Entry(KEY, counts=counts, code=CODE.known(), settings=settings or {}, tolerance=tolerance)
    return Baseline(BaselineDevice("traffic sm_90"), {KEY: entry}, path="b.yaml")


@pytest.mark.parametrize(
    ("code", "sectors", "settings", "rule"),
    [
        (CODE, 100, {}, Rule.CODE_UNCHANGED),
        (CODE, 101, {}, Rule.COUNTS),
        (CODE, 100, {"arch": "sm_80"}, "setting:arch"),
        (EDITED, 100, {}, "setting:nvrtc"),
        (CodeIdentity(), 100, {}, "setting:nvrtc"),
    ],
)
def test_counts_of_the_same_ptx_are_comparable_whichever_compiler_made_it(code, sectors, settings, rule):
    known = of_counts({"arch": "sm_90", "nvrtc": "13.5"}, load_sectors=100)
    here = counted(code, settings={"arch": "sm_90", "nvrtc": "13.0", **settings}, load_sectors=sectors)
    assert decided(here, known).rule == rule


@pytest.mark.parametrize(
    ("nvrtc", "local", "rule", "same"),
    [
        ("13.5", 4, Rule.CODE_UNCHANGED, True),
        ("13.5", 8, Rule.COUNTS, False),
        ("13.0", 4, Rule.CODE_UNCHANGED, True),
        ("13.0", 8, Rule.CODE_UNCHANGED, True),
        ("13.0", 0, Rule.CODE_UNCHANGED, True),
    ],
)
def test_the_same_ptx_that_the_same_compiler_made_worse_code_of_is_other_code(nvrtc, local, rule, same):
    known = of_counts({"nvrtc": "13.5"}, load_sectors=100, local_bytes_per_thread=4)
    found = decided(counted(settings={"nvrtc": nvrtc}, load_sectors=100, local_bytes_per_thread=local), known)
    assert (found.rule, found.facts.get("same_code")) == (rule, same)


@pytest.mark.parametrize(("of_marker", "status"), [(0.0, Status.REGRESSED), (None, Status.OK)])
def test_a_markers_tolerance_of_nothing_holds_for_counts_before_the_entrys(of_marker, status):
    limits = replace(LIMITS, marker=MarkerOptions(tolerance=of_marker))
    known = of_counts(tolerance=0.05, load_sectors=100)
    assert decided(counted(load_sectors=102), known, limits=limits).status is status
    assert decided(counted(load_sectors=102), of_counts(load_sectors=100)).status is Status.REGRESSED


@pytest.mark.parametrize(
    ("known", "writes", "rule"),
    [
        (None, "none", Rule.NO_BASELINE),
        (of_counts(load_sectors=100), "all", Rule.WRITTEN),
        (replace(of_counts(), entries={}), "new", Rule.WRITTEN),
        (replace(of_counts(), entries={}), "none", Rule.NO_ENTRY),
    ],
)
def test_floors_of_time_say_nothing_where_no_time_is_measured(known, writes, rule):
    limits = replace(LIMITS, writes=writes, marker=MarkerOptions(min_gbps=1e9))
    assert decided(counted(load_sectors=900), known, limits=limits).rule == rule


def test_patterns_are_of_what_was_accessed():
    some, none = {"requests": 4, "pattern": "coalesced"}, {"requests": 0, "pattern": "none"}
    assert pattern_of({"loads": some, "stores": none}) == "loads coalesced"
    assert pattern_of({"loads": none, "stores": none}) == "no global access"
    assert pattern_of({}) is None
