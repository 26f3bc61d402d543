"""A bandwidth test that fails before it is judged is in the run's document, and the report is not green."""

import pytest

from pytest_bandwidth.outcomes.run_findings import FAILED, UNJUDGED
from pytest_bandwidth.reports.summary import summary_of_run
from pytest_bandwidth.storage.saved_run import read_document

pytestmark = [pytest.mark.in_process, pytest.mark.slow, pytest.mark.usefixtures("inside")]

TESTS = """
import numpy as np
import pytest

def copy(bandwidth):
    a, b = bandwidth.random(1 << 14, "float32"), bandwidth.empty(1 << 14, "float32")
    bandwidth(np.copyto, b, a, reads=a, writes=b)

@pytest.mark.bandwidth(min_gbps=0.0001)
def test_good(bandwidth):
    copy(bandwidth)

def test_wrong_result(bandwidth):
    copy(bandwidth)
    assert False, "not what it should be"

@pytest.fixture
def broken():
    raise ValueError("no data")

def test_broken_setup(bandwidth, broken):
    copy(bandwidth)

def test_of_no_bandwidth():
    assert False
"""


def test_failures_without_a_verdict_are_told(project):
    project.file("test_kernels.py", TESTS)
    project.run("--bandwidth-json=run.json", "--bandwidth-disable").assert_outcomes(passed=1, failed=2, errors=1)
    assert not (project.path / "run.json").exists(), "measuring is off"
    document = project.document()
    texts = [finding["text"] for finding in document["findings"] if finding["code"] == UNJUDGED]
    assert texts == [
        "test_kernels.py::test_wrong_result failed before it was judged: AssertionError: not what it should be",
        "test_kernels.py::test_broken_setup failed before it was judged: ValueError: no data",
    ]


def test_a_run_of_nothing_but_failures_without_a_verdict_is_told(project):
    """An earlier run's files would otherwise stand where this one's are looked for."""
    pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")
    failing = TESTS.replace("@pytest.mark.bandwidth(min_gbps=0.0001)\n", "").replace("test_good", "other")
    project.file("test_kernels.py", failing)
    (project.path / "run.json").write_text('{"schema": 1, "of": "an earlier run"}')
    update = ("--bandwidth-baseline=b.yaml", "--bandwidth-update")
    files = ("--bandwidth-json=run.json", "--bandwidth-html=run.html", "--bandwidth-history=history")
    result = project.run(*files, *update)
    result.assert_outcomes(failed=2, errors=1)
    result.stdout.fnmatch_lines(["*= memory bandwidth =*", "0 measured", "wrote run.json", "wrote run.html"])
    run = read_document(project.told())
    assert [note.code for note in run.findings] == [UNJUDGED, UNJUDGED, FAILED]
    summary = summary_of_run(run)
    assert (summary.sentence, summary.severity) == ("2 tests failed before being judged", "bad")
    assert summary.sentence in (project.path / "run.html").read_text(encoding="utf-8")
    assert not (project.path / "history").exists()
    assert not (project.path / "b.yaml").exists(), "an update leaves the baseline alone"
