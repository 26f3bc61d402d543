"""`pytest-bandwidth history` over real stores of invented runs."""

from __future__ import annotations

import importlib.util
import json
import random
import re
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from children import HANGS_SECONDS, computes
from run_documents import HOST, outcome, run_of, save
from user_project import LINK

from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history import command as command_module
from pytest_bandwidth.features.history import reading, writing
from pytest_bandwidth.features.history.place import Place
from pytest_bandwidth.features.history.table import COLUMNS
from pytest_bandwidth.features.history.writing import append
from pytest_bandwidth.outcomes.outcome import Outcome

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")
pytest.importorskip("ruptures", reason="ruptures is not installed: pip install 'pytest-bandwidth[history]'")

COPY, TRIAD = "tests/test_stream.py::test_copy[float32]", "tests/test_stream.py::test_triad[float32]"


def at(number: int) -> Mapping[str, str]:
    return {"started_at": f"2026-01-{1 + number // 24:02d}T{number % 24:02d}:00:00Z", "commit": f"c{number // 2:03d}"}


def add(place: Place, number: int, *rows: Outcome, **run: Any) -> Place:
    return append(place, run_of(*rows, **{"environment": at(number), **run}), rows)


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """60 runs of 30 commits: the triad loses 6 % of the probe with c016; 4 runs on a host."""
    path, noise = tmp_path_factory.mktemp("store") / "history", random.Random(1)
    for number in range(60):
        probe = noise.gauss(900, 20)
        shares = {COPY: 0.98, TRIAD: 0.90 if number < 32 else 0.846}
        add(path, number, *(outcome(key, s * noise.gauss(1, 0.006) * probe, probe) for key, s in shares.items()))
    for number in range(4):
        add(path, number, outcome(COPY, 31.0, 32.0, device=HOST, peak=None), device=HOST, peak=None)
    return path


def test_every_test_on_every_device_is_a_row(command, folder):
    said = command("history", folder)
    assert (said.status, said.err) == (0, "")
    head, *rows = said.out.splitlines()
    assert head.split() == ["test", "device", "runs", "GB/s", "of", "probe", "last", "change", "commit", "trend"]
    assert [row.split()[0] for row in rows] == [COPY, COPY, TRIAD]
    assert "Imaginary host" in rows[0]
    assert re.search(r"60 .* −[56]\.\d %  c016 ", rows[2])
    assert "%  c0" not in rows[0] + rows[1]


def test_one_test_is_shown_by_commit_with_its_change(command, folder):
    said = command("history", folder, TRIAD)
    title, summary, bars, *rest = said.out.splitlines()
    assert title == f"{TRIAD}  on  Imaginary GPU"
    assert re.fullmatch(
        r"60 runs of 30 commits, 1 change of level, the last −[56]\.\d % at c016 \(2026-01-02\): now 8\S+ % of probe",
        summary,
    )
    assert bars.startswith("share of the probe, %, the oldest run first: ")
    assert "… 10 commits before" in rest[0]
    rows = {row.split()[2]: row for row in rest[2:]}
    assert list(rows) == [f"c{number:03d}" for number in range(10, 30)]
    assert [commit for commit, row in rows.items() if "−" in row] == ["c016"]
    assert len(command("history", folder, TRIAD, "--commits", 30).out.splitlines()) == 34


def test_tests_are_chosen_by_pattern_of_star_and_question_mark_and_devices_by_model_or_serial(command, folder):
    assert command("history", folder, "*triad[[]*").status == 2
    assert TRIAD in command("history", folder, "*triad[*").out
    by_model, by_serial = (command("history", folder, "--device", name).out for name in ("Imaginary host", "host-1"))
    assert by_model == by_serial
    assert "Imaginary GPU" not in by_model
    for chosen, found in ((["no such test"], "no entry like 'no such test'"), (["--device", "O"], "no figures of 'O'")):
        said = command("history", folder, *chosen)
        assert (said.status, said.out, said.err.count("\n")) == (2, "", 1)
        assert f"found {found}" in said.err


def test_json_holds_runs_and_levels(command, folder):
    document = json.loads(command("history", folder, TRIAD, "--json").out)
    assert document["schema"] == 1
    (trend,) = document["trends"]
    found = {**trend, "runs": len(trend["runs"])}.items()
    assert found >= {"test": TRIAD, "device": "Imaginary GPU", "figure": "relative", "runs": 60}.items()
    first, second = trend["levels"]
    assert (first["start"], first["change"], second["commit"]) == (0, None, "c016")
    assert first["runs"] + second["runs"] == 60
    assert second["change"] == pytest.approx(-0.06, abs=0.01)
    assert trend["runs"][0]["at"] == "2026-01-01T00:00:00Z"


