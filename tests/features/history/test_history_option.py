"""--bandwidth-history: each run is appended, and what cannot be is told."""

import json
import sys

import pytest
from user_project import COPY

from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history.reading import ask

pytestmark = pytest.mark.in_process

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")

SECRET_URL = "faulty://user:hunter2@host/history"


def rows(folder, query="SELECT run_id, test, device_kind, gbps, samples FROM history ORDER BY 1"):
    return ask(folder, lambda opened: opened.rows(query))


@pytest.mark.parametrize("is_bucket", [False, True])
def test_each_run_is_appended_by_option_or_ini_file(project, monkeypatch, is_bucket):
    project.file("test_copy.py", COPY)
    place, given = project.path / "made" / "history", "made/history"
    if is_bucket:
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
        monkeypatch.setenv("XDG_CACHE_HOME", str(project.path / "cache"))
        place, given = Address(f"file://{place}"), f"file://{place}/"
    ini = project.path / "pytest.ini"
    ini.write_text(f"{ini.read_text()}\nbandwidth_history = {given}\n")
    for option in ([], [f"--bandwidth-history={given}"]):
        result = project.run_here(*option)
        result.assert_outcomes(passed=1)
        result.stdout.re_match_lines([rf"wrote .*{given.rstrip('/')}/\d{{8}}T\d{{6}}Z-[0-9a-f]{{8}}\.parquet"])
    first, second = rows(place)
    assert first[0] != second[0]
    assert (first[1], first[2]) == ("test_copy.py::test_copy", "cpu")
    assert first[3] > 0
    assert first[4] >= 3


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


class TestAddress:
    """In the place of the folder; test_history_in_bucket.py has what a bucket can do."""

    @pytest.fixture(autouse=True)
    def own_cache(self, project, monkeypatch):
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
        monkeypatch.setenv("XDG_CACHE_HOME", str(project.path / "cache"))

    def test_it_comes_through_to_xdist(self, project):
        pytest.importorskip("xdist", reason="pytest-xdist is not installed")
        project.file("test_copy.py", COPY)
        place = f"file://{project.path}/bucket/history"
        project.run_here("-n1", f"--bandwidth-history={place}").assert_outcomes(passed=1)
        assert len(rows(Address(place))) == 1

    def test_what_cannot_be_reached_is_told_before_any_test_runs(self, project):
        project.file("test_copy.py", COPY + "    open('ran', 'w').close()\n")
        result = project.run_here("--bandwidth-history=nope://user:hunter2@host/history")
        unknown = "nope://[*][*][*]@host/history: cannot be opened: Protocol not known: nope"
        result.stderr.fnmatch_lines([f"ERROR: --bandwidth-history: {unknown} (help: *"])
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        assert not (project.path / "ran").exists()

    def test_no_secret_of_it_is_written_or_shown(self, project, monkeypatch):
        from faulty_store import FaultyStore  # needs fsspec

        store = project.path / "bucket"
        monkeypatch.setattr(FaultyStore, "faults", {})
        monkeypatch.setattr(
            FaultyStore, "_strip_protocol", staticmethod(lambda path: str(path).replace(SECRET_URL, str(store)))
        )
        # In a new cache the library of charts would be made anew.
        monkeypatch.setattr("pytest_bandwidth.features.html.page.charts_available", lambda: False)
        project.file("test_copy.py", COPY)
        arguments = ["pytest", f"--bandwidth-history={SECRET_URL}", "--bandwidth-dir=reports"]
        monkeypatch.setattr(sys, "argv", arguments)
        result = project.run_here(*arguments[1:])
        result.assert_outcomes(passed=1)
        assert len(list(store.glob("*.parquet"))) == 1
        result.stdout.fnmatch_lines(["wrote faulty://[*][*][*]@host/history/*.parquet"])
        written = [path for path in project.path.rglob("*") if path.is_file() and path != project.path / "test_copy.py"]
        assert {path.suffix for path in written} >= {".json", ".html", ".csv", ".parquet"}
        for text in (
            result.stdout.str(),
            result.stderr.str(),
            *(path.read_bytes().decode("latin1") for path in written),
        ):
            assert "hunter2" not in text
        (document,) = (json.loads(path.read_text()) for path in written if path.name == "bandwidth_report.json")
        assert document["settings"]["history"] == "faulty://***@host/history"
        assert "--bandwidth-history=faulty://***@host/history" in document["environment"]["command"]
