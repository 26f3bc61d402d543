"""`pytest-bandwidth compare`: saved runs of one device judged by the gate's rule, of several as a table."""

import json
import math
import re
from dataclasses import replace

import pytest
from run_documents import BYTES, GPU, MODEL, outcome, run_of, save, saved

from pytest_bandwidth.domain.statistics import t_quantile
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Numbers, Rule, Status
from pytest_bandwidth.judging.stored import GATE_LEVEL, PRIOR_SPREAD

COPY, TRIAD, SUM = "tests/test_a.py::test_copy", "tests/test_a.py::test_triad", "tests/test_b.py::test_sum @ all"
PRIOR = PRIOR_SPREAD["relative"]


@pytest.fixture
def runs(tmp_path):

    def make(*gbps, key=COPY, **more):
        return [saved(tmp_path / f"{key[-4:]}-{i}-{g}.json", {key: g}, **more) for i, g in enumerate(gbps)]

    return make


def judged(command, *arguments):
    said = command("compare", *arguments, "--json")
    assert said.err == ""
    return {test["key"]: test for test in json.loads(said.out)["tests"]}


def gate(references, processes, spread=PRIOR, tolerance=0.05):
    """The rule from its formula, apart from the code that applies it."""
    noise = t_quantile(GATE_LEVEL, references + 4) * spread * math.sqrt(1 / processes + 1 / references)
    return max(-math.log(1 - tolerance), noise)


@pytest.mark.parametrize(("references", "processes"), [(1, 1), (5, 3)])
@pytest.mark.parametrize("side", [-1e-6, 1e-6])
def test_regressed_begins_past_the_gate_of_so_many_processes(command, runs, references, processes, side):
    # Equal runs: the prior says how far processes scatter, and five of its six degrees of freedom are its own.
    spread = PRIOR * math.sqrt(5 / (references + 4))
    slow = 800 * math.exp(-(gate(references, processes, spread) + side))
    files = runs(*[800.0] * references, *[slow] * processes)
    found = judged(command, *files, "--baseline", references)[COPY]
    assert (found["status"] == "REGRESSED") is (side > 0)
    if side > 0:
        assert re.fullmatch(r"\d+\.\d % slower than the baseline \(tolerance 5\.0 %\)", found["reason"])
    assert found["allowed_drop"] == pytest.approx(1 - math.exp(-gate(references, processes, spread)))
    assert (found["runs"], len(found["confirmations"])) == (references, processes)
    assert (found["gbps_before"], found["gbps_after"]) == (pytest.approx(800), pytest.approx(slow))


def test_memory_bound_work_is_judged_beside_its_probe(command, tmp_path, runs):
    """GB/s fell by a tenth and so did the probe: the device's doing, and no regression."""
    slower = [saved(tmp_path / f"down{i}.json", {COPY: 720.0}, probe_gbps=810.0) for i in range(3)]
    files = [*runs(*[800.0] * 5), *slower]
    assert judged(command, *files, "--baseline", 5)[COPY]["status"] == "OK"


def test_one_run_a_side_is_said_to_see_large_drops_only(command, runs):
    files = runs(800.0, 780.0)
    said = command("compare", *files)
    assert said.status == 0
    assert "UNDECIDED" in said.out
    found = f"{(1 - math.exp(-gate(1, 1))) * 100:.1f} %"
    assert f"1 reference run and 1 new run can only detect large drops, here of {found} or more" in said.out
    many = command("compare", *runs(*[800.0] * 5, *[799.0] * 3), "--baseline", 5)
    assert "large drops" not in many.out


def test_the_largest_loss_stands_first(command, tmp_path):
    before = [saved(tmp_path / f"b{i}.json", {COPY: 800.0, TRIAD: 700.0, SUM: 600.0}) for i in range(5)]
    after = [saved(tmp_path / f"a{i}.json", {COPY: 640.0, TRIAD: 420.0, SUM: 540.0}) for i in range(3)]
    assert list(judged(command, *before, *after, "--baseline", 5)) == [TRIAD, COPY, SUM]


