"""How many pairs are taken, in which order, and what stands in their way; processes are scripted rows here."""

import math
from contextlib import contextmanager
from dataclasses import replace
from itertools import count

import pytest

from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.judging.by_code.last_word import LastWords
from pytest_bandwidth.domain.judging.by_code.paired import SETTLING
from pytest_bandwidth.domain.judging.causes import likely_causes
from pytest_bandwidth.domain.judging.drop import setup_of
from pytest_bandwidth.domain.judging.judge import Judged
from pytest_bandwidth.domain.judging.limits import Limits
from pytest_bandwidth.domain.judging.marker import MarkerOptions
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.outcomes.flatten import outcome_of
from pytest_bandwidth.domain.outcomes.outcome import from_plain
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.session.against import pairs_loop
from pytest_bandwidth.session.against.checkout import Revision
from pytest_bandwidth.session.against.pairs_loop import (
    PairsTaken,
    Subject,
    can_take_turns,
    judge_against,
    judge_timed,
    with_floors,
)
from pytest_bandwidth.session.against.worktrees import FailsThere, InTurn, NothingThere
from pytest_bandwidth.session.fresh.child import FreshProcessFailed

BYTES = 10**9
HOST = DeviceIdentity("cpu", "A host", 2**30, "host")
LIMITS = Limits(MarkerOptions(), 0.05, 3)


def measured(gbps, probe_gbps=100.0, label=None, reads=BYTES):
    rounds = Rounds((BYTES / gbps / 1e9,), (BYTES / probe_gbps / 1e9,), (True,), probe_bytes=BYTES)
    return Measurement(label, Traffic(reads, BYTES - reads), HOST, "clock", rounds)


def row(measurement, status=Status.NO_BASELINE):
    return outcome_of("t.py::t", "t.py::t", measurement, Verdict(status, "", "busy with others")).to_plain()


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch):
    """As on a GPU, whatever the rows' device is; in turn where a test asks for it."""
    monkeypatch.setattr(pairs_loop, "can_take_turns", lambda *_: False)


class ScriptedWorktrees:
    """A side's processes give its steps in turn: (GB/s, probe's GB/s) by label, an error, None for an invalid one."""

    revision = Revision("main", "3f2c1ab" * 6, "/r", "/t")

    def __init__(self, head, base):
        self._scripts = {"head": head, "base": base}
        self._positions = {"head": count(), "base": count()}
        self.locked = ""
        self.in_turn_raises = None
        self.alike = ()

    @property
    def order(self):
        return self.locked.replace("[", "").replace("]", "")

    def in_turn(self, _number):
        """Raises where a test says so: as where it looks at figures that are not there in turn."""
        self.locked += "T"
        if self.in_turn_raises is not None:
            raise self.in_turn_raises
        return InTurn([row(measured(70.0))], [row(measured(100.0))], {None: math.log(100 / 70)}, self.alike)

    def head(self):
        return self._next("head")

    def base(self):
        return self._next("base")

    @contextmanager
    def held(self):
        """The device's lock, which shows as brackets in the order."""
        self.locked += "["
        yield
        self.locked += "]"

    def _count(self, rows):
        self.locked += "B"
        return rows

    def _next(self, side):
        self.locked += {"head": "A", "base": "B"}[side]
        script = self._scripts[side]
        step = script[next(self._positions[side]) % len(script)]
        if isinstance(step, Exception):
            raise step
        if step is None:
            return [row(measured(1.0), Status.INVALID)]
        return [row(measured(*figures, label)) for label, figures in step.items()]


def judge(worktrees, labels=(None,), pairs=4, limits=LIMITS):
    found = judge_against(
        {str(label): measured(70.0, label=label) for label in labels}, limits, worktrees, pairs, str, worktrees.held
    )
    return {key: one.verdict for key, one in found.items()}


def only(*figures):
    return [{None: one} for one in figures]


def test_pairs_alternate_in_order_and_end_with_the_number_asked_for():
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), only((80.0, 100.0)))
    assert judge(worktrees)["None"].status is Status.WITHIN
    assert worktrees.order == "ABBAABBA"


@pytest.mark.parametrize("error", [FreshProcessFailed("found None, expected a share"), FailsThere("fails at main")])
def test_a_test_that_fails_in_turn_takes_pairs_one_after_the_other(monkeypatch, error):
    monkeypatch.setattr(pairs_loop, "can_take_turns", lambda *_: True)
    worktrees = ScriptedWorktrees(only((70.0, 100.0)), only((100.0, 100.0)))
    worktrees.in_turn_raises = error
    assert judge(worktrees)["None"].status is Status.REGRESSED
    assert worktrees.order == "TABBAABBA"


