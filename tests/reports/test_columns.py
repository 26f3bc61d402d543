"""Columns: each table shows what it should, a conftest.py's included; shares that mean nothing stand in none."""

import csv
import io
from dataclasses import replace

import pytest
import run_documents
from user_project import COPY

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import FLOOR_SECONDS, Measurement, Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.features.html.details import detail_of
from pytest_bandwidth.features.html.page import table_of
from pytest_bandwidth.reports.columns import columns
from pytest_bandwidth.reports.documents import render_csv
from pytest_bandwidth.reports.github import job_summary
from pytest_bandwidth.reports.terminal import summary_lines
from pytest_bandwidth.reports.wording import observation
from pytest_bandwidth.storage.saved_run import read_document

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


# A host's user may let others use its processors: the probe is then hindered, at times as much.
HINDERED = 13.37

VALID = replace(run_documents.outcomes(1)[0], utilization=0.7654, utilization_of="peak", relative=0.6543, verdict={})


def texts_of(outcome):
    whole = run_documents.run_document([outcome])
    run = read_document(whole)
    return {
        "terminal": "\n".join("".join(span.text for span in line) for line in summary_lines([outcome], 200)),
        "github": job_summary(whole),
        "page": repr(table_of(run)) + repr(detail_of(outcome, columns("details"))),
    }


@pytest.mark.parametrize(
    ("row", "shares"),
    [
        (
            replace(VALID, status="UNDECIDED", reason_code="others", is_valid=False, reason="beside others"),
            ("77 %", "76.5", "65 %", "65.4"),
        ),
        (replace(VALID, utilization=HINDERED, utilization_of="probe", relative=HINDERED), ("1337 %", "13.37")),
    ],
)
def test_shares_of_invalid_rows_and_of_a_hindered_probe_are_blank_in_every_table(row, shares):
    for name, text in texts_of(row).items():
        assert not any(share in text for share in shares), name
    (cells,) = csv.DictReader(io.StringIO(render_csv([row])))
    assert (cells["utilization"], cells["utilization_of"], cells["relative"]) == ("", "", "")
    (plain,) = run_documents.run_document([row])["results"]
    assert (plain["utilization"], plain["relative"]) == (row.utilization, row.relative)


def test_shares_of_valid_rows_are_shown_and_features_bring_columns():
    for name, text in texts_of(VALID).items():
        assert "77 %" in text or "76.5" in text, name
    (cells,) = csv.DictReader(io.StringIO(render_csv([VALID])))
    assert (cells["utilization"], cells["utilization_of"], cells["relative"]) == ("0.7654", "peak", "0.6543")
    assert {"dram_read", "load_sectors"} <= {column.key for column in columns("csv")}
    assert {"dram_in_full", "operators", "accesses"} <= {column.key for column in columns("details")}


@pytest.mark.parametrize(("by", "shown"), [("declared bytes", False), ("FLOP", True), ("counted bytes", True)])
def test_the_speed_of_light_has_a_column_where_it_is_not_the_share_of_the_peak(by, shown):
    row = replace(VALID, sol=0.8125, sol_by=by)
    for name, text in texts_of(row).items():
        assert (f"81.2 % by {by}" in text) is (shown or name == "page"), name  # a page has it in the row's details
        assert ("speed of light" in text) is (shown or name == "page"), name
    (cells,) = csv.DictReader(io.StringIO(render_csv([row])))
    assert (cells["sol"], cells["sol_by"]) == ("0.8125", by)
    (cells,) = csv.DictReader(io.StringIO(render_csv([replace(row, is_valid=False)])))
    assert (cells["sol"], cells["sol_by"]) == ("", "")


def test_what_a_failure_says_leaves_out_such_a_share():
    rounds = Rounds(kernel_seconds=(1e-3,) * 5, probe_seconds=(13.37e-3,) * 5, probe_bytes=1 << 20, probe_name="copy")
    measured = Measurement(None, Traffic(1 << 20, 0), DeviceIdentity("cpu", "a host", None, "h"), "clock", rounds)
    assert observation(measured) == "moved 1.05 MB in 1 ms: 1.05 GB/s"


@pytest.mark.parametrize(("floor", "took"), [(None, "8 µs"), (0.3e-6, "8 µs"), (3.4e-6, "8 µs (3.4 µs overhead)")])
def test_an_observation_tells_what_is_no_work_where_it_is_much(floor, took):
    rounds = Rounds(kernel_seconds=(8e-6,) * 5)
    measured = Measurement(None, Traffic(8000, 0), DeviceIdentity("cuda", "a card", None, "h"), "events+block", rounds)
    assert observation(measured.with_detail(FLOOR_SECONDS, floor)) == f"moved 8 kB in {took}: 1.00 GB/s"


@pytest.mark.parametrize(
    ("touched", "shown"),
    [(116_200, ("116,100 B", "116,200 B")), (116_100, ("116 kB", "116 kB")), (58_100, ("116 kB", "58.1 kB"))],
)
def test_bytes_that_differ_look_different(touched, shown):
    counts = {"distinct_bytes_read": touched, "distinct_bytes_written": 0}
    device = DeviceIdentity("traffic", "a model", None, "m", timed_on="nothing")
    measured = Measurement(None, Traffic(116_100, 0), device, "ptx", Rounds(), counts=counts)
    assert observation(measured) == f"declared {shown[0]} read, 0 B written; touched {shown[1]} read, 0 B written"