@pytest.mark.parametrize(
    ("after", "fail_on", "status"),
    [(600.0, (), 0), (600.0, ("--fail-on", "regressed"), 1), (799.0, ("--fail-on", "regressed"), 0)],
)
def test_exit_status_is_what_fail_on_asks_for(command, runs, after, fail_on, status):
    files = runs(*[800.0] * 5, *[after] * 3)
    assert command("compare", *files, "--baseline", 5, *fail_on).status == status


def test_strict_fails_what_was_not_judged_or_not_measured(command, tmp_path, runs):
    nothing_shared = [*runs(700.0), *runs(700.0, key=TRIAD)]
    assert command("compare", *nothing_shared).status == 0
    blunt = runs(800.0, 799.0)
    assert command("compare", *blunt, "--fail-on", "regressed").status == 0
    assert command("compare", *blunt, "--fail-on", "strict").status == 1
    before = [saved(tmp_path / f"b{i}.json", {COPY: 800.0, TRIAD: 700.0}) for i in range(5)]
    after = [saved(tmp_path / f"a{i}.json", {COPY: 800.0}) for i in range(3)]
    assert command("compare", *before, *after, "--baseline", 5, "--fail-on", "regressed").status == 0
    assert command("compare", *before, *after, "--baseline", 5, "--fail-on", "strict").status == 1


def test_another_setup_is_not_comparable_and_fails(command, tmp_path, runs):
    device = replace(GPU, settings={"mig": "1g.10gb"})
    files = [*runs(800.0), save(tmp_path / "other.json", run_of(outcome(COPY, 800.0, device=device), device=device))]
    found = judged(command, *files)[COPY]
    assert (found["status"], found["reason_code"]) == ("MISMATCH", "setting:mig")
    assert found["reason"].startswith("mig is 1g.10gb, was off")
    assert command("compare", *files, "--fail-on", "regressed").status == 1


def test_counts_are_judged_as_in_a_run(command, tmp_path):
    files = []
    for sectors in (100, 101):
        counts = {"distinct_bytes_read": BYTES, "load_sectors": sectors}
        traffic = {"traffic": Traffic(BYTES, 0), "method": "ptx", "counts": counts}
        row = outcome(COPY, None, None, device=MODEL, peak=None, **traffic)
        files.append(save(tmp_path / f"{sectors}.json", run_of(row, device=MODEL, peak=None)))
    found = judged(command, *files)[COPY]
    assert (found["status"], found["reason_code"]) == ("REGRESSED", "counts")


def test_new_absent_and_invalid_tests_are_told(command, tmp_path):
    before = save(
        tmp_path / "before.json",
        run_of(outcome(COPY, 800.0), outcome(TRIAD, 700.0), outcome("t.py::gone", 1.0)),
    )
    after = save(
        tmp_path / "after.json",
        run_of(outcome(COPY, 800.0), outcome(TRIAD, 600.0, invalid="the host was busy"), outcome("t.py::new", 5.0)),
    )
    found = json.loads(command("compare", before, after, "--json").out)
    status = {test["key"]: test["status"] for test in found["tests"]}
    assert set(status.values()) == {"UNDECIDED"}
    rules = {test["key"]: test["reason_code"] for test in found["tests"]}
    assert rules == {COPY: "too-noisy", TRIAD: "nothing-valid", "t.py::new": "no-entry"}
    assert found["absent"] == ["t.py::gone"]
    said = command("compare", before, after)
    assert "1 of the reference's tests were not measured again: t.py::gone" in said.out


def test_tolerance_is_the_options_then_the_tests_then_the_runs(command, tmp_path):
    rows = {
        "plain": outcome(COPY, 800.0),
        "own": outcome(COPY, 800.0, decision=Decision(Status.OK, Rule.STORED, Numbers(tolerance=0.2))),
    }
    before = save(tmp_path / "before.json", run_of(rows["plain"]))

    def tolerance(kind, *arguments, **changes):
        after = save(tmp_path / f"{kind}.json", run_of(rows[kind], **changes))
        return judged(command, before, after, *arguments)[COPY]["tolerance"]

    assert tolerance("plain") == 0.05
    assert tolerance("plain", settings={"tolerance": 0.1}) == 0.1
    assert tolerance("own", settings={"tolerance": 0.1}) == 0.2
    assert tolerance("own", "--tolerance", "3%") == 0.03


