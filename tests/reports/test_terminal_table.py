"""The terminal's table: whatever its width, tests can be told apart."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest
import run_documents

from pytest_bandwidth.features.html.table import table_of
from pytest_bandwidth.reports.github import job_summary
from pytest_bandwidth.reports.tables import natural, shortest_unique, without_common_part
from pytest_bandwidth.reports.terminal import summary_lines
from pytest_bandwidth.reports.wording import help_link
from pytest_bandwidth.storage.saved_run import read_document

OUTCOME = run_documents.outcomes(1)[0]
FINE = "OK  floors hold"
LONG = "attention-standard-float32-batch1-heads14-n1024-d"


def table(nodeids: Sequence[str], width: int = 80) -> list[str]:
    """The table's lines, its heading first."""
    rows = [
        replace(OUTCOME, nodeid=nodeid, key=nodeid, status="OK", reason_code="floors", verdict={}) for nodeid in nodeids
    ]
    lines = ["".join(span.text for span in line) for line in summary_lines(rows, width)]
    return lines[: next(i for i, line in enumerate(lines) if " measured: " in line)]


def test_parameters_of_one_test_stand_under_its_name() -> None:
    head, *rows = table([f"a/test_ops.py::test_operation[{name}]" for name in ("add-float32", "copy-float16")])
    assert head.startswith("test_operation[…]  ")
    assert [row.split()[0] for row in rows] == ["add-float32", "copy-float16"]


def test_a_slash_inside_a_parameter_cuts_no_name() -> None:
    _, row = table(["folder/test_ops.py::test_slash[a/b]"])
    assert row.split()[0] == "test_ops.py::test_slash[a/b]"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_long_names_are_whole_on_a_line_of_their_own(width: int) -> None:
    shown = FINE if width > 40 else "OK"
    nodeids = [f"t.py::test_operation[{LONG}{d}]" for d in (64, 128)] + ["t.py::test_operation[copy]"]
    lines = table(nodeids, width)
    for d in (64, 128):
        (place,) = [i for i, line in enumerate(lines) if f"{LONG}{d}" in line]
        if shown not in lines[place]:
            assert lines[place] == f"{LONG}{d}"
            assert lines[place + 1].lstrip() != lines[place + 1]
            assert lines[place + 1].endswith(shown)
    assert sum(line.endswith(shown) for line in lines) == 3
    assert all(line.startswith("copy ") for line in lines if "copy" in line)


def test_figures_stand_in_columns_whether_names_fit_or_not() -> None:
    lines = table(["t.py::test_a", f"t.py::test_{LONG}", "t.py::test_b"])
    assert len({line.index(FINE) for line in lines if FINE in line}) == 1
    assert all(len(line) <= 80 for line in lines)


# How many columns of a terminal each parameter takes: wide, half-width, with a mark, of conjoining letters, plain.
COLUMNS = {"速い": 4, "ｱ": 1, "e\u0301": 1, "\u1112\u1161\u11ab": 2, "plain": 5}


def test_wide_characters_take_two_columns() -> None:
    _, *rows = table([f"t.py::test_[{name}]" for name in COLUMNS], 120)
    assert len(rows) == len(COLUMNS)
    starts = set()
    for row in rows:
        name = row.split()[0]
        starts.add(COLUMNS[name] + len(row[len(name) :].partition(FINE)[0]))
    assert len(starts) == 1


def test_a_name_of_wide_characters_has_a_line_of_its_own_where_it_does_not_fit() -> None:
    name = "測" * 40
    lines = table([f"t.py::test_[{name}]", "t.py::test_[b]"], 80)
    assert name in lines


