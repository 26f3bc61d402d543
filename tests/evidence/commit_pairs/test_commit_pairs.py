"""How many pairs are taken, in which order, and what stands in their way; processes are scripted rows here."""

from __future__ import annotations

import math
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from types import MappingProxyType

import pytest
from judged_kernels import asked_test

from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources, Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.evidence.commit_pairs import pairs as pairing
from pytest_bandwidth.evidence.commit_pairs.pairs import (
    CommitPairs,
    PairsTaken,
    Subject,
    against_evidence,
    can_take_turns,
    compare_timed,
    decide_counted,
)
from pytest_bandwidth.evidence.commit_pairs.process import FailsThere, MeasuredPair, NothingThere, by_label
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed
from pytest_bandwidth.judging.evidence import setup_of
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.judging.judge import judge as judge_evidence
from pytest_bandwidth.judging.limits import Limits, MarkerOptions
from pytest_bandwidth.judging.pairs import Looks
from pytest_bandwidth.outcomes.outcome import from_plain, outcome_of

BYTES = 10**9
HOST = DeviceIdentity("cpu", "A host", 2**30, "host")
LIMITS = Limits(MarkerOptions(), 0.05, 3)


def measured(gbps, probe_gbps=100.0, label=None, reads=BYTES):
    rounds = Rounds((BYTES / gbps / 1e9,), (BYTES / probe_gbps / 1e9,), (True,), probe_bytes=BYTES)
    return Measurement(label, Traffic(reads, BYTES - reads), HOST, "clock", rounds)


def row(measurement):
    judged = Judged(measurement, None, Decision(Status.UNDECIDED, "new-process"))
    return outcome_of("t.py::t", "t.py::t", judged, "busy").to_plain()


BUSY = Finding("others", "busy with others")


@pytest.fixture(autouse=True)
def one_after_the_other(monkeypatch):
    """As on a GPU, whatever the rows' device is; in turn where a test asks for it."""
    monkeypatch.setattr(pairing, "can_take_turns", lambda *_: False)


class ScriptedWorktrees:
    """A side's processes give its steps in turn: (GB/s, probe's GB/s) by label, an error, None for an invalid one."""

    revision = Revision("main", "3f2c1ab" * 6, "/r", "/t")

    def __init__(self, head, base):
        self._scripts = {"head": head, "base": base}
        self._positions = {"head": count(), "base": count()}
        self.locked = ""
        self.alternating_raises = None
        self.alike = ()

    @property
    def order(self):
        return self.locked.replace("[", "").replace("]", "")

    def alternating(self, _number, _precision):
        """Raises where a test says so: as where it looks at figures that are not there in turn."""
        self.locked += "T"
        if self.alternating_raises is not None:
            raise self.alternating_raises
        rows = ([row(measured(70.0))], [row(measured(100.0))])
        return MeasuredPair(*map(by_label, rows), {None: math.log(100 / 70)}, self.alike)

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
            return [row(replace(measured(1.0), invalid=BUSY))]
        return [row(measured(*figures, label)) for label, figures in step.items()]


def judged(measurements, worktrees, rows=MappingProxyType({}), resolvers=(), limits=LIMITS):
    evidence = against_evidence(measurements, limits, worktrees.revision, rows)
    pairs = CommitPairs(worktrees.revision, asked_test(1, alone=worktrees.held), lambda *_: worktrees, limits)
    return judge_evidence(evidence, limits, [*resolvers, pairs.gather])


def judge(worktrees, labels=(None,), limits=LIMITS):
    found = judged({str(label): measured(70.0, label=label) for label in labels}, worktrees, limits=limits)
    return {key: one.decision for key, one in found.items()}


def only(*figures):
    return [{None: one} for one in figures]


SAME, SLOWER = only((80.0, 100.0)), only((70.0, 100.0))
NOISY = only((80.0, 100.0), (80.0, 100.0), (90.0, 100.0), (70.0, 100.0))
FAILS_ONCE = [*SAME * 3, NothingThere("the test fails at main"), *SAME * 8]