def test_of_every_test_the_hundred_newest_runs_are_looked_at_and_of_a_chosen_one_more(command, tmp_path, monkeypatch):
    assert (command_module.NEWEST_WITHOUT_KEY, command_module.NEWEST_RUNS) == (100, 2000)
    monkeypatch.setattr(command_module, "NEWEST_WITHOUT_KEY", 3)
    monkeypatch.setattr(command_module, "NEWEST_RUNS", 4)
    for number in range(5):
        add(tmp_path / "h", number, outcome(COPY, 700.0))

    def runs(*arguments: object) -> int:
        (trend,) = json.loads(command("history", tmp_path / "h", *arguments, "--json").out)["trends"]
        return len(trend["runs"])

    assert (runs(), runs("--newest", 5), runs(COPY), runs(COPY, "--newest", 2)) == (3, 5, 4, 2)


@pytest.mark.parametrize("value", ["0", "9" * 5000])
def test_a_number_of_runs_is_bounded(command, folder, value):
    said = command("history", folder, "--newest", value)
    assert said.status == 2
    assert "expected a whole number from 1 to 1000000" in said.err


def test_sql_prints_a_table_or_json(command, folder):
    question = "SELECT device, count(*) AS n FROM history GROUP BY device ORDER BY n"
    assert [line.split() for line in command("history", folder, "--sql", question).out.splitlines()] == [
        ["device", "n"],
        ["Imaginary", "host", "4"],
        ["Imaginary", "GPU", "120"],
    ]
    document = json.loads(command("history", folder, "--sql", question, "--json").out)
    rows = [["Imaginary host", 4], ["Imaginary GPU", 120]]
    assert document == {"schema": 1, "columns": ["device", "n"], "rows": rows}
    question = "SELECT 'nan'::DOUBLE, now() > '1999-01-01'"
    document = json.loads(command("history", folder, "--json", "--sql", question).out)
    assert document["rows"] == [[None, True]], "JSON has no NaN"
    said = command("history", folder, "--sql", "DROP VIEW history")
    assert (said.status, said.err) == (
        2,
        f"pytest-bandwidth history: --sql: found 'DROP VIEW history', expected one SELECT{LINK}\n",
    )


@pytest.mark.parametrize("before_merge", [3, writing.RUNS_BEFORE_MERGE])
def test_saved_runs_can_be_added_once_whether_they_were_merged_or_not(command, tmp_path, monkeypatch, before_merge):
    assert writing.RUNS_BEFORE_MERGE == 200
    monkeypatch.setattr(writing, "RUNS_BEFORE_MERGE", before_merge)
    folder, row = tmp_path / "new", outcome(COPY, 700.0)
    files = [save(tmp_path / f"{i}.json", run_of(row, environment=at(i), run_id=f"r{i}")) for i in range(3)]
    assert command("history", folder, "--add", *files).status == 0
    assert "3 runs of 2 commits" in command("history", folder, COPY).out
    stored = sorted(folder.glob("*.parquet"))
    assert len(stored) == (1 if before_merge == 3 else 3)
    again = command("history", folder, "--add", files[1])
    assert again.status == 2
    assert again.err == (
        f"pytest-bandwidth history: {files[1]}: r1 is there already, expected a run that the history has not{LINK}\n"
    )
    assert sorted(folder.glob("*.parquet")) == stored


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({"run_id": "../../x"}, "run_id is"),
        ({"environment": {}}, "environment.started_at is None, expected a time"),
        ({"results": []}, "found no results"),
    ],
)
def test_a_saved_run_that_no_history_holds_is_refused(command, tmp_path, change, found):
    file = save(tmp_path / "run.json", {**run_of(outcome(COPY, 700.0), environment=at(0)), **change})
    said = command("history", tmp_path / "new", "--add", file)
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert said.err.startswith(f"pytest-bandwidth history: {file}: ")
    assert found in said.err


def test_text_that_would_write_over_the_terminal_is_shown_harmless(command, tmp_path):
    hostile = {**at(0), "commit": "\x1b[31m"}
    add(tmp_path / "h", 0, outcome("t.py::test[\x1b[2J\u202e]", 700.0), environment=hostile)
    question = 'SELECT test, "commit", 1 AS "a\x1b[31m\u202e", \'x\' AS "##[error]b" FROM history'
    for arguments in ([], ["t.py*"], ["--sql", question]):
        lines = command("history", tmp_path / "h", *arguments).out.splitlines()
        assert all(line.isprintable() for line in lines)
    assert lines[0].split() == ["test", "commit", r"a\x1b[31m\u202e", "#", "#[error]b"]


def test_figures_and_moments_that_no_run_has_are_passed_over(command, tmp_path):
    folder, row = tmp_path / "h", outcome(COPY, 700.0)
    files = [add(folder, i, row) for i in range(8)]
    moments = ("0005-01-01 (BC) 00:00:00", "29000-01-01 00:00:00", "infinity")
    figures = {"gbps": "1e308", "relative": "1e308"}, {"gbps": "nan", "relative": "nan"}, {"relative": "infinity"}
    for number, foreign in enumerate([*({"started_at": moment} for moment in moments), *figures]):
        columns = ", ".join(
            f"'{foreign[c.name]}'::{c.type} AS {c.name}" if c.name in foreign else f'"{c.name}"' for c in COLUMNS
        )
        target = folder / f"foreign{number}.parquet"
        duckdb.sql(f"COPY (SELECT {columns} FROM '{files[3]}') TO '{target}' (FORMAT parquet)")
    (trend,) = json.loads(command("history", folder, "--json", "--figure", "gbps").out)["trends"]
    assert [run["gbps"] for run in trend["runs"]] == [row.gbps] * 9, "those of the last, too, whose relative is passed"
    for arguments in ([], [COPY], ["-o", tmp_path / "page.html"]):
        assert command("history", folder, *arguments).status == 0


