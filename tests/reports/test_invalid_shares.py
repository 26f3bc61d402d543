"""Shares of what is INVALID mean nothing: no table shows them, the JSON document keeps them."""

import csv
import io
from dataclasses import replace

import run_documents

from pytest_bandwidth.reports.csv import render_csv
from pytest_bandwidth.reports.github import job_summary
from pytest_bandwidth.reports.html.details import detail_of
from pytest_bandwidth.reports.html.table import table_of
from pytest_bandwidth.reports.terminal import summary_lines
from pytest_bandwidth.storage.saved_run import read_document

VALID = replace(run_documents.outcomes(1)[0], utilization=0.7654, utilization_of="peak", relative=0.6543, verdict={})
INVALID = replace(VALID, status="INVALID", code="others", reason="beside others")


def as_run(outcome):
    return run_documents.run_document([outcome])


def shown(outcome):
    """Every text that shows the row's shares."""
    whole = as_run(outcome)
    run = read_document(whole)
    return {
        "terminal": "\n".join("".join(span.text for span in line) for line in summary_lines([outcome], 200)),
        "github": job_summary(whole),
        "page": repr(table_of(run)) + repr(detail_of(outcome, 10)),
    }


def test_shares_of_invalid_rows_are_blank_in_every_table():
    for name, text in shown(VALID).items():
        assert "77 %" in text or "76.5" in text, name
    for name, text in shown(INVALID).items():
        assert not any(share in text for share in ("77 %", "76.5", "65 %", "65.4")), name
    for outcome, cells in ((VALID, ("0.7654", "peak", "0.6543")), (INVALID, ("", "", ""))):
        (row,) = csv.DictReader(io.StringIO(render_csv([outcome])))
        assert (row["utilization"], row["utilization_of"], row["relative"]) == cells
    (row,) = as_run(INVALID)["results"]
    assert (row["utilization"], row["relative"]) == (0.7654, 0.6543)
