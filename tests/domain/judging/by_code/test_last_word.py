"""The order in which ways to settle a suspect are asked, and what stands of what they say."""

from dataclasses import replace

import pytest
from judged_kernels import FIVE, KEY, LIMITS, OTHER, again, for_both, measured, never, never_probe

from pytest_bandwidth.domain.judging.by_code.last_word import LastWords, settle, with_why
from pytest_bandwidth.domain.judging.judge import judge_test
from pytest_bandwidth.domain.measured.metrics import Metrics
from pytest_bandwidth.domain.verdict import Status, Verdict
from pytest_bandwidth.reports.message import failure_message

SLOW = Verdict(Status.REGRESSED, "pairs", "slower than the old code")
WELL = Verdict(Status.WITHIN, "pairs", "as fast as the old code")
LOST = Verdict(Status.DEVICE, "commit", "the old code lost as much")


def way(asked, verdicts=None, why_not=None, cleared=None):
    """A way that notes for whom it was asked."""

    def says(suspects):
        asked.append(sorted(suspects))
        return LastWords(verdicts or {}, why_not or {}, cleared or {})

    return says


def slow(label):
    """Fresh processes that all show the drop of the measurement of that label."""
    return lambda: {label: Metrics(70.0, 0.7, 100.0)}


def judged(measurements, ways, fresh=never):
    found = judge_test(measurements, for_both(FIVE), LIMITS, again(fresh), never_probe, ways=ways)
    return {key: one.verdict for key, one in found.items()}


def test_a_later_way_is_asked_only_for_what_none_before_it_settled():
    first, second, third = [], [], []
    suspects = {"a": None, "b": None}
    ways = [
        way(first, {"a": WELL}, {"b": "no old kernel"}),
        way(second, {"b": SLOW}),
        way(third),
    ]
    said = settle(suspects, ways)
    assert (first, second, third) == ([["a", "b"]], [["b"]], [])
    settled = replace(SLOW, reason="slower than the old code; no old kernel", why_not="no old kernel")
    assert said.verdicts == {"a": WELL, "b": settled}
    assert not said.why_not


def test_what_a_way_clears_is_asked_of_no_other():
    later = []
    said = settle({"a": None}, [way([], why_not={"a": "no old kernel"}), way([], cleared={"a": WELL}), way(later)])
    assert later == []
    assert said == LastWords({}, {}, {"a": with_why(WELL, "no old kernel")})


def test_why_no_way_settled_a_suspect_is_said_of_each():
    said = settle({"a": None}, [way([], why_not={"a": "one"}), way([]), way([], why_not={"a": "two"})])
    assert said == LastWords({}, {"a": "one; two"})


def test_what_is_settled_takes_no_fresh_process():
    asked = []
    found = judged({KEY: measured(70.0)}, [way(asked, {KEY: SLOW})])
    assert asked == [[KEY]]
    assert found[KEY] == SLOW


def test_fresh_processes_judge_the_others_and_the_reason_says_why_no_better_way_did():
    measurements = {KEY: measured(70.0), OTHER: replace(measured(70.0), label="b")}
    found = judged(measurements, [way([], {KEY: WELL}, {OTHER: "its commit is gone"})], slow("b"))
    assert found[KEY] == WELL
    assert found[OTHER].status is Status.REGRESSED
    assert found[OTHER].reason.endswith("; its commit is gone")


@pytest.mark.parametrize(("said", "status"), [(WELL, Status.WITHIN), (SLOW, Status.REGRESSED), (LOST, Status.DEVICE)])
def test_a_doubtful_drop_stays_as_it_was_unless_something_was_lost(said, status):
    doubtful = measured(90.0 * 0.955)
    asked = []
    verdict = judged({KEY: doubtful}, [way(asked, {KEY: said})])[KEY]
    assert asked == [[KEY]]
    assert verdict.status is status
    assert verdict.code == (said.code if said is not WELL else "within")
    assert verdict.reason.endswith(said.reason)


def test_what_is_not_suspect_is_not_settled():
    asked = []
    assert judged({KEY: measured(90.0)}, [way(asked, {KEY: SLOW})])[KEY].status is Status.WITHIN
    assert asked == []


def test_a_missed_floor_is_the_fresh_processes_to_confirm():
    asked = []
    limits = replace(LIMITS, marker=replace(LIMITS.marker, min_gbps=80.0))
    ways = [way(asked, {KEY: WELL})]
    found = judge_test({KEY: measured(70.0)}, FIVE, limits, again(slow(None)), never_probe, ways=ways)
    assert asked == []
    assert found[KEY].verdict.code == "floor:min_gbps"


def test_a_message_says_why_no_better_way_had_the_last_word():
    drop = Verdict(Status.REGRESSED, "drop", "too slow", "gbps", 90.0, 100.0, drop=0.1, confirmations=(90.0,))
    measurement = measured(90.0)
    said = failure_message("test_copy", measurement, with_why(drop, "the commit is gone"))
    assert " seen −10 %. The commit is gone. Confirmed in 1 fresh process (90.0)." in said
    assert "gone" not in failure_message("test_copy", measurement, with_why(drop, None))


@pytest.mark.parametrize(
    ("runs", "advice"), [(None, ""), (1, ""), (3, " --bandwidth-runs=3"), (20, " --bandwidth-runs=5")]
)
def test_what_is_intended_is_stored_with_as_many_runs_as_the_entry_had(runs, advice):
    drop = Verdict(Status.REGRESSED, "drop", "too slow", "gbps", 90.0, 100.0, drop=0.1, baseline_runs=runs)
    assert failure_message("test_copy", measured(90.0), drop).endswith(f" If intended: --bandwidth-update{advice}.")
