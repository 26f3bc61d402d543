"""What an arena makes of a candidate's report: correct, honest, findings, the speed-up; and how it shows them."""

import pytest

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import NOTE, WRONG
from pytest_bandwidth.features.honest.arena import Row, judged, lines_of

RATIO = {"speed_up": 2.0, "low": 1.9, "high": 2.1, "rounds": 30}
DEVICE = DeviceIdentity("cpu", "a host", None, "any")


def row(label, **more):
    plain = {"status": "UNDECIDED", "reason_code": "no-baseline", "reason": "no baseline", "is_valid": True}
    times = {"seconds": 1e-3, "samples": [1e-3, 1.1e-3], "findings": [], "gbps": 5.0}
    return {"label": label, **plain, **times, "utilization": 0.25, "utilization_of": "peak", **more}


def wrong(code, text="a sentence"):
    return {"status": "MISMATCH", "reason_code": code, "reason": text, "is_valid": False}


def judge(*rows, alone=None, **report):
    parameters = [{"name": name, "role": role} for name, role in (("y", "out"), ("n", "scalar"), ("x", "in"))]
    known = {"case": {"name": "n=8", "parameters": parameters}, "alone": row("n=8") if alone is None else alone}
    return judged("c.py", known, {"rows": list(rows), **RATIO, **report})


def codes(found, level):
    return {one.code for one in found.findings if one.level == level}


def test_what_is_fine_has_a_speed_up_and_the_share_of_the_least_time_before_that_of_the_peak():
    found = judge(row("alone"), row("reference", seconds=2e-3), row("candidate"))
    assert found == Row("c.py", "n=8", True, True, (), 2.0, 1.9, 2.1, 30, 1e-3, 2e-3, 5.0, 0.25)
    assert found.is_fine
    assert judge(row("alone"), row("reference"), row("candidate", sol=0.7)).sol == 0.7
    assert judge(row("alone"), row("reference"), row("candidate", utilization_of="probe")).sol is None


@pytest.mark.parametrize(
    ("code", "correct", "honest"),
    [
        ("work:wrong-result", False, True),
        ("work:unwritten", False, True),
        ("work:stale-result", True, False),
        ("work:tampered", None, False),
        ("out-of-bounds", False, True),
        ("above-peak", True, False),
    ],
)
@pytest.mark.parametrize("label", ["alone", "candidate"])
def test_a_mismatch_of_either_measurement_counts(label, code, correct, honest):
    rows = {name: row(name) for name in ("alone", "reference", "candidate")}
    rows[label] = row(label, **wrong(code))
    found = judge(*rows.values(), failure="MISMATCH: a sentence")
    assert (found.correct, found.honest, found.speed_up) == (correct, honest, None)
    assert [(one.code, one.text) for one in found.findings] == [(code.removeprefix("work:"), "a sentence")]


def test_what_is_found_besides_the_verdict_counts():
    besides = [{"code": "work:wrong-result", "text": "3 differ", "level": "detail"}, {"code": "note", "text": "x"}]
    found = judge(row("alone", **wrong("no-work"), findings=besides), row("reference"), row("candidate"))
    assert (found.correct, found.honest) == (False, False)
    assert codes(found, WRONG) == {"no-work", "wrong-result"}


def test_what_is_no_fault_of_the_candidate_is_noted():
    tiny = wrong("no-work")
    found = judge(row("alone", **tiny), row("reference", **tiny), row("candidate", **tiny))
    assert found.is_fine
    assert codes(found, NOTE) == {"no-work", "reference-no-work"}
    stale = wrong("work:stale-result")
    assert judge(row("alone"), row("reference", **stale), row("candidate", **stale)).honest is False
    found = judge(row("alone"), row("reference", **wrong("work:nondeterministic")), row("candidate"), failure="it")
    assert found.is_fine
    assert codes(found, NOTE) == {"reference-nondeterministic"}
    disturbed = {"reason_code": "run-delay", "reason": "threads waited", "is_valid": False}
    found = judge(row("alone", **disturbed), row("reference"), row("candidate"), speed_up=None)
    assert found.is_fine
    assert codes(found, NOTE) == {"run-delay"}


def test_what_is_found_of_the_whole_process_is_said_once_and_by_names():
    """Its measurements all say it: the reference did nothing wrong."""
    places = "; ".join(f"8 bytes changed after array {number} of the test, 0 from its end" for number in (2, 4, 6))
    outside = wrong("out-of-bounds", f"a write out of bounds: {places}; writes[0] as well")
    found = judge(*(row(name, **outside) for name in ("alone", "reference", "candidate")))
    (only,) = found.findings
    assert only.text == "a write out of bounds: 8 bytes changed after x, 0 from its end; y as well"


@pytest.mark.parametrize(("fastest", "slowed"), [(2e-3, False), (2.001e-3, True)])
def test_no_speed_up_is_shown_over_a_reference_that_is_slowed_past_twice_its_time(fastest, slowed):
    """A busy machine may be why: nobody is accused."""
    found = judge(row("alone"), row("reference", samples=[5e-3, fastest]), row("candidate"))
    assert codes(found, NOTE) == ({"reference-slowed"} if slowed else set())
    assert found.is_fine
    assert (found.speed_up, found.low) == ((None, None) if slowed else (2.0, 1.9))


@pytest.mark.parametrize(
    ("report", "code", "text"),
    [
        ({"failure": "ZeroDivisionError: by zero"}, "failed", "ZeroDivisionError: by zero"),
        ({"failure": "no GPU", "skipped": True}, "not-run", "no GPU"),
        ({}, "failed", "it measured nothing"),
    ],
)
def test_what_was_not_measured_is_neither(report, code, text):
    found = judge(**report)
    assert (found.correct, found.honest, found.speed_up) == (None, None, None)
    assert [(one.code, one.text, one.level) for one in found.findings] == [(code, text, WRONG)]


def test_the_table_shows_what_is_known():
    rows = [
        judge(row("alone"), row("reference"), row("candidate")),
        judge(failure="bad\x1b[2J\n::error::text"),
    ]
    lines = lines_of("ref.py", DEVICE, rows)
    assert lines[0] == "reference ref.py on a host"
    assert " ".join(lines[1].split()) == "candidate case correct honest speed-up interval of light findings"
    assert lines[2].split() == ["c.py", "n=8", "yes", "yes", "2×", "1.9", "to", "2.1", "25", "%"]
    assert lines[3].split() == ["c.py", "n=8", "–", "–", "–", "–", "failed"]
    assert lines[4].startswith("c.py n=8: failed (wrong): bad")
    assert lines[5] == "c.py: not correct and honest"
    assert all(line.isprintable() for line in lines)
