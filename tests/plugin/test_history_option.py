"""--bandwidth-history: each run is appended, and what cannot be is told."""

import sys

import pytest
from plugin_texts import COPY

from pytest_bandwidth.storage import history

pytestmark = pytest.mark.in_process

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")


def rows(folder, query="SELECT run_id, test, device_kind, gbps, relative, samples FROM history ORDER BY 1"):
    return history.ask(folder, lambda opened: opened.rows(query))


def test_each_run_is_appended(project):
    project.file("test_copy.py", COPY)
    for _ in range(2):
        result = project.run_here("--bandwidth-history=made/history")
        result.assert_outcomes(passed=1)
        result.stdout.re_match_lines([r"wrote made/history/\d{8}T\d{6}Z-[0-9a-f]{8}\.parquet"])
    first, second = rows(project.path / "made" / "history")
    assert first[0] != second[0]
    assert (first[1], first[2]) == ("test_copy.py::test_copy", "cpu")
    assert first[3] > 0
    assert first[4] > 0
    assert first[5] >= 3


def test_the_folder_may_stand_in_the_ini_file(project):
    project.file("test_copy.py", COPY)
    ini = project.path / "pytest.ini"
    ini.write_text(f"{ini.read_text()}\nbandwidth_history = kept\n")
    project.run_here().assert_outcomes(passed=1)
    assert len(rows(project.path / "kept")) == 1


def test_a_run_that_measured_nothing_is_not_appended(project):
    project.file("test_copy.py", COPY)
    project.run_here("--bandwidth-history=kept", "--bandwidth-disable").assert_outcomes(passed=1)
    project.run_here("--bandwidth-history=kept", "--bandwidth-skip").assert_outcomes(skipped=1)
    assert not (project.path / "kept").exists()


def test_what_cannot_be_appended_to_is_told_and_spoils_no_verdict(project):
    project.file("test_copy.py", COPY + "    open('kept', 'w').close()\n")
    result = project.run_here("--bandwidth-history=kept", "--bandwidth-csv=run.csv")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["wrote run.csv", "ERROR: kept was not appended to: *found a file, expected a folder*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR


def test_a_missing_extra_is_told_before_any_test_runs(project, monkeypatch):
    project.file("test_copy.py", COPY)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    result = project.run_here("--bandwidth-history=kept")
    result.stderr.fnmatch_lines(["ERROR: --bandwidth-history: the history needs DuckDB and ruptures: pip install*"])
    assert result.ret == pytest.ExitCode.USAGE_ERROR
