"""Columns: what a conftest.py adds stands in every table, and what features add in the right ones."""

from __future__ import annotations

import csv

from plugin_texts import COPY

from pytest_bandwidth.reports.columns import columns

CONFTEST = """
from pytest_bandwidth.hooks import Column, SmallTable

def pytest_bandwidth_columns():
    return [
        Column("rows", "rows", lambda result: result.tags.get("rows"), hint="rows of the matrix"),
        Column("why", "reason", lambda result: "long " * 9, outputs=("details", "notes")),
        Column("parts", "parts", lambda result: SmallTable("Parts", ("part",), [(1,), (2,)]), outputs=("details",)),
    ]
"""


def test_a_figure_of_a_test_has_a_column_from_a_conftest(project, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    project.file("conftest.py", CONFTEST)
    project.file("test_copy.py", f"{COPY}    bandwidth.tags['rows'] = 12345\n")
    files = ("--bandwidth-csv=run.csv", "--bandwidth-html=run.html", "--bandwidth-json=run.json")
    result = project.run_here("-v", *files)
    assert result.ret == 0
    place = next(i for i, line in enumerate(result.outlines) if "GB/s  " in line)
    assert "rows" in result.outlines[place].split()
    assert "12,345" in result.outlines[place + 1].split()
    result.stdout.fnmatch_lines(["reason *: long long *"])
    (cells,) = csv.DictReader((project.path / "run.csv").read_text().splitlines())
    assert cells["rows"] == "12345"
    page = (project.path / "run.html").read_text()
    assert 'title="rows of the matrix"' in page
    assert ">12,345" in page
    assert '"title":"Parts","head":["part"],"rows":[["1"],["2"]]' in page


def test_columns_have_one_name_each():
    for output in ("terminal", "markdown", "html", "csv"):
        keys = [column.key for column in columns(output)]
        assert len(keys) == len(set(keys))


def test_features_bring_theirs():
    assert {"dram_read", "load_sectors"} <= {column.key for column in columns("csv")}
    assert {"dram_in_full", "operators", "accesses"} <= {column.key for column in columns("details")}
