"""A row of a run holds its decision and its baseline's entry as plain data, of its own."""

from dataclasses import asdict, fields

import pytest
from judged_kernels import measured

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.verdict import Decision, Numbers, Rule, Status
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.outcomes.outcome import _entry_plain, from_plain, outcome_of
from pytest_bandwidth.storage.saved_run import DecisionForm

RUN = Run(5.0, 6.0, 0.9, 3, "gpu", "abc", "2026-11-21T04:00:00Z", {"driver": "580"})


def test_an_entry_is_plain_data_in_the_order_of_its_fields():
    counted = Entry("k", method="ptx", counts={"load_sectors": 8}, settings={"arch": "sm_90"}, extra={"pattern": "x"})
    for entry in (counted, Entry("k", 5.0, anchor=RUN, runs=(RUN, RUN), resources={"registers": 10}, line=7)):
        expected = asdict(entry)
        del expected["line"], expected["extra"]
        plain = _entry_plain(entry)
        assert list(plain.items()) == list(expected.items())
        plain["counts"]["load_sectors"] = 0
        assert entry.counts.get("load_sectors", 0) in (0, 8)
    assert counted.counts == {"load_sectors": 8}


def test_a_rows_verdict_is_the_decision_in_plain_data():
    numbers = Numbers("gbps", 80.0, 90.0, tolerance=0.05, confirmations=(80.0,))
    decision = Decision(Status.UNDECIDED, Rule.TOO_NOISY, numbers, {"by": Rule.PAIRS}, ("its commit is gone",))
    row = outcome_of("t.py::t", "t.py::t", Judged(measured(80.0), None, decision), "in words")
    assert (row.status, row.reason_code, row.reason, row.is_valid) == ("UNDECIDED", "too-noisy", "in words", True)
    assert row.verdict == {
        "status": "UNDECIDED",
        "rule": "too-noisy",
        **asdict(numbers),
        "facts": {"by": "pairs"},
        "why_not": ("its commit is gone",),
    }
    assert from_plain(row.to_plain()) == row
    assert set(row.verdict) == {field.name for field in fields(DecisionForm)}


@pytest.mark.parametrize("status", [Status.UNDECIDED, Status.MISMATCH])
def test_what_was_invalid_is_not_valid_and_shows_no_share(status):
    spoilt = measured(80.0, invalid=Finding("others", "busy"))
    row = outcome_of("t", "t", Judged(spoilt, None, Decision(status, "others")), "busy")
    assert (row.is_valid, row.valid_relative, row.valid_utilization) == (False, None, None)
    assert row.relative == pytest.approx(0.8)


def test_a_row_of_an_unknown_status_is_refused():
    row = outcome_of("t", "t", Judged(measured(80.0), None, Decision(Status.OK, Rule.FLOORS)), "").to_plain()
    with pytest.raises(UsageError, match="a result's status is 'ok', expected one of REGRESSED"):
        from_plain({**row, "status": "ok"})
