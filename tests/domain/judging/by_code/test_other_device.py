"""What a baseline of another device says: by its code alone, and by old code beside new."""

import pytest

from pytest_bandwidth.domain.baseline import Baseline, BaselineDevice, Entry, Run
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.judging.by_code.last_word import LastWords
from pytest_bandwidth.domain.judging.by_code.other_device import code_alone, has_code
from pytest_bandwidth.domain.judging.judge import judge_test
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status, Verdict

CARD = DeviceIdentity("cuda", "This card", 2**34, "GPU-1")
PLAIN = MarkerOptions()
THEN = {"ptx": "p" * 32, "sass": "s" * 32, "launch": "l" * 32}
ENTRY = Entry("k", gbps=1000.0, tolerance=0.03, bytes_read=10**6, bytes_written=0, code=THEN, runs=(Run(1000.0),))
THEIRS = Baseline(BaselineDevice("That card", peak_gbps=2000.0), {"k": ENTRY, "old": Entry("old", gbps=1.0)}, path="b")
SAME = CodeIdentity(ptx="p" * 32, sass="t" * 32, launch="l" * 32)
CHANGED = CodeIdentity(ptx="q" * 32, sass="t" * 32, launch="l" * 32)


def measured(code, reads=10**6):
    rounds = Rounds((1e-4,) * 9, (1e-5,) * 9, (True,) * 9, probe_bytes=10**6)
    return Measurement(None, Traffic(reads, 0), CARD, "events", rounds, code=code)


def judged(measurement, *ways, marker=PLAIN):
    def never(*_):
        raise AssertionError("no stored figure of another device is worth a process")

    found = judge_test({"k": measurement}, code_alone(THEIRS), Limits(marker, 0.05, 3), never, never, ways=ways)
    return found["k"]


def test_figures_of_another_device_are_left_out():
    there = code_alone(THEIRS)
    assert (there.device, there.code_of, list(there.entries)) == (None, "That card", ["k"])
    entry = there.entries["k"]
    assert (entry.gbps, entry.runs, entry.tolerance) == (None, (), 0.03)
    assert entry.code == {"ptx": "p" * 32, "launch": "l" * 32}, "machine code is of one architecture"
    assert has_code(THEIRS)
    assert not has_code(Baseline(None, {"old": Entry("old", gbps=1.0)}))


def test_the_same_code_is_unchanged_a_tenth_as_fast_as_it_may_be():
    one = judged(measured(SAME))
    assert one.verdict.status is Status.UNCHANGED
    assert "the baseline of That card, whose figures say nothing here" in one.verdict.reason


@pytest.mark.parametrize("status", [Status.REGRESSED, Status.WITHIN])
def test_changed_code_is_settled_by_the_old_whatever_it_measured(status):
    seen = []

    def way(suspects):
        seen.extend(suspects.values())
        return LastWords({key: Verdict(status, "old-kernel", "beside it") for key in suspects})

    assert judged(measured(CHANGED), way).verdict.status is status
    (suspect,) = seen
    assert (suspect.case.tolerance, suspect.case.reference) == (0.03, None)


def test_what_nothing_settles_has_no_baseline_and_says_why():
    one = judged(measured(CHANGED), lambda suspects: LastWords(why_not=dict.fromkeys(suspects, "its PTX is too new")))
    assert one.verdict.status is Status.NO_BASELINE
    why = "whose figures say nothing here, and the kernel's code changed; its PTX is too new"
    assert one.verdict.reason == f"the baseline is of That card, {why}"
    assert "the code is not known on both sides" in judged(measured(CodeIdentity())).verdict.reason


def test_bytes_and_floors_hold_as_ever():
    assert judged(measured(SAME, reads=10**5)).verdict.status is Status.NOT_COMPARABLE
    held = judged(measured(SAME), marker=MarkerOptions(min_gbps=1e-6))
    assert held.verdict.status is Status.UNCHANGED


def test_the_same_instructions_for_another_architecture():
    ptx = ".version 8.8\n.target sm_80\n.address_size 64\n.entry k() { ret; }\n"
    assert is_same_but_for_target(ptx, ptx.replace("sm_80", "sm_90").replace("8.8", "9.0"))
    assert not is_same_but_for_target(ptx, ptx.replace("ret", "exit"))