def test_what_the_other_revision_lacks_is_not_measured_again(monkeypatch):
    monkeypatch.setattr(pairs_loop, "can_take_turns", lambda *_: True)
    worktrees = ScriptedWorktrees(only((70.0, 100.0)), only((100.0, 100.0)))
    worktrees.in_turn_raises = NothingThere("main has no such test")
    assert judge(worktrees)["None"].status is Status.NO_BASELINE
    assert worktrees.order == "T"


@pytest.mark.parametrize(("alike", "taken"), [((None,), 4), ((), 5), (("another",), 5)])
def test_what_had_all_in_common_is_settled_by_fewer_pairs(alike, taken):
    worktrees = ScriptedWorktrees([], [])
    worktrees.alike = alike
    pairs = PairsTaken(worktrees, str, worktrees.held, in_turn=True)
    found = judge_timed({"t": Subject(None, setup_of(measured(70.0)), LIMITS)}, pairs, SETTLING)
    assert found["t"].verdict.status is Status.REGRESSED
    assert worktrees.order == "T" * taken


def test_what_the_other_revision_measured_once_and_then_did_not_is_judged_too():
    twice, both = {"a": (70.0, 100.0), "b": (70.0, 100.0)}, {"a": (100.0, 100.0), "b": (100.0, 100.0)}
    worktrees = ScriptedWorktrees([twice], [{"a": (100.0, 100.0)}, *[both] * 9])
    pairs = PairsTaken(worktrees, str, worktrees.held)
    subjects = {label: Subject(label, setup_of(measured(70.0)), LIMITS) for label in "ab"}
    found = judge_timed(subjects, pairs, SETTLING)
    assert {key: one.verdict.status for key, one in found.items()} == {"a": Status.REGRESSED, "b": Status.REGRESSED}


def test_what_can_take_turns(monkeypatch):
    monkeypatch.setattr(pairs_loop, "limit_bytes", lambda: None)
    revision = ScriptedWorktrees.revision
    one = replace(measured(70.0), device=replace(HOST, memory_bytes=None))
    assert can_take_turns([one, one], revision)
    compared = replace(one, rounds=replace(one.rounds, interleaved=((1.0,),)))
    for another in (compared, replace(one, device=HOST), replace(one, device=replace(HOST, kind="cuda"))):
        assert not can_take_turns([one, another], revision), "compared callables, too little memory, a GPU"
    monkeypatch.setattr(pairs_loop, "limit_bytes", lambda: 8 * 2 * one.bytes_moved - 1)
    assert not can_take_turns([one, one], revision), "too little memory in its control group"


def test_the_device_is_held_for_each_pair_and_free_between_pairs():
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), only((80.0, 100.0)))
    judge(worktrees)
    assert worktrees.locked == "[AB][BA][AB][BA]"


def test_regressed_after_the_number_asked_for():
    worktrees = ScriptedWorktrees(only((70.0, 100.0)), only((80.0, 100.0)))
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.code, verdict.baseline_runs) == (Status.REGRESSED, "pairs", 4)
    assert verdict.confirmations == pytest.approx((0.7,) * 4)


def test_undecided_pairs_are_extended_to_twice_as_many():
    noisy = only((80.0, 100.0), (80.0, 100.0), (90.0, 100.0), (70.0, 100.0))
    worktrees = ScriptedWorktrees(noisy, only((80.0, 100.0)))
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.baseline_runs) == (Status.INSUFFICIENT, 8)
    assert len(worktrees.order) == 16


def test_what_was_decided_stays_so_while_others_are_extended():
    steady, noisy = (70.0, 100.0), [(80.0, 100.0), (60.0, 100.0), (80.0, 100.0), (100.0, 100.0)]
    worktrees = ScriptedWorktrees(
        [{"steady": steady, "noisy": one} for one in noisy], [{"steady": (80.0, 100.0), "noisy": (80.0, 100.0)}]
    )
    found = judge(worktrees, ("steady", "noisy"))
    assert (found["steady"].status, found["steady"].baseline_runs) == (Status.REGRESSED, 4)
    assert (found["noisy"].status, found["noisy"].baseline_runs) == (Status.INSUFFICIENT, 8)