@pytest.mark.parametrize(
    ("names", "heading", "left"),
    [
        (["t.py::test_a[x]"], "test", ["t.py::test_a[x]"]),
        (["t.py::test_a[x]", "t.py::test_a[y]"], "test_a[…]", ["x", "y"]),
        (["t.py::T::test_a[x[1]]", "t.py::T::test_a[]"], "test_a[…]", ["x[1]", ""]),
        (["t.py::test_a[x]", "t.py::test_a"], "test", ["test_a[x]", "test_a"]),
        (["t.py::test_a[x] @ l", "t.py::test_a[x] @ m"], "test", ["test_a[x] @ l", "test_a[x] @ m"]),
        (["t.py::test_a[x]", "u.py::test_a[x]"], "test", ["t.py::test_a[x]", "u.py::test_a[x]"]),
    ],
)
def test_what_all_names_share_is_left_out(names: list[str], heading: str, left: list[str]) -> None:
    assert without_common_part(names) == (heading, left)


def test_tests_of_one_name_are_told_apart_by_the_shortest_path() -> None:
    nodeids = ["x/a/t.py::test_a", "x/b/t.py::test_a", "y/b/t.py::test_a", "t.py::test_a", "x/a/t.py::test_b[c/d]"]
    assert shortest_unique(nodeids) == dict(
        zip(
            nodeids,
            ["a/t.py::test_a", "x/b/t.py::test_a", "y/b/t.py::test_a", "t.py::test_a", "t.py::test_b[c/d]"],
            strict=True,
        )
    )


def test_tests_of_one_name_are_told_apart_in_table_and_notes() -> None:
    nodeids = ["a/t.py::test_a", "b/t.py::test_a"]
    rows = [replace(OUTCOME, nodeid=n, key=n, status="UNDECIDED", reason=f"because of {n[0]}") for n in nodeids]
    found = ({"code": "xpass", "text": "passes", "level": "note"},)
    rows = [replace(row, findings=found if row.key[0] == "b" else ()) for row in rows]
    lines = ["".join(span.text for span in line) for line in summary_lines(rows, 120)]
    assert [line.split()[0] for line in lines[1:3]] == nodeids
    assert "UNDECIDED a/t.py::test_a: because of a" in lines
    assert lines.count(f"    help  {help_link(OUTCOME.reason_code)}") == 2
    assert "NOTE b/t.py::test_a: passes" in lines


def test_numbers_stand_in_their_natural_order() -> None:
    _, *rows = table([f"t.py::test_a[{n}]" for n in (10, 2, 33, 1)])
    assert [row.split()[0] for row in rows] == ["1", "2", "10", "33"]


def test_pages_and_summaries_for_github_have_the_same_order() -> None:
    nodeids = [f"t.py::test_a[n{n}]" for n in (10, 2, 33, 1)]
    rows = [
        replace(OUTCOME, nodeid=nodeid, key=nodeid, status="OK", reason_code="floors", verdict={}, tags={})
        for nodeid in nodeids
    ]
    document = run_documents.run_document(rows)
    page_rows = [row.name for row in table_of(read_document(document)).rows]
    assert page_rows == [f"test_a[n{n}]" for n in (1, 2, 10, 33)]
    assert re.findall(r"#91;n([0-9]+)&", job_summary(document)) == ["1", "2", "10", "33"]


def test_numbers_of_any_length_sort() -> None:
    names = ["t[" + "9" * 5000 + "]", "t[1" + "0" * 5000 + "]", "t[007]", "t[x]", "t"]
    assert sorted(names, key=natural) == ["t", "t[007]", names[0], names[1], "t[x]"]


def test_rows_that_are_fine_are_only_counted_where_they_are_many() -> None:
    fine = [
        replace(OUTCOME, nodeid=f"t.py::t{i}", key=f"t.py::t{i}", status="OK", reason_code="floors", verdict={})
        for i in range(31)
    ]
    slow = replace(OUTCOME, nodeid="t.py::slow", key="t.py::slow", status="REGRESSED", verdict={"drop": 0.1})
    lines = ["".join(span.text for span in line) for line in summary_lines([*fine, slow], 80)]
    assert [line.split()[0] for line in lines] == ["test", "t.py::slow", "…", "32"]
    assert lines[2] == "… and 31 more that are fine (-v lists them)"
    verbose = summary_lines([*fine, slow], 80, verbose=True)
    assert sum(line[-1].text == FINE for line in verbose) == 31
    assert len(summary_lines(fine[:30], 80)) == 32


