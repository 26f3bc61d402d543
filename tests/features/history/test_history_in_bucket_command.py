"""`pytest-bandwidth history ADDRESS`: as with a folder, and no secret of the address is shown."""

from __future__ import annotations

import json

import pytest
from run_documents import outcome, run_of

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.features.history.store import append

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[bucket]'")
pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[bucket]'")
pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")

KEY = "test_a.py::test_one"


@pytest.fixture(autouse=True)
def _cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def url(tmp_path) -> str:
    """8 runs of 4 commits."""
    url = f"file://{tmp_path}/bucket/history"
    for number in range(8):
        row = outcome(KEY, 700.0 + number)
        environment = {"started_at": f"2026-01-0{1 + number}T00:00:00Z", "commit": f"c{number // 2}"}
        append(Address(url), run_of(row, environment=environment), [row])
    return url


def test_trends_pages_and_questions_are_those_of_a_folder(command, url, tmp_path):
    assert command("history", url).out.startswith(f"{KEY}  on  Imaginary GPU\n8 runs of 4 commits")
    assert "8 runs of 4 commits" in command("history", f"{url}/", KEY).out
    (trend,) = json.loads(command("history", url, "--json").out)["trends"]
    assert len(trend["runs"]) == 8
    assert command("history", url, "-o", tmp_path / "page.html").status == 0
    assert KEY in (tmp_path / "page.html").read_text()
    assert command("history", url, "--sql", "SELECT count(*) AS n FROM history").out.split() == ["n", "8"]


def test_a_question_reads_the_history_and_nothing_else(command, url, tmp_path):
    (tmp_path / "cache" / "secret.csv").parent.mkdir()
    (tmp_path / "cache" / "secret.csv").write_text("a\n1\n")
    said = command("history", url, "--sql", f"FROM read_csv('{tmp_path}/cache/secret.csv')")
    assert said.status == 2
    assert "--sql: Permission Error" in said.err


def test_saved_runs_are_added_once(command, tmp_path):
    url = f"file://{tmp_path}/new/history"
    row = outcome(KEY, 700.0)
    saved = tmp_path / "run.json"
    saved.write_text(json.dumps(run_of(row, environment={"started_at": "2026-01-01T00:00:00Z"})))
    said = command("history", url, "--add", saved)
    assert (said.status, said.err.startswith("added ")) == (0, True)
    said = command("history", url, "--add", saved)
    assert said.status == 2
    assert "is there already, expected a run that the history has not" in said.err


def test_what_cannot_be_reached_is_a_line_without_secrets(command):
    said = command("history", "nope://user:hunter2@host/history", "--by", "gpu")
    assert said.status == 2
    assert said.err == "pytest-bandwidth history: nope://***@host/history: cannot be opened: Protocol not known: nope\n"
    said = command("history", "s3://bucket/history?sig=hunter2", "--by", "gpu")
    assert said.status == 2
    assert said.err.startswith("pytest-bandwidth history: s3://bucket/history?***: found a query or fragment, expected")


def test_a_history_without_runs_names_its_address(command, tmp_path):
    said = command("history", f"file://{tmp_path}/none", "--by", "gpu")
    assert said.status == 2
    assert f"history: file://{tmp_path}/none: found no runs, expected a folder" in said.err
