"""The terminal's table: whatever its width, tests can be told apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import run_documents

from pytest_bandwidth.reports.terminal import summary_lines, told_apart

OUTCOME = run_documents.outcomes(1)[0]
LONG = "attention-standard-float32-batch1-heads14-n1024-d"


def table(nodeids: Sequence[str], width: int = 80) -> list[str]:
    """The table's lines, its heading first."""
    rows = [replace(OUTCOME, nodeid=nodeid, key=nodeid, status="WITHIN", verdict={}) for nodeid in nodeids]
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
    nodeids = [f"t.py::test_operation[{LONG}{d}]" for d in (64, 128)] + ["t.py::test_operation[copy]"]
    lines = table(nodeids, width)
    for d in (64, 128):
        (place,) = [i for i, line in enumerate(lines) if f"{LONG}{d}" in line]
        if "WITHIN" not in lines[place]:
            assert lines[place] == f"{LONG}{d}"
            assert lines[place + 1].lstrip() != lines[place + 1]
            assert lines[place + 1].endswith("WITHIN")
    assert sum(line.endswith("WITHIN") for line in lines) == 3
    assert all(line.startswith("copy ") for line in lines if "copy" in line)


def test_figures_stand_in_columns_whether_names_fit_or_not() -> None:
    lines = table(["t.py::test_a", f"t.py::test_{LONG}", "t.py::test_b"])
    assert len({line.index("WITHIN") for line in lines if "WITHIN" in line}) == 1
    assert all(len(line) <= 80 for line in lines)


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
    assert told_apart(names) == (heading, left)