ACCESS = {
    "loads": {"sectors_per_request": 32.0, "pattern": "strided (132 bytes)"},
    "stores": {"sectors_per_request": 4.0, "pattern": "coalesced"},
}


def test_a_table_of_every_column_stays_within_80_columns() -> None:
    known = {"drop": 0.106, "reference": 0.981, "figure": "relative", "detects": 0.123}
    whole = replace(
        OUTCOME, utilization=0.98, regime="compute-bound", status="UNDECIDED", reason_code="too-noisy", verdict=known
    )
    counts = replace(OUTCOME, gbps=None, utilization=None, counts={"x": 1}, detail=ACCESS, verdict=known)
    for row in (whole, counts):
        rows = [replace(row, nodeid=f"t.py::test_{LONG}[{i}]", key=str(i)) for i in range(3)]
        lines = ["".join(span.text for span in line) for line in summary_lines(rows, 80)]
        table_lines = lines[: next(i for i, line in enumerate(lines) if " measured: " in line)]
        assert max(len(line) for line in table_lines if not line.startswith((LONG, "    help  "))) <= 80
        assert any("-10.6 %" in line for line in table_lines)
    assert table_lines.count("  within the tolerance, access strided (132 bytes) / coalesced") == 3


@pytest.mark.parametrize(
    ("status", "rule", "detail"),
    [
        ("OK", "not-reproduced", "slow once, not reproduced"),
        ("UNDECIDED", "too-noisy", "too noisy"),
        ("SAVED", "written", ""),
    ],
)
def test_a_verdicts_detail_goes_below_where_it_does_not_fit(status: str, rule: str, detail: str) -> None:
    known = {"drop": 0.106, "reference": 0.981, "figure": "relative", "detects": 0.123}
    row = replace(OUTCOME, utilization=0.98, status=status, reason_code=rule, verdict=known)
    wide, narrow = (
        ["".join(span.text for span in line) for line in summary_lines([row], width)] for width in (200, 60)
    )
    assert wide[1].endswith(f"{status}  {detail}".rstrip())
    assert any(line.endswith(status) for line in narrow)
    assert (f"  {detail}" in narrow) is bool(detail)


def test_no_line_ends_in_a_space() -> None:
    rows = [
        replace(OUTCOME, nodeid=f"t.py::test_a[{i}]", key=str(i), status="OK", reason_code="floors", verdict={})
        for i in range(3)
    ]
    counted = replace(OUTCOME, gbps=None, utilization=None, relative=None, counts={"x": 1}, detail=ACCESS)
    for line in summary_lines([*rows, counted], 60, verbose=True):
        text = "".join(span.text for span in line)
        assert text == text.rstrip()


def test_equal_notes_are_one() -> None:
    finding = {"code": "declared-bytes-written", "text": "declared otherwise", "level": "note"}
    rows = [replace(OUTCOME, nodeid=f"t.py::t[{i}]", key=str(i), findings=(finding,)) for i in range(3)]
    lines = ["".join(span.text for span in line) for line in summary_lines(rows, 80)]
    assert "NOTE t.py::t[0] and 2 more: declared otherwise" in lines


def test_an_absurd_gain_leaves_the_table_in_shape() -> None:
    verdict = {"drop": -1e300, "reference": 1e-300, "figure": "gbps"}
    lines = ["".join(span.text for span in line) for line in summary_lines([replace(OUTCOME, verdict=verdict)], 120)]
    assert "1e+300× on 1e-300 GB/s" in lines[1]