def test_a_folder_that_is_a_link_to_itself_is_refused_in_one_line(command, tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    said = command("history", loop)
    assert (said.status, said.err.count("\n")) == (2, 1)
    assert "Too many levels of symbolic links" in said.err


@pytest.mark.parametrize("missing", ["duckdb", "ruptures"])
def test_what_is_missing_is_said_in_one_line(command, folder, monkeypatch, missing):
    real = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == missing else real(name))
    said = command("history", folder)
    assert said.status == 2
    assert said.err == (
        "pytest-bandwidth history: the history needs DuckDB and ruptures: pip install 'pytest-bandwidth[history]'"
        f"{LINK}\n"
    )


# Rows to count: more than any machine does in the time that a test has.
ENDLESS = "SELECT count(*) FROM range(10000000) a, range(10000000) b WHERE a.range % 7 = b.range % 11"


@pytest.mark.parametrize(
    ("bound", "most", "question", "said"),
    [
        ("ANSWER_SECONDS", 0.5, ENDLESS, "no answer in 0.5 s, expected one: ask for less"),
        (
            "ANSWER_ROWS",
            10,
            "SELECT * FROM range(1000000000000)",
            "more than 10 rows, expected no more: add a LIMIT or GROUP BY",
        ),
    ],
)
def test_sql_of_more_than_people_wait_for_or_read_is_refused(command, folder, monkeypatch, bound, most, question, said):
    monkeypatch.setattr(reading, bound, most)
    assert len(command("history", folder, "--sql", "SELECT * FROM range(10)").out.splitlines()) == 11
    found = command("history", folder, "--sql", question)
    assert (found.status, found.out) == (2, "")
    assert found.err.endswith(f"--sql: found {said}{LINK}\n")


# Each takes some GiB where nothing bounds it: as DuckDB has it, or as Python has the answer.
LARGE_ANSWERS = [
    "SELECT repeat('x', 1000000000)",
    "SELECT range(1000000) FROM range(1000)",
    "SELECT repeat('x', 1000000) || i FROM range(20000) t(i)",
]


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="the system does not bound a process's memory")
@pytest.mark.parametrize("question", LARGE_ANSWERS)
def test_sql_of_a_large_answer_ends_in_bounded_memory(folder, question):
    program = (
        "import pathlib, resource, sys\nfrom pytest_bandwidth.features.history import reading\n"
        "from pytest_bandwidth.cli.main import main\nreading.PROCESS_MEMORY_AT_MOST = 2**29\n"
        "status = main(sys.argv[1:])\n"
        "assert resource.getrlimit(resource.RLIMIT_DATA)[0] == resource.RLIM_INFINITY\n"
        # Not ru_maxrss, which begins at the memory of the process that forked.
        "peak = pathlib.Path('/proc/self/status').read_text().split('VmHWM:')[1].split()[0]\n"
        "print(int(peak) // 1024)\nsys.exit(status)"
    )
    asked = [sys.executable, "-c", program, "history", str(folder), "--sql", question]
    done = subprocess.run(asked, capture_output=True, text=True, check=False, timeout=HANGS_SECONDS)
    assert done.returncode == 2, done.stderr
    assert re.fullmatch(r"pytest-bandwidth history: --sql: .*\n", done.stderr)
    assert int(done.stdout) < 1000


def test_ctrl_c_ends_sql_with_the_status_of_an_interrupt(folder):
    """130, not 1, which says that something regressed."""
    asked = [sys.executable, "-m", "pytest_bandwidth.cli", "history", str(folder), "--sql", ENDLESS]
    with subprocess.Popen(asked, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            computes(process, 2.0)  # more than it takes to load: in the midst of its question
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=HANGS_SECONDS)
        finally:
            process.kill()
    assert (process.returncode, out, err) == (130, "", "interrupted\n")


def test_of_an_address_all_is_as_of_a_folder_and_no_secret_is_shown(command, tmp_path, monkeypatch):
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    url = f"file://{tmp_path}/bucket/history"
    for number in range(8):
        add(Address(url), number, outcome(COPY, 700.0 + number))
    assert "8 runs of 4 commits" in command("history", f"{url}/", COPY).out
    assert command("history", url, "-o", tmp_path / "page.html").status == 0
    assert COPY in (tmp_path / "page.html").read_text()
    assert command("history", url, "--sql", "SELECT count(*) AS n FROM history").out.split() == ["n", "8"]
    said = command("history", "nope://user:hunter2@host/history", "--by", "gpu")
    told = f"nope://***@host/history: cannot be opened: Protocol not known: nope{LINK}"
    assert (said.status, said.err) == (2, f"pytest-bandwidth history: {told}\n")
