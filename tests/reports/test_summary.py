"""The verdict on a run: what failed, what could not be judged, and nothing green that was not judged."""

from dataclasses import replace

import pytest
import run_documents

from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.outcomes.run_findings import DEVICE_LOSS, FAILED, NOT_MEASURED, UNJUDGED
from pytest_bandwidth.reports.summary import by_attention, loss_of, summary_of_run
from pytest_bandwidth.storage.saved_run import read_document

ROW = replace(run_documents.outcomes(1)[0], verdict={})


def rows(*statuses, rule=Rule.STORED):
    return [
        replace(
            ROW, key=f"t.py::t[{number}]", nodeid=f"t.py::t[{number}]", status=status, reason_code=rule, reason="why"
        )
        for number, status in enumerate(statuses)
    ]


def summary(outcomes, *codes, **settings):
    findings = [{"code": code, "text": "found"} for code in codes]
    document = run_documents.run_document(outcomes, findings=findings, settings={"strict": False, **settings})
    return summary_of_run(read_document(document))


TWO = ("UNDECIDED", "UNDECIDED")
UNMEASURED = {"code": NOT_MEASURED}


@pytest.mark.parametrize(
    ("statuses", "more", "sentence", "severity"),
    [
        (("OK", "OK"), {}, "All 2 measurements passed", "good"),
        (("OK",), {"strict": True}, "The measurement passed", "good"),
        (("SAVED", "SAVED"), {}, "2 measurements saved to the baseline", "plain"),
        (("OK", "REGRESSED"), {}, "1 of 2 measurements failed", "bad"),
        (("OK", "MISMATCH"), {}, "1 of 2 measurements failed", "bad"),
        (("OK", "UNDECIDED"), {}, "Nothing failed, but 1 of 2 measurements was not judged", "warn"),
        (("OK", "UNDECIDED"), {"strict": True}, "1 of 2 measurements failed", "bad"),
        (TWO, {}, "Nothing failed, but 2 of 2 measurements were not judged", "warn"),
        ((), {}, "Nothing was measured", "warn"),
        # What is found about the run counts.
        (("OK",), {"code": DEVICE_LOSS}, "The measurement passed", "good"),
        (("OK",), {"code": DEVICE_LOSS, "device_tolerance": 0.05}, "The device is slower than allowed", "bad"),
        (("OK",), {"code": UNJUDGED}, "1 test failed before being judged", "bad"),
        (("OK",), {"code": FAILED}, "1 test failed for another reason than bandwidth", "bad"),
        (("OK",), UNMEASURED, "Nothing failed, but entries of the baseline were not measured", "warn"),
        (("OK",), {**UNMEASURED, "strict": True}, "Entries of the baseline were not measured", "bad"),
        # Undecided for one reason: it is said which.
        (TWO, {"rule": Rule.NO_BASELINE}, "2 measurements, no baseline to compare with", "warn"),
        (TWO, {"rule": Rule.NOT_WRITTEN}, "2 measurements, none saved to the baseline", "bad"),
        (TWO, {"rule": Rule.TOO_NOISY}, "Nothing failed, but 2 of 2 measurements were not judged", "warn"),
    ],
)
def test_a_run_is_summed_up(statuses, more, sentence, severity):
    settings = {name: value for name, value in more.items() if name not in ("rule", "code")}
    codes = [more["code"]] if "code" in more else []
    found = summary(rows(*statuses, rule=more.get("rule", Rule.STORED)), *codes, **settings)
    assert (found.sentence, found.severity) == (sentence, severity)


@pytest.mark.parametrize("strict", [False, True])
def test_counts_stand_in_order_of_gravity(strict):
    found = summary(rows("OK", "SAVED", "IMPROVED", "UNDECIDED", "MISMATCH", "REGRESSED", "REGRESSED"), strict=strict)
    assert [(count.status, count.count) for count in found.counts] == [
        (Status.REGRESSED, 2),
        *((status, 1) for status in (Status.MISMATCH, Status.UNDECIDED, Status.IMPROVED, Status.OK, Status.SAVED)),
    ]
    assert {count.severity for count in found.counts[:2]} == {"bad"}
    assert found.counts[2].severity == ("bad" if strict else "warn")


@pytest.mark.parametrize("strict", [False, True])
def test_what_fails_as_expected_fails_no_run(strict):
    several = rows("OK", "REGRESSED", "REGRESSED", "OK")
    several[1:3] = [replace(row, xfail="a slow driver") for row in several[1:3]]
    several[3] = replace(several[3], xfail="a slow driver")
    found = summary(several, strict=strict)
    assert (found.sentence, found.severity) == ("2 of 4 measurements failed, as expected", "good")
    assert [(c.count, c.words, c.severity) for c in found.counts] == [
        (2, "regressed, as expected", "warn"),
        (2, "OK", "plain"),
    ]
    several[2] = replace(several[2], xfail=None)
    assert summary(several).sentence == "1 of 4 measurements failed"
    assert [o.key for o in by_attention(several, strict=strict)] == [f"t.py::t[{n}]" for n in (2, 1, 0, 3)]


@pytest.mark.parametrize(
    ("verdict", "loss"),
    [
        ({}, 0.0),
        ({"drop": 0.1, "observed": 1.0, "reference": 2.0}, 0.1),
        ({"drop": -0.1}, -0.1),
        ({"observed": 75.0, "reference": 100.0}, 0.25),
        ({"observed": 75.0, "reference": 0.0}, 0.0),
        ({"facts": {"changes": [["load_sectors", 100, 200], ["store_sectors", 100, 125]]}}, 0.5),
        ({"facts": {"changes": [["load_sectors", 0, 7]]}}, 1.0),
        ({"facts": {"changes": [["load_sectors", 5, 0], ["a"], "text", None, {"a": 1}]}}, 0.0),
        ({"facts": {"changes": 7}}, 0.0),
    ],
)
def test_a_loss_is_of_figures_or_of_counts(verdict, loss):
    assert loss_of(replace(ROW, verdict=verdict)) == pytest.approx(loss)