@pytest.mark.parametrize(
    ("head", "base", "status", "rule", "runs", "uneven", "taken"),
    [
        (SAME, SAME, Status.OK, Rule.PAIRS, 8, 0, 8),
        (SLOWER, SAME, Status.REGRESSED, Rule.PAIRS, 8, 0, 8),
        (NOISY, SAME, Status.UNDECIDED, Rule.TOO_NOISY, 12, 0, 12),
        # The machine changed within a pair, or within every pair.
        ([*SAME, *only((54.0, 68.0)), *SAME * 8], SAME, Status.OK, Rule.PAIRS, 8, 1, 9),
        (only((54.0, 68.0)), SAME, Status.UNDECIDED, Rule.UNSTEADY, 0, 8, 8),
        # In every other pair the probe was hindered on this side: what does not count takes no belief away.
        (only((80.0, 100.0), (80.0, 20.0)), SAME, Status.OK, Rule.PAIRS, 8, 7, 15),
        (SLOWER, FAILS_ONCE, Status.REGRESSED, Rule.PAIRS, 8, 0, 9),
        ([None, *SAME], SAME, Status.OK, Rule.PAIRS, 8, 0, 16),
    ],
)
def test_pairs_alternate_in_order_until_a_look_decides(head, base, status, rule, runs, uneven, taken):
    worktrees = ScriptedWorktrees(head, base)
    verdict = judge(worktrees)["None"]
    assert (verdict.status, verdict.rule, verdict.facts["uneven"]) == (status, rule, uneven)
    assert len(verdict.numbers.confirmations) == runs
    assert worktrees.order == ("ABBA" * taken)[: 2 * taken]
    assert worktrees.locked.startswith("[AB][BA]"), "the device is held for each pair and free between pairs"


@pytest.mark.parametrize(
    ("error", "rule", "order"),
    [
        # The test may assert on a figure that a process has only when it measures alone.
        (FreshProcessFailed("found None, expected a share"), Rule.PAIRS, "T" + "ABBA" * 4),
        (FailsThere("fails at main"), Rule.PAIRS, "T" + "ABBA" * 4),
        (NothingThere("main has no such test"), Rule.NOT_THERE, "T"),
    ],
)
def test_a_test_that_fails_in_turn_takes_pairs_one_after_the_other(monkeypatch, error, rule, order):
    monkeypatch.setattr(pairing, "can_take_turns", lambda *_: True)
    worktrees = ScriptedWorktrees(only((70.0, 100.0)), only((100.0, 100.0)))
    worktrees.alternating_raises = error
    assert (judge(worktrees)["None"].rule, worktrees.order) == (rule, order)


@pytest.mark.parametrize(
    ("base", "why_not", "processes"),
    [
        ([NothingThere("main has no such test")], "main has no such test", 2),
        ([None], "no pair was valid: busy", 2 * 2 * 4),
        # What measures nothing after an invalid process.
        ([None, *[NothingThere("the test fails at main")] * 7], "no pair was valid: busy", 2 * 2 * 4),
    ],
)
def test_where_no_pair_was_measured_it_says_why(base, why_not, processes):
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), base)
    found = judge(worktrees)["None"]
    assert (found.status, found.rule, found.why_not) == (Status.UNDECIDED, Rule.NOT_THERE, (why_not,))
    assert len(worktrees.order) == processes


@pytest.mark.parametrize(("alike", "taken"), [((None,), 4), ((), 8), (("another",), 8)])
def test_what_had_all_in_common_is_settled_by_fewer_pairs(alike, taken):
    worktrees = ScriptedWorktrees([], [])
    worktrees.alike = alike
    pairs = PairsTaken(worktrees, str, worktrees.held, alternates=True)
    found = compare_timed({"t": Subject(None, setup_of(measured(70.0)), None, 0.05)}, pairs, Looks())
    assert found["t"].decision(0.05, Looks(), "main").status is Status.REGRESSED
    assert worktrees.order == "T" * taken


def test_what_can_take_turns(monkeypatch):
    monkeypatch.setattr(pairing, "limit_bytes", lambda: None)
    revision = ScriptedWorktrees.revision
    one = replace(measured(70.0), device=replace(HOST, memory_bytes=None))
    assert can_take_turns([one, one], revision)
    compared = replace(one, rounds=replace(one.rounds, interleaved=((1.0,),)))
    for another in (compared, replace(one, device=HOST), replace(one, device=replace(HOST, kind="cuda"))):
        assert not can_take_turns([one, another], revision), "compared callables, too little memory, a GPU"
    monkeypatch.setattr(pairing, "limit_bytes", lambda: 8 * 2 * one.bytes_moved - 1)
    assert not can_take_turns([one, one], revision), "too little memory in its control group"


def test_what_was_decided_stays_so_while_others_are_extended():
    steady, noisy = (70.0, 100.0), [(80.0, 100.0), (60.0, 100.0), (80.0, 100.0), (100.0, 100.0)]
    worktrees = ScriptedWorktrees(
        [{"steady": steady, "noisy": one, "new": steady} for one in noisy],
        [{"steady": (80.0, 100.0), "noisy": (80.0, 100.0)}],
    )
    found = judge(worktrees, ("steady", "noisy", "new"))
    assert found["new"].rule == Rule.NOT_THERE
    assert (found["steady"].status, found["steady"].numbers.runs) == (Status.REGRESSED, 8)
    assert found["steady"].numbers.confirmations == pytest.approx((0.7,) * 8)
    assert (found["noisy"].status, found["noisy"].numbers.runs) == (Status.UNDECIDED, 12)


