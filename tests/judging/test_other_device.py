"""What a baseline of another device says: by its code alone, and by old code next to new."""

from dataclasses import replace

import pytest
from judged_kernels import CODE, EDITED, KEY, LIMITS, OldCode, decided, measured, processes

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.evidence import code_alone, has_code
from pytest_bandwidth.judging.limits import MarkerOptions

ENTRY = Entry(KEY, gbps=1000.0, tolerance=0.03, bytes_read=5 * 10**8, code=CODE.known(), runs=(Run(1000.0),))
THEIRS = Baseline(BaselineDevice("That card", peak_gbps=2000.0), {KEY: ENTRY, "old": Entry("old", gbps=1.0)}, path="b")
THERE = code_alone(THEIRS)
SAME = replace(CODE, sass="f" * 32)


def test_figures_of_another_device_are_left_out():
    assert (THERE.device, THERE.code_of, list(THERE.entries)) == (None, "That card", [KEY])
    entry = THERE.entries[KEY]
    assert (entry.gbps, entry.runs, entry.tolerance, entry.bytes_read) == (None, (), 0.03, 5 * 10**8)
    assert entry.code == {"ptx": CODE.ptx, "launch": CODE.launch}, "machine code is of one architecture"
    assert has_code(THEIRS)
    assert not has_code(Baseline(None, {"old": Entry("old", gbps=1.0)}))


@pytest.mark.parametrize("gbps", [1.0, 1000.0, 5000.0])
def test_the_same_code_is_unchanged_whatever_its_figures(gbps):
    found = decided(measured(gbps, code=SAME), THERE, processes())
    assert (found.status, found.rule) == (Status.OK, Rule.CODE_UNCHANGED)
    assert found.numbers.drop is None, "their figures say nothing here"


@pytest.mark.parametrize(("drop", "status"), [(0.031, Status.REGRESSED), (0.030, Status.OK), (-0.1, Status.IMPROVED)])
def test_changed_code_is_decided_by_the_old_at_the_entrys_tolerance(drop, status):
    found = decided(measured(10.0, code=EDITED), THERE, OldCode({KEY: [drop] * 4}), processes())
    assert (found.status, found.rule, found.numbers.tolerance) == (status, Rule.PAIRS, 0.03)


@pytest.mark.parametrize("code", [EDITED, CodeIdentity()])
def test_what_no_old_code_settles_is_undecided_and_takes_no_process(code):
    again = processes(10.0, 10.0, 10.0)
    found = decided(measured(10.0, code=code), THERE, OldCode(why="its PTX is too new"), again)
    assert (found.status, found.rule, found.why_not) == (Status.UNDECIDED, Rule.CODE_ALONE, ("its PTX is too new",))
    assert found.facts == {"code_of": "That card"}
    assert again.rows == []


def test_bytes_and_floors_hold_as_ever():
    other = replace(THERE, entries={KEY: replace(THERE.entries[KEY], bytes_read=1)})
    assert decided(measured(90.0, code=SAME), other).status is Status.MISMATCH
    floor = replace(LIMITS, marker=MarkerOptions(min_gbps=85.0))
    assert decided(measured(90.0, code=SAME), THERE, limits=floor).rule == Rule.CODE_UNCHANGED
    again = processes(80.0, 80.0, 80.0)
    assert decided(measured(80.0, code=SAME), THERE, again, limits=floor).rule == "floor:min_gbps"


def test_an_entry_that_the_other_device_lacks_says_so():
    found = decided(measured(90.0, code=SAME), replace(THERE, entries={}))
    assert (found.status, found.rule) == (Status.UNDECIDED, Rule.NO_ENTRY)
    assert found.facts["code_of"] == "That card"


def test_the_same_instructions_for_another_architecture():
    ptx = ".version 8.8\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n"
    assert is_same_but_for_target(ptx, ptx.replace("sm_80", "sm_90").replace("8.8", "9.0"))
    assert not is_same_but_for_target(ptx, ptx.replace("ret", "exit"))
