"""What a card's node may send, and what is made of it: without Ray, with documents made here."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import text_of_cubin
from pytest_bandwidth.features.fleet.cards import Card, CardRow, Lost, Returned, read_result
from pytest_bandwidth.features.fleet.overview import fleet_document, table
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.documents import document, render_json

CARD = Card(0, "gpu1 GPU 3", "gpu1", "ab" * 14, "gpu1", "192.0.2.7", "H100", 1)
DEVICE = {"kind": "cuda", "name": "NVIDIA H100", "serial": "GPU-1", "timed_on": "gpu", "memory_gib": 80, "peak": None}
ROW = Outcome("t.py::t", "t.py::t", None, "SAVED", "written", "", gbps=90.0, bytes_read=8, method="events")


def a_document(**changed: object) -> dict:
    return {**document("r", {"host": "gpu1"}, DEVICE, {}, [ROW], None), **changed}


def returned(told: object, **changed: object) -> Returned:
    data = told if isinstance(told, bytes) else render_json(told).encode()
    return replace(Returned(0, 4.0, ("last line",), data, len(data)), **changed)


def read(outcome: Returned | Lost):
    return read_result(CARD, outcome, 1, 5.0, 60.0)


def test_a_document_becomes_a_row_and_a_devices_report():
    row, report = read(returned(a_document()))
    assert (row.state, row.reason, row.tail) == ("measured", "", ())
    assert (row.statuses, row.gbps) == ({"SAVED": 1}, {"t.py::t": 90.0})
    assert report.device["serial"] == "GPU-1"
    assert [one.outcome.gbps for one in report.rows] == [90.0]
    assert report.environment["host"] == "gpu1"
    # Else an update would measure them on the caller's machine.
    assert report.further == []


def test_what_an_update_needs_beside_the_document():
    marker = {"tolerance": 0.03, "judged_on": "gbps", "of_a_newer_plugin": 1}
    evidence = {
        "further": [[ROW.to_plain()]],
        "asked": {"t.py::t": marker},
        "code": {"t.py::t": {"ptx": "no such hash"}},
    }
    _, report = read(returned(a_document(), evidence=json.dumps(evidence).encode()))
    assert [[row["gbps"] for row in rows] for rows in report.further] == [[90.0]]
    assert [row.asked for row in report.rows] == [MarkerOptions(tolerance=0.03, judged_on="gbps")]
    assert [row.ptx for row in report.rows] == [None]


PTX = ".version 9.0\n.target sm_90\n.visible .entry k()\n{\nret;\n}\n"


@pytest.mark.parametrize(
    ("code", "ptx", "cubin"),
    [
        ({"ptx": PTX, "cubin": text_of_cubin(b"machine code")}, PTX, b"machine code"),
        ({"ptx": PTX, "cubin": "machine code!"}, PTX, None),
        ({"ptx": PTX, "cubin": 3}, PTX, None),
        ({"ptx": PTX}, PTX, None),
        ({"ptx": f"{PTX}ret;", "cubin": text_of_cubin(b"machine code")}, None, None),
        ({"cubin": text_of_cubin(b"machine code")}, None, None),
        (["ptx"], None, None),
        (None, None, None),
    ],
)
def test_code_to_keep_is_what_its_row_says(code, ptx, cubin):
    row = replace(ROW, code_identity={"ptx": ptx_digest(PTX), "sass": "s" * 32})
    evidence = {"further": [], "asked": {}, "code": {} if code is None else {ROW.key: code}}
    document = {**a_document(), "results": [row.to_plain()]}
    _, report = read(returned(document, evidence=json.dumps(evidence).encode()))
    assert [(one.ptx, one.cubin) for one in report.rows] == [(ptx, cubin)]


@pytest.mark.parametrize(
    ("outcome", "reason"),
    [
        (Lost("the node died", can_retry=False), "the node died"),
        (returned(b"[" * 10**5), "refused: its document: found no JSON"),
        (returned(b"[" * 10**6), "refused: its document: found 1,000,000 values, expected at most 183,333 in"),
        (returned(b"null"), "refused: its document: found no results"),
        (returned(a_document(schema=2)), "refused: its document: found schema 2, expected 1"),
        (returned(a_document(results=[{"gbps": "fast"}])), "refused: its document: results[0]"),
        (
            returned(a_document(device={**DEVICE, "serial": "x" * 201})),
            "refused: its device's serial has 201 characters",
        ),
        (returned(a_document(), evidence=b"[]"), "refused: its evidence: found no further runs"),
        (returned(a_document(), evidence=b'{"further": []}'), "refused: its evidence: found no markers"),
        (
            returned(a_document(), evidence=b'{"further": [[1]], "asked": {}, "code": {}}'),
            "refused: its further runs: ",
        ),
        (
            returned(a_document(), evidence=b'{"further": [], "asked": {"t": {"tolerance": []}}, "code": {}}'),
            "refused: bandwidth marker: tolerance=[]",
        ),
        (Returned(None, 60.0), "pytest did not end in 60 s, and was ended"),
        (Returned(0, 1.0, document_bytes=10**9), "refused: its document has 1 GB, expected a saved run"),
        (Returned(1, 1.0, plugin="", python="/bin/py"), "/bin/py finds no pytest-bandwidth"),
        (Returned(5, 1.0, plugin="0.1.0"), "no bandwidth test ran"),
        (
            Returned(4, 1.0, ("ERROR: file or directory not found: a.py", ""), plugin="0.1.0"),
            "pytest ended with exit status 4 and measured nothing: file or directory not found: a.py",
        ),
        (Returned(-9, 1.0, plugin="0.1.0"), "pytest ended with signal 9 and measured nothing"),
        (returned(a_document(), status=2), "pytest ended with exit status 2"),
    ],
)
def test_what_is_no_result_is_a_row_of_one_line(outcome, reason):
    row, report = read(outcome)
    assert report is None
    assert row.state == "missing"
    assert row.reason.startswith(reason), row.reason
    assert "\n" not in row.reason


def test_the_largest_loss_is_named_of_what_failed():
    failed = [
        replace(ROW, nodeid=f"t.py::{name}", key=name, status=status, verdict={"drop": drop}, message="slow")
        for name, status, drop in (("a", "REGRESSED", 0.1), ("b", "REGRESSED", 0.3), ("c", "UNDECIDED", 0.5))
    ]
    row, _ = read(returned({**a_document(), "results": [one.to_plain() for one in failed]}, status=1))
    assert (row.state, row.reason) == ("failed", "t.py::b failed, and 2 others")


def test_output_of_a_node_and_what_ray_said_last_show_no_control_characters():
    row, _ = read(Returned(4, 1.0, ("\x1b[2Jgone", "x" * 1000), plugin="0.1.0"))
    assert row.tail == ("\\x1b[2Jgone", "x" * 300)
    row, _ = read(Lost("no environment", can_retry=True, tail=("pip: \x1b[31mno wheel",)))
    assert (row.state, row.tail) == ("missing", ("pip: \\x1b[31mno wheel",))


def test_the_table_counts_the_cards_and_the_document_has_a_row_for_each():
    measured, _ = read(returned(a_document()))
    failed, _ = read(returned(a_document(), status=1))
    rows = [measured, failed, CardRow(CARD, "missing", 0.0, 1)]
    lines = table(rows)
    assert lines[-1] == "3 cards: 1 failed, 1 measured, 1 missing"
    assert [line.split()[3] for line in lines[1:-1]] == ["measured", "failed", "missing"]
    told = json.loads(render_json(fleet_document("r", {}, rows, {0: "slower"}, 3)))
    assert [card["state"] for card in told["cards"]] == ["measured", "failed", "missing"]
    assert told["cards"][1]["reason"] == "tests failed"
    assert told["cards"][0]["unlike"] == "slower"
    assert told["exit_status"] == 3