def test_pairs_within_which_the_machine_changed_are_taken_again():
    flips = only((80.0, 100.0), (54.0, 68.0), (80.0, 100.0), (80.0, 100.0), (80.0, 100.0))
    worktrees = ScriptedWorktrees(flips, only((80.0, 100.0)))
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.baseline_runs) == (Status.WITHIN, 4)
    assert worktrees.order == "ABBAABBAAB"
    assert "1 taken again" in verdict.reason


def test_a_machine_that_changes_within_every_pair_ends_in_invalid():
    worktrees = ScriptedWorktrees(only((54.0, 68.0)), only((80.0, 100.0)))
    assert judge(worktrees)["None"].status is Status.INVALID
    assert len(worktrees.order) == 2 * 2 * 2 * 4


def test_invalid_measurements_make_no_pair():
    worktrees = ScriptedWorktrees([None, *only((80.0, 100.0))], only((80.0, 100.0)))
    assert judge(worktrees)["None"].baseline_runs == 4
    assert judge(ScriptedWorktrees([None], only((80.0, 100.0))))["None"].code == "no-pair"


def test_the_other_revision_chooses_the_figure():
    """A kernel that fell from 80 % to 20 % of its probe must not be judged as if memory were not what it waits for."""
    worktrees = ScriptedWorktrees(only((20.0, 100.0)), only((80.0, 100.0)))
    assert judge(worktrees)["None"].figure == "relative"
    assert judge(ScriptedWorktrees(only((80.0, 100.0)), only((20.0, 100.0))))["None"].figure == "gbps"


@pytest.mark.parametrize(
    ("judged_on", "status"), [(None, Status.INVALID), ("relative", Status.INVALID), ("gbps", Status.IMPROVED)]
)
def test_a_share_that_cannot_be_believed_is_no_gain(judged_on, status):
    worktrees = ScriptedWorktrees(only((400.0, 100.0)), only((80.0, 100.0)))
    verdict = judge(worktrees, limits=replace(LIMITS, marker=MarkerOptions(judged_on=judged_on)))["None"]
    assert verdict.status is status
    if status is Status.INVALID:
        assert verdict.reason == (
            "400 % of the probe's bandwidth, past 200 %, tell nothing: the probe was hindered, or less moved than was "
            "declared; judged_on=gbps judges without the probe"
        )
    assert len(worktrees.order) == 8  # more pairs would not make it believable


def test_pairs_that_do_not_count_take_no_belief_away():
    # In every other pair the probe was hindered on this side, so that the machine changed between its processes.
    worktrees = ScriptedWorktrees(only((80.0, 100.0), (80.0, 20.0)), only((80.0, 100.0)))
    assert judge(worktrees)["None"].status is Status.WITHIN


def test_a_share_that_was_past_belief_there_as_well_is_compared():
    worktrees = ScriptedWorktrees(only((400.0, 100.0)), only((390.0, 100.0)))
    assert (
        judge(worktrees, limits=replace(LIMITS, marker=MarkerOptions(judged_on="relative")))["None"].status
        is Status.WITHIN
    )


def test_absent_there():
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), [NothingThere("main has no such test")])
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.reason) == (Status.NO_BASELINE, "main has no such test")
    assert worktrees.order == "AB"


def test_a_process_that_measures_nothing_there_later_on_costs_its_pair_only():
    fails_once = [*only(*[(80.0, 100.0)] * 3), NothingThere("the test fails at main"), *only((80.0, 100.0))]
    worktrees = ScriptedWorktrees(only((70.0, 100.0)), fails_once)
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.baseline_runs) == (Status.REGRESSED, 4)
    assert worktrees.order == "ABBAABBAAB"


def test_processes_that_measure_nothing_there_after_an_invalid_one_end_in_invalid():
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), [None, *[NothingThere("the test fails at main")] * 15])
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.code) == (Status.INVALID, "no-pair")
    assert len(worktrees.order) == 2 * 2 * 2 * 4


def test_a_label_that_is_absent_there_does_not_ask_for_pairs():
    worktrees = ScriptedWorktrees([{"a": (80.0, 100.0), "b": (80.0, 100.0)}], [{"a": (80.0, 100.0)}])
    found = judge(worktrees, ("a", "b"))
    assert (found["a"].status, found["b"].status) == (Status.WITHIN, Status.NO_BASELINE)
    assert len(worktrees.order) == 8