def test_other_byte_counts_are_a_mismatch_and_a_process_that_breaks_an_error():
    head = measured(80.0, reads=BYTES // 2)
    worktrees = ScriptedWorktrees(only((80.0, 100.0)), only((80.0, 100.0)))
    decision = judged({"k": head}, worktrees)["k"].decision
    assert (decision.status, decision.rule) == (Status.MISMATCH, Rule.BYTES)
    assert decision.facts == {"name": "bytes_read", "here": BYTES // 2, "there": BYTES}
    assert len(worktrees.order) == 8
    with pytest.raises(FreshProcessFailed, match="broke"):
        judge(ScriptedWorktrees([FreshProcessFailed("broke")], only((80.0, 100.0))))


TRAFFIC = DeviceIdentity("traffic", "PTX", None, "traffic", settings={"arch": "sm_80"}, timed_on="nothing")


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


def decided_counts(measurements, worktrees, limits=LIMITS, rows=MappingProxyType({})):
    return decide_counted(measurements, limits, worktrees, rows, worktrees.held)


@pytest.mark.parametrize(
    ("sectors", "status", "changes"),
    [
        (101, Status.REGRESSED, (("load_sectors", 100, 101),)),
        (100, Status.OK, ()),
        (99, Status.IMPROVED, (("load_sectors", 100, 99),)),
    ],
)
def test_counts_need_one_process_of_the_other_revision(sectors, status, changes):
    worktrees = CountedWorktrees(counted(100, resources=KernelResources(32, 0, 4096)))
    found = decided_counts({"k": counted(sectors)}, worktrees)["k"]
    assert (found.decision.status, found.decision.facts["changes"]) == (status, changes)
    assert found.entry.counts == {"load_sectors": 100}
    assert found.entry.resources == {"registers": 32, "local_bytes": 0, "shared_bytes": 4096}
    assert worktrees.locked == "[B]"


def test_counts_that_cannot_be_compared_and_the_markers_tolerance_that_alone_holds():
    worktrees = CountedWorktrees(counted(100, "a"), counted(100, "b", reads=BYTES // 2))
    head = {label: counted(100, label) for label in ("a", "b", "c")}
    found = {key: one.decision for key, one in decided_counts(head, worktrees).items()}
    assert found["a"].status is Status.OK
    assert (found["b"].status, found["b"].rule, found["b"].facts["there"]) == (
        Status.MISMATCH,
        Rule.BYTES,
        BYTES // 2,
    )
    assert (found["c"].status, found["c"].rule) == (Status.UNDECIDED, Rule.NOT_THERE)

    def status(limits):
        return decided_counts({"k": counted(104)}, CountedWorktrees(counted(100)), limits)["k"].decision.status

    assert status(Limits(MarkerOptions(), 0.05, 3)) is Status.REGRESSED
    assert status(Limits(MarkerOptions(tolerance=0.05), 0.05, 3)) is Status.OK


CODE = CodeIdentity(function="f", launch="l")


def told(measurement, code=CODE, **detail):
    return from_plain({**row(replace(measurement, code=code, detail=detail))})


def counted_on(label, inputs):
    device = DeviceIdentity("traffic", "traffic sm_90", None, "model", timed_on="nothing")
    found = replace(measured(1.0, label=label), device=device, method="ptx", counts={"load_sectors": 8})
    return replace(found, rounds=Rounds(), code=CodeIdentity(ptx="p", launch="l"), detail={"inputs": inputs})


@pytest.mark.parametrize(
    ("inputs_of_second", "order", "rule"), [("b", "", Rule.CODE_UNCHANGED), ("c", "B", Rule.COUNTS)]
)
def test_of_what_is_counted_all_of_a_test_is_the_same_or_nothing_is(inputs_of_second, order, rule):
    """A later launch may count what an earlier one left behind."""
    first, second = counted_on("first", "a"), counted_on("second", "b")
    rows = {one.label: from_plain(row(one)) for one in (first, counted_on("second", inputs_of_second))}
    worktrees = ScriptedWorktrees([], [])
    worktrees.base = lambda: worktrees._count([row(first), row(second)])
    found = decided_counts({"first": first, "second": second}, worktrees, rows=rows).values()
    assert {(one.decision.status, one.decision.rule) for one in found} == {(Status.OK, rule)}
    assert worktrees.order == order
