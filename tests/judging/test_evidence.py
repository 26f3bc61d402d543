"""What one run and its baseline know before anything is gathered, another device's baseline included."""

from __future__ import annotations

from dataclasses import replace

import pytest
from judged_kernels import (
    CODE,
    EDITED,
    FIVE,
    KEY,
    LIMITS,
    OldCode,
    baseline,
    compared,
    decided,
    entry,
    evidence,
    measured,
    processes,
)

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.judging.decide import mismatch_of
from pytest_bandwidth.judging.evidence import Ask, code_alone
from pytest_bandwidth.judging.limits import MarkerOptions

SETUP = Entry("", bytes_read=100, bytes_written=50, method="clock", settings={"threads": "2", "nvrtc": "13.0"})
COUNTED = Measurement(
    None, Traffic(64, 0), DeviceIdentity("traffic", "sm_90", None, "model", timed_on="nothing"), "ptx", Rounds()
)
SAME = replace(CODE, sass="f" * 32)


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"bytes_read": 99}, ("bytes", "bytes_read", 100, 99)),
        ({"bytes_written": 51}, ("bytes", "bytes_written", 50, 51)),
        ({"method": "events"}, ("method", "method", "clock", "events")),
        ({"settings": {"threads": "4"}}, ("setting:threads", "threads", "2", "4")),
        ({"bytes_read": 99, "method": "events"}, ("bytes", "bytes_read", 100, 99)),
    ],
)
def test_what_was_measured_otherwise_is_a_mismatch(change, difference):
    same = entry(1.0, bytes_read=100, bytes_written=50, method="clock", settings={"threads": "2"})
    assert mismatch_of(SETUP, same) is None
    decision = mismatch_of(SETUP, replace(same, **change))
    rule, name, here, there = difference
    assert (decision.status, decision.rule) == (Status.MISMATCH, rule)
    assert decision.facts == {"name": name, "here": here, "there": there}


def test_what_an_entry_or_a_device_does_not_say_can_be_compared():
    assert mismatch_of(SETUP, Entry("t", gbps=1.0)) is None
    assert mismatch_of(SETUP, Entry("t", gbps=1.0, settings={"ecc": "on"})) is None


@pytest.mark.parametrize(
    ("marker", "of_entry", "figure"),
    [(None, None, "relative"), ("gbps", None, "gbps"), (None, "gbps", "gbps"), ("relative", "gbps", "relative")],
)
def test_marker_and_entry_choose_the_figure(marker, of_entry, figure):
    limits = replace(LIMITS, marker=MarkerOptions(judged_on=marker))
    assert evidence(measured(90.0), baseline(90.0, judged_on=of_entry), limits).stored.figure == figure


def test_without_shares_in_the_entry_gbps_are_compared():
    known = replace(FIVE, entries={KEY: Entry(KEY, runs=(Run(gbps=90.0),) * 5)})
    assert evidence(measured(90.0), known).stored.figure == "gbps"


def test_what_cannot_be_had_says_why_and_ends_what_there_is():
    here = evidence(measured(90.0), FIVE)
    tried = here.without(Ask.OLD_CODE, "its commit is gone")
    assert (tried.old_code_tried, tried.why_not, tried.compared) == (True, ("its commit is gone",), None)
    assert here.without(Ask.OLD_CODE).why_not == ()
    begun = replace(here, compared=compared(0.1, 0.1))
    assert begun.without(Ask.OLD_CODE).compared == compared(0.1, 0.1, ended=True)
    assert here.without(Ask.PROCESSES).fresh_ended == "no new process could run"
    assert here.without(Ask.PROCESSES, "exit status 4").fresh_ended == "exit status 4"


ENTRY = Entry(KEY, gbps=1000.0, tolerance=0.03, bytes_read=5 * 10**8, code=CODE.known(), runs=(Run(1000.0),))
THEIRS = Baseline(BaselineDevice("That card", peak_gbps=2000.0), {KEY: ENTRY, "old": Entry("old", gbps=1.0)}, path="b")
THERE = code_alone(THEIRS)


def test_figures_of_another_device_are_left_out_and_the_same_code_is_unchanged_whatever_they_are():
    assert (THERE.device, THERE.code_of, list(THERE.entries)) == (None, "That card", [KEY])
    entry = THERE.entries[KEY]
    assert (entry.gbps, entry.runs, entry.tolerance, entry.bytes_read) == (None, (), 0.03, 5 * 10**8)
    assert entry.code == {"ptx": CODE.ptx, "launch": CODE.launch}, "machine code is of one architecture"
    found = decided(measured(1.0, code=SAME), THERE, processes())
    assert (found.status, found.rule) == (Status.OK, Rule.CODE_UNCHANGED)
    assert found.numbers.drop is None, "their figures say nothing here"


@pytest.mark.parametrize(("drop", "status"), [(0.031, Status.REGRESSED), (0.030, Status.OK), (-0.1, Status.IMPROVED)])
def test_changed_code_is_decided_by_the_old_at_the_entrys_tolerance(drop, status):
    found = decided(measured(10.0, code=EDITED), THERE, OldCode({KEY: [drop] * 4}), processes())
    assert (found.status, found.rule, found.numbers.tolerance) == (status, Rule.PAIRS, 0.03)


def test_what_no_old_code_settles_or_no_entry_has_is_undecided_and_takes_no_process():
    again = processes(10.0, 10.0, 10.0)
    found = decided(measured(10.0, code=EDITED), THERE, OldCode(why="its PTX is too new"), again)
    assert (found.status, found.rule, found.why_not) == (Status.UNDECIDED, Rule.CODE_ALONE, ("its PTX is too new",))
    assert found.facts == {"code_of": "That card"}
    assert again.rows == []
    found = decided(measured(90.0, code=SAME), replace(THERE, entries={}))
    assert (found.status, found.rule) == (Status.UNDECIDED, Rule.NO_ENTRY)
    assert found.facts["code_of"] == "That card"


def test_the_same_instructions_for_another_architecture():
    ptx = ".version 8.8\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n"
    assert is_same_but_for_target(ptx, ptx.replace("sm_80", "sm_90").replace("8.8", "9.0"))
    assert not is_same_but_for_target(ptx, ptx.replace("ret", "exit"))