def test_other_byte_counts_are_not_comparable():
    head = measured(80.0, reads=BYTES // 2)
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), only((80.0, 100.0)))
    found = judge_against({"k": head}, LIMITS, worktrees, 2, str, worktrees.held)
    assert (found["k"].verdict.status, found["k"].verdict.code) == (Status.NOT_COMPARABLE, "bytes")
    assert found["k"].verdict.reason.endswith(f", {worktrees.revision}'s is 1000000000 (1 GB)")


def test_a_process_that_breaks_is_an_error_and_no_verdict():
    with pytest.raises(FreshProcessFailed, match="broke"):
        judge(ScriptedWorktrees([FreshProcessFailed("broke")], only((80.0, 100.0))))


TRAFFIC = DeviceIdentity("traffic", "PTX", None, "traffic", settings={"arch": "sm_80"})


def counted(load_sectors, label=None, reads=BYTES, **more):
    """What the traffic device measures: no time, counts."""
    counts = {"load_sectors": load_sectors}
    return Measurement(label, Traffic(reads, 0), TRAFFIC, "ptx", Rounds(), counts=counts, **more)


class CountedWorktrees(ScriptedWorktrees):
    """The other revision's process gives the rows of these measurements."""

    def __init__(self, *base):
        super().__init__([], [])
        self._base = base

    def base(self):
        self.locked += "B"
        return [row(measurement) for measurement in self._base]


@pytest.mark.parametrize(
    ("sectors", "status", "reason"),
    [
        (101, Status.REGRESSED, "sectors loaded 100 → 101, 1.01×"),
        (100, Status.WITHIN, "no count has changed"),
        (99, Status.IMPROVED, "sectors loaded 100 → 99, 0.99×"),
    ],
)
def test_counts_need_one_process_of_the_other_revision(sectors, status, reason):
    worktrees = CountedWorktrees(counted(100))
    (found,) = judge_against({"k": counted(sectors)}, LIMITS, worktrees, 5, str, worktrees.held).values()
    assert (found.verdict.status, found.verdict.reason) == (status, reason)
    assert found.entry.counts == {"load_sectors": 100}
    assert worktrees.locked == "[B]"