def test_devices_are_shown_side_by_side_without_a_verdict(command, tmp_path):
    one = saved(tmp_path / "1.json", {COPY: 800.0, TRIAD: 700.0})
    two = [saved(tmp_path / f"{i}.json", {COPY: gbps}, name="Other GPU") for i, gbps in ((2, 1590.0), (3, 1610.0))]
    said = command("compare", one, *two)
    assert said.status == 0
    assert "[1] Imaginary GPU, 64 GiB, peak 1000 GB/s, 1 run" in said.out
    assert "[2] Other GPU, 64 GiB, peak 1000 GB/s, 2 runs" in said.out
    assert re.search(rf"^{COPY} +800 +80 % +1600 +160 % +2\.00$", said.out, re.MULTILINE)
    assert re.search(rf"^{TRIAD} +700 +70 %$", said.out, re.MULTILINE)
    assert "no verdict" in said.out
    found = json.loads(command("compare", one, *two, "--json").out)
    assert found["verdict"] is None
    assert [device["runs"] for device in found["devices"]] == [1, 2]
    assert found["tests"][1] == {"key": TRIAD, "gbps": [700.0, None], "utilization": [0.7, None], "ratio": [1.0, None]}


def test_units_of_one_model_are_compared_and_told(command, tmp_path, runs):
    other = saved(tmp_path / "other.json", {COPY: 800.0}, serial="GPU-2")
    assert "2 units of this device (GPU-1, GPU-2)" in command("compare", *runs(800.0), other).out


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        ("ONE", "expected two or more"),
        ("ONE AGAIN", "as in {ONE}, expected another"),
        ("ONE TWICE", " twice, expected one process of one device"),
        ("ONE OTHER --fail-on regressed", "found no test that both sides measured"),
        *((f"ONE TWO --baseline {count}", "--baseline") for count in (0, 2, "x")),
        *((f"ONE TWO --tolerance {bad}", "--tolerance") for bad in ("5", "0%")),
        ("ONE CARD --tolerance some", "--tolerance: found 'some'"),
        ("ONE CARD --fail-on regressed", "found runs of 2 devices (Imaginary GPU, Two)"),
        ("ONE CARD --baseline 1", "found runs of 2 devices (Imaginary GPU, Two)"),
    ],
)
def test_unusable_input(command, tmp_path, arguments, problem):
    files = {
        "ONE": saved(tmp_path / "one.json", {COPY: 800.0}),
        "TWO": saved(tmp_path / "two.json", {COPY: 799.0}),
        "OTHER": saved(tmp_path / "other.json", {TRIAD: 800.0}),
        "CARD": saved(tmp_path / "card.json", {COPY: 800.0}, name="Two"),
        "TWICE": save(tmp_path / "twice.json", run_of(outcome(COPY, 800.0), outcome(COPY, 790.0))),
        "AGAIN": tmp_path / "again.json",
    }
    files["AGAIN"].write_bytes(files["ONE"].read_bytes())
    said = command("compare", *(files.get(word, word) for word in arguments.split()))
    assert (said.status, said.out, len(said.err.splitlines())) == (2, "", 1)
    assert problem.format(**files) in said.err


SAME, OTHER = {"ptx": "1" * 32, "sass": "2" * 32, "launch": "3" * 32}, {"ptx": "4" * 32, "sass": "5" * 32}


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ((SAME, SAME), (SAME,), "same"),
        ((SAME,), ({**SAME, **OTHER},), "changed"),
        ((SAME, {**SAME, **OTHER}), (SAME,), "changed"),  # since the reference's newest
        ((SAME,), ({**SAME, "ptx": "4" * 32},), "changed"),  # what is timed is known by its PTX and machine code
        ((SAME,), ({},), None),
    ],
)
def test_rows_of_equal_and_of_changed_code_are_named(command, tmp_path, before, after, said):
    files = []
    for i, code in enumerate((*before, *after)):
        row = replace(outcome(COPY, 800.0 if i < len(before) else 500.0), code_identity=code)
        files.append(save(tmp_path / f"{i}.json", run_of(row)))
    assert judged(command, *files, "--baseline", len(before))[COPY]["code_of_both"] == said
    shown = command("compare", *files, "--baseline", len(before)).out
    assert ("; the code is the same on both sides" in shown) is (said == "same")
    assert (f" {said} " in shown) is (said is not None)
