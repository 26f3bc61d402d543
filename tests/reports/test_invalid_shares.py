"""Shares of what is not valid, or past belief, mean nothing: no table shows them, the JSON document keeps them."""

import csv
import io
from dataclasses import replace

import run_documents

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.rounds import Rounds
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.features.html.details import detail_of
from pytest_bandwidth.features.html.table import table_of
from pytest_bandwidth.reports.columns import columns
from pytest_bandwidth.reports.documents import render_csv
from pytest_bandwidth.reports.github import job_summary
from pytest_bandwidth.reports.terminal import summary_lines
from pytest_bandwidth.reports.wording import observation
from pytest_bandwidth.storage.saved_run import read_document

# A host's user may let others use its processors: the probe is then hindered, at times as much.
HINDERED = 13.37

VALID = replace(run_documents.outcomes(1)[0], utilization=0.7654, utilization_of="peak", relative=0.6543, verdict={})
INVALID = replace(VALID, status="UNDECIDED", reason_code="others", is_valid=False, reason="beside others")


def as_run(outcome):
    return run_documents.run_document([outcome])


def shown(outcome):
    """Every text that shows the row's shares."""
    whole = as_run(outcome)
    run = read_document(whole)
    return {
        "terminal": "\n".join("".join(span.text for span in line) for line in summary_lines([outcome], 200)),
        "github": job_summary(whole),
        "page": repr(table_of(run)) + repr(detail_of(outcome, 10, columns("details"))),
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


def test_shares_of_a_hindered_probe_are_blank_in_every_table():
    hindered = replace(VALID, utilization=HINDERED, utilization_of="probe", relative=HINDERED)
    for name, text in shown(hindered).items():
        assert not any(share in text for share in ("1337 %", "1337.0", "13.37")), name
    (row,) = csv.DictReader(io.StringIO(render_csv([hindered])))
    assert (row["utilization"], row["utilization_of"], row["relative"]) == ("", "", "")
    (row,) = as_run(hindered)["results"]
    assert (row["utilization"], row["relative"]) == (HINDERED, HINDERED)


def test_what_a_failure_says_leaves_out_such_a_share():
    rounds = Rounds(kernel_seconds=(1e-3,) * 5, probe_seconds=(13.37e-3,) * 5, probe_bytes=1 << 20, probe_name="copy")
    measured = Measurement(None, Traffic(1 << 20, 0), DeviceIdentity("cpu", "a host", None, "h"), "clock", rounds)
    assert observation(measured) == "moved 1.05 MB in 1 ms: 1.05 GB/s"
