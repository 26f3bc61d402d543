"""The CSV table and the JSON document: what other tools read, strict, with no cell that a spreadsheet runs."""

import csv
import io
import json
import math
from dataclasses import asdict, replace

import pytest
import run_documents
from hostile import hostile_document
from scripted import ScriptedDevice, dropped, except_at, repeat

from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.domain.device import Conditions
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.judge import Judged
from pytest_bandwidth.outcomes.outcome import outcome_of
from pytest_bandwidth.reports.columns import columns
from pytest_bandwidth.reports.documents import document, render_csv, render_json
from pytest_bandwidth.storage.saved_run import read_document


def rows_of(text):
    return list(csv.DictReader(io.StringIO(text), strict=True))


def test_the_benchmark_columns_come_first_and_precisions_have_their_usual_names():
    header = next(csv.reader(io.StringIO(render_csv([]))))
    first = "operation precision M N K time_ms bandwidth_gb_s bytes_read bytes_written"
    assert header[:9] == first.split()
    assert len(header) == len(set(header))
    written = ("fp32", "float32", "FP16", "half", "fp16-tensor", "bf16")
    outcome = run_documents.outcomes(1)[0]
    rows = rows_of(render_csv([replace(outcome, tags={"precision": one}) for one in written]))
    assert [row["precision"] for row in rows] == ["fp32", "fp32", "fp16", "fp16", "fp16", "bf16"]


def tagged(precision, nodeid="t.py::test_a", bytes_read=8, gbps=10.0, **tags):
    one = replace(run_documents.outcomes(1)[0], nodeid=nodeid, key=nodeid, tags={**tags, "precision": precision})
    return replace(one, bytes_read=bytes_read, bytes_written=0, gbps=gbps, seconds=1e-3)


@pytest.mark.parametrize(
    ("fp32", "fp16", "ratios"),
    [
        ({"operation": "gemm", "M": 1}, {"operation": "gemm", "M": 1, "gbps": 15.0}, ("1.5", "1")),
        ({"nodeid": "t.py::test_a[float32-64]"}, {"nodeid": "t.py::test_a[float16-64]"}, ("1", "1")),
        ({"operation": "copy", "version": "plain"}, {"operation": "copy", "version": "float4"}, ("", "")),
        ({"operation": "copy", "gbps": None}, {"operation": "copy"}, ("", "")),
        # Of another shape, with as many bytes: the times are of different work.
        (
            {"operation": "copy", "N": 100, "bytes_read": 1000},
            {"operation": "copy", "N": 199, "bytes_read": 995},
            ("1", ""),
        ),
        (
            {"operation": "copy", "N": 100, "bytes_read": 1000},
            {"operation": "copy", "N": 195, "bytes_read": 980},
            ("", ""),
        ),
    ],
)
def test_the_fp16_half_of_a_pair_carries_the_ratios_to_the_fp32_half(fp32, fp16, ratios):
    names = ("fp16_over_fp32_gb_s", "fp16_over_fp32_time")
    halves = [tagged("float32", **fp32), tagged("fp16", **fp16)]
    found = [tuple(row[name] for name in names) for row in rows_of(render_csv(halves))]
    assert found == [("", ""), ratios]
    # Two of one kind are ambiguous.
    assert rows_of(render_csv([*halves, halves[0]]))[1][names[1]] == ""


def test_no_cell_is_a_formula_and_every_text_survives_the_quoting():
    """A spreadsheet that separates by semicolons would find a cell of its own in `a;=1+1`."""
    outcomes = read_document(hostile_document()).outcomes
    rows = rows_of(render_csv(outcomes))
    assert len(rows) == len(outcomes)
    for row in rows:
        for name in ("operation", "nodeid", "label", "reason_code", "reason", "file"):
            assert not row[name].startswith(("=", "+", "-", "@", "\t", "\r"))
    assert "'=cmd|' /C calc'!A0" in {row["label"] for row in rows}
    outcome = replace(run_documents.outcomes(1)[0], label="a;=1+1")
    for line in render_csv([outcome]).splitlines():
        assert line.startswith('"')
        assert line.endswith('"')
        assert line.count('","') == len(columns("csv")) + 1


@pytest.mark.parametrize("sign", ["=", "+", "-", "@", "＝", "＠", " =", "\t", "\n＝"])
def test_no_text_is_a_formula_in_any_width(sign):
    outcome = replace(run_documents.outcomes(1)[0], label=f"{sign}1+1")
    assert rows_of(render_csv([outcome]))[0]["label"].startswith("'")


@pytest.mark.parametrize("text", ["é\N{CLOUD}", "t\udc80.py", "\ud83d alone", 'a "quoted" \\ud800 \x00'])
def test_any_text_comes_back_from_a_file(tmp_path, text):
    file = tmp_path / "run.json"
    file.write_text(render_json({"nodeid": text}), encoding="utf-8")
    assert json.loads(file.read_text(encoding="utf-8")) == {"nodeid": text}


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(value):
    assert json.loads(render_json({"results": [{"gbps": value, "samples": (1.0, value)}]})) == {
        "results": [{"gbps": None, "samples": [1.0, None]}]
    }


def test_every_stop_drop_clock_and_probe_figure_is_there():
    states = (
        Conditions(sm_clock_mhz=1980.0, memory_clock_mhz=2619.0, temperature_c=41.0, power_w=310.0),
        Conditions(sm_clock_mhz=1410.0, memory_clock_mhz=2619.0, event_reasons=("SwPowerCap",), others=("a (7)",)),
    )
    hot = dropped("throttled", 3e-3, "SM clock at 61 %")
    device = ScriptedDevice(except_at(range(20, 23), hot, repeat(2e-3)), repeat(1e-3), states=states)
    measured = device.measure(Workload(lambda: None, Traffic(10**9, 0)), Budget(30, 1.0), lambda _: None)
    judged = Judged(measured, None, Decision(Status.UNDECIDED, Rule.NO_BASELINE))
    outcome = outcome_of("t", "t", judged, "measured only")
    (row,) = json.loads(render_json(document("1", {}, {}, {}, [outcome], None)))["results"]
    assert row["stop"] == measured.rounds.stop != ""
    assert len(row["samples"]) == len(row["probe_samples"]) == len(row["kernel_first"]) >= 30
    dropped_for = [(d["code"], d["reason"], d["seconds"]) for d in row["dropped"]]
    assert dropped_for == [("throttled", "SM clock at 61 %", 3e-3)] * 3
    assert row["probe"]["bytes_moved"] == 10**9
    assert (row["gbps"], row["probe_gbps"], row["relative"]) == pytest.approx((500.0, 1000.0, 0.5))
    assert row["conditions"] == {"before": plain(states[0]), "after": plain(states[1])}
    assert row["warmup_runs"] >= 1


def plain(state):
    return json.loads(json.dumps(asdict(state)))