def test_counts_that_cannot_be_compared():
    worktrees = CountedWorktrees(counted(100, "a"), counted(100, "b", reads=BYTES // 2))
    head = {label: counted(100, label) for label in ("a", "b", "c")}
    found = {key: one.verdict for key, one in judge_against(head, LIMITS, worktrees, 5, str, worktrees.held).items()}
    assert found["a"].status is Status.WITHIN
    assert (found["b"].status, found["b"].code) == (Status.NOT_COMPARABLE, "bytes")
    assert f"{worktrees.revision}'s is 500000000 (500 MB)" in found["b"].reason
    assert (found["c"].status, found["c"].code) == (Status.NO_BASELINE, "not-there")


def test_the_markers_tolerance_holds_for_counts_and_the_options_does_not():
    def status(limits):
        worktrees = CountedWorktrees(counted(100))
        found = judge_against({"k": counted(104)}, limits, worktrees, 5, str, worktrees.held)
        return found["k"].verdict.status

    assert status(Limits(MarkerOptions(), 0.05, 3)) is Status.REGRESSED
    assert status(Limits(MarkerOptions(tolerance=0.05), 0.05, 3)) is Status.WITHIN


def test_what_the_compiler_gave_there_is_known_to_the_messages():
    resources = KernelResources(32, 0, 4096, max_threads_per_block=1024, occupancy=0.5)
    base = counted(100, resources=resources)
    worktrees = CountedWorktrees(base)
    (found,) = judge_against({"k": counted(100)}, LIMITS, worktrees, 5, str, worktrees.held).values()
    now = replace(found.measurement, resources=replace(resources, registers=96, occupancy=0.25))
    assert likely_causes(now, found.entry)[:2] == ("registers 32 → 96", "occupancy 50 → 25 %")


def test_a_missed_floor_counts_unless_the_comparison_fails_by_itself():
    def one(status, code):
        return {"k": Judged(measured(80.0), None, Verdict(status, code, ""))}

    floor, passed = one(Status.UNCONFIRMED, "floor:min_gbps"), one(Status.WITHIN, "floors")
    assert with_floors(one(Status.WITHIN, "pairs"), floor) == floor
    assert with_floors(one(Status.REGRESSED, "pairs"), floor) == one(Status.REGRESSED, "pairs")
    assert with_floors(one(Status.WITHIN, "pairs"), passed) == one(Status.WITHIN, "pairs")


CODE = CodeIdentity(function="f", launch="l")


def told(measurement, code=CODE, **detail):
    return from_plain({**row(replace(measurement, code=code, detail=detail))})


def judged_with_told(measurements, rows, worktrees):
    found = judge_against(measurements, LIMITS, worktrees, 4, str, worktrees.held, rows)
    return {key: one.verdict for key, one in found.items()}


def test_what_runs_the_same_code_there_needs_no_process():
    same = replace(measured(70.0, label="same"), code=CODE)
    worktrees = ScriptedWorktrees([], [])
    verdict = judged_with_told({"same": same}, {"same": told(same)}, worktrees)["same"]
    assert (verdict.status, verdict.code) == (Status.UNCHANGED, "same-code")
    assert verdict.reason == "the code is that of main (3f2c1ab3f2): it took no process there"
    assert worktrees.order == ""


def test_beside_the_same_code_the_rest_of_a_test_takes_pairs():
    same, other = (replace(measured(80.0, label=label), code=CODE) for label in ("same", "other"))
    rows = {"same": told(same), "other": told(other, CodeIdentity(function="g", launch="l"))}
    both = [{"same": (80.0, 100.0), "other": (70.0, 100.0)}], [{"same": (80.0, 100.0), "other": (80.0, 100.0)}]
    worktrees = ScriptedWorktrees(*both)
    verdicts = judged_with_told({"other": other, "same": same}, rows, worktrees)
    assert {key: one.status for key, one in verdicts.items()} == {
        "other": Status.REGRESSED,
        "same": Status.UNCHANGED,
    }
    assert list(verdicts) == ["other", "same"]
    assert worktrees.order == "ABBAABBA"


def test_what_a_way_settles_takes_no_pair_and_of_the_rest_the_reason_says_why():
    """Asked for is what the revision told of, where it is valid and moves as much there."""
    code = CodeIdentity(function="g", launch="l")
    found = {label: replace(measured(80.0, label=label), code=code) for label in "abcde"}
    found["d"] = replace(found["d"], invalid=Finding("busy", "others were active"))
    rows = {label: told(one) for label, one in found.items() if label != "e"}
    rows["c"] = told(measured(80.0, label="c", reads=BYTES // 2))
    asked = {}

    def way(suspects):
        asked.update(suspects)
        return LastWords({"a": Verdict(Status.REGRESSED, "old-kernel", "slower")}, {"b": "it faults"})

    figures = dict.fromkeys("abcde", (80.0, 100.0))
    worktrees = ScriptedWorktrees([figures], [figures])
    judged = judge_against(found, LIMITS, worktrees, 4, str, worktrees.held, rows, [way])
    assert {key: (one.case.tolerance, one.entry.code) for key, one in asked.items()} == dict.fromkeys(
        "ab", (0.05, CODE.known())
    )
    verdicts = {key: (one.verdict.status, one.verdict.code) for key, one in judged.items()}
    assert verdicts == {"a": (Status.REGRESSED, "old-kernel"), **dict.fromkeys("bcde", (Status.WITHIN, "pairs"))}
    assert [key for key, one in judged.items() if one.verdict.reason.endswith("; it faults")] == ["b"]
    assert judged["a"].entry == asked["a"].entry
    assert worktrees.order == "ABBAABBA"


def counted_on(label, inputs):
    device = DeviceIdentity("traffic", "traffic sm_90", None, "model")
    found = replace(measured(1.0, label=label), device=device, method="ptx", counts={"load_sectors": 8})
    return replace(found, rounds=Rounds(), code=CodeIdentity(ptx="p", launch="l"), detail={"inputs": inputs})


@pytest.mark.parametrize(
    ("inputs_of_second", "order", "status"), [("b", "", Status.UNCHANGED), ("c", "B", Status.WITHIN)]
)
def test_of_what_is_counted_all_of_a_test_is_the_same_or_nothing_is(inputs_of_second, order, status):
    """A later launch may count what an earlier one left behind."""
    first, second = counted_on("first", "a"), counted_on("second", "b")
    rows = {one.label: from_plain(row(one)) for one in (first, counted_on("second", inputs_of_second))}
    worktrees = ScriptedWorktrees([], [])
    worktrees.base = lambda: worktrees._count([row(first), row(second)])
    verdicts = judged_with_told({"first": first, "second": second}, rows, worktrees)
    assert {one.status for one in verdicts.values()} == {status}
    assert worktrees.order == order
