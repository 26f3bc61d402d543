"""The history's store: what is appended is what is found, and files from elsewhere are held to the form."""

from __future__ import annotations

import datetime
import math
import os
import re
import shutil
import time
from dataclasses import replace
from pathlib import Path

import pytest
from run_documents import outcome, run_of

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history import reading, writing
from pytest_bandwidth.features.history.reading import ask
from pytest_bandwidth.features.history.table import COLUMNS
from pytest_bandwidth.features.history.trend import series_in
from pytest_bandwidth.features.history.writing import append

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")

ENVIRONMENT = {
    "started_at": "2026-11-21T04:00:00Z",
    "commit": "3f2c1ab",
    "uncommitted_changes": True,
    "host": "n1",
    "ci": False,
    "plugin": "0.1",
}


def add(folder: Path, *rows, **changes) -> Path:
    """Appends one more run of these rows."""
    rows = rows or (outcome("test_a.py::test_one", 700.0),)
    return append(folder, run_of(*rows, **{"environment": ENVIRONMENT, **changes}), rows)


def count(folder: Path) -> int:
    return ask(folder, lambda history: history.rows("SELECT count(*) FROM history"))[0][0]


def rows_in(folder: Path) -> list[dict]:
    names, rows = ask(folder, lambda history: history.answer("FROM history ORDER BY test"))
    return [dict(zip(names, row, strict=True)) for row in rows]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "history"


def test_a_run_is_found_as_it_was_appended(folder):
    one = outcome("test_a.py::test_one @ there", 700.0, 875.0)
    file = add(folder, one, run_id="20260102T030405Z-aa")
    assert file.name == "20260102T030405Z-aa.parquet"
    (row,) = rows_in(folder)
    assert list(row) == [column.name for column in COLUMNS]
    assert (row["run_id"], row["test"]) == ("20260102T030405Z-aa", one.key)
    assert (row["status"], row["reason_code"], row["is_valid"]) == ("UNDECIDED", "no-baseline", True)
    assert row["started_at"] == datetime.datetime(2026, 11, 21, 4)  # noqa: DTZ001  # the column is UTC by definition
    assert (row["commit"], row["uncommitted"], row["host"], row["ci"]) == ("3f2c1ab", True, "n1", False)
    assert (row["device_kind"], row["device"], row["serial"]) == ("cuda", "Imaginary GPU", "GPU-1")
    assert row["gbps"] == pytest.approx(700.0)
    assert row["relative"] == pytest.approx(0.8)
    assert row["utilization"] == pytest.approx(0.7)
    assert (row["samples"], row["bytes_read"], row["sectors"], row["drop"]) == (8, one.bytes_read, None, None)


def test_figures_that_a_row_has_not_are_null_and_counted_sectors_are_one(folder):
    counts = {"load_sectors": 5, "store_sectors": 7, "atomic_sectors": 1, "load_requests": 100}
    alien = [replace(outcome(f"t::b{value}"[:9], 1.0), bytes_read=value) for value in (math.inf, math.nan, 10**400)]
    add(
        folder,
        replace(outcome("t::a", None, None), counts=counts),
        *alien,
        replace(outcome("t::c", 1.0, peak=None), gbps=math.nan),
    )
    first, *found, last = rows_in(folder)
    assert (first["sectors"], first["gbps"]) == (13, None)
    assert [(row["gbps"], row["bytes_read"]) for row in found] == [(pytest.approx(1.0), None)] * 3
    assert (last["utilization"], last["gbps"]) == (None, None), "a share of the probe is none of the peak"


def test_any_text_is_kept_as_text(folder):
    texts = ["a\0b", "half \ud800 pair", "'; DROP TABLE history; --", "<script>", "x" * 50_000]
    add(folder, *(replace(outcome("k", 700.0), key=text) for text in texts))
    kept = {text[:20_000].encode("utf-8", "backslashreplace").decode() for text in texts}
    assert {row["test"] for row in rows_in(folder)} == kept


@pytest.mark.parametrize("run_id", ["../../evil", "", "merged-x", "x" * 101, "a\nb", None])
def test_a_run_id_names_nothing_but_a_file_of_the_folder(folder, run_id):
    with pytest.raises(UsageError, match=r"\Arun_id is .*, expected letters, digits, dots and dashes.*\Z"):
        add(folder, run_id=run_id)
    assert not folder.exists() or list(folder.iterdir()) == []


def test_a_run_that_is_there_already_is_refused_and_a_file_is_no_folder(folder):
    add(folder, run_id="r1")
    with pytest.raises(UsageError, match=r"r1\.parquet: is there already"):
        add(folder, run_id="r1")
    assert count(folder) == 1
    file = folder / "r1.parquet"
    with pytest.raises(UsageError, match="found a file, expected a folder"):
        add(file)
    with pytest.raises(UsageError, match="cannot be read as a history: Not a directory"):
        count(file)


def test_no_history_yet_is_said(folder):
    with pytest.raises(UsageError, match="No such file or directory"):
        count(folder)
    folder.mkdir()
    with pytest.raises(UsageError, match="found no runs, expected a folder that --bandwidth-history wrote to"):
        count(folder)


def test_a_folders_name_is_no_pattern_and_no_sql(tmp_path):
    folder = tmp_path / "a [b]*?'c"
    for _ in range(2):
        add(folder)
    assert count(folder) == 2


class TestMerging:
    @pytest.fixture(autouse=True)
    def soon(self, monkeypatch):
        monkeypatch.setattr(writing, "RUNS_BEFORE_MERGE", 4)

    def files(self, folder: Path) -> tuple[list[Path], list[Path]]:
        found = sorted(folder.glob("[!.]*.parquet"))
        merged = [file for file in found if file.name.startswith("merged-")]
        return merged, [file for file in found if file not in merged]

    def test_many_runs_become_one_file_and_nothing_is_lost(self, folder):
        for i in range(10):
            add(folder, outcome("t::a", 600.0 + i), outcome("t::b", 500.0), run_id=f"r{i}")
        merged, single = self.files(folder)
        assert (len(merged), len(single)) == (2, 2)
        found = ask(
            folder, lambda history: history.rows("SELECT run_id, gbps FROM history WHERE test = 't::a' ORDER BY 1")
        )
        assert [(run_id, round(gbps)) for run_id, gbps in found] == [(f"r{i}", 600 + i) for i in range(10)]

    def test_folders_that_merged_apart_and_were_copied_together_hold_each_run_once(self, folder, tmp_path):
        other = tmp_path / "other"
        for i in range(3):
            add(folder, run_id=f"r{i}")
        shutil.copytree(folder, other)
        add(folder, run_id="here")
        add(other, run_id="there")
        for file in self.files(other)[0]:
            shutil.copy(file, folder)
        assert len(self.files(folder)[0]) == 2
        assert count(folder) == 5

    def test_a_damaged_merged_file_is_named_and_keeps_no_new_run_out(self, folder):
        for i in range(4):
            add(folder, *(outcome(f"t::{k}", 600.0) for k in range(50)), run_id=f"r{i}")
        (damaged,) = self.files(folder)[0]
        damaged.write_bytes(b"PAR1" + bytes(396) + damaged.read_bytes()[400:])
        with pytest.raises(UsageError, match=rf"\A{re.escape(str(damaged))}: cannot be read: .*\Z"):
            count(folder)
        for i in range(5):
            add(folder, run_id=f"new{i}")
        (folder / "aaa.parquet").mkdir()
        assert add(folder).is_file()
        assert len(self.files(folder)[1]) == 7

    def test_runs_that_are_merged_while_the_history_is_opened_are_found_all_the_same(self, folder, monkeypatch):
        for i in range(3):
            add(folder, run_id=f"r{i}")
        runs_in, calls = reading.runs_in, []

        def merged_meanwhile(connection, merged):
            before = runs_in(connection, merged)
            if not calls:
                monkeypatch.setattr(writing, "RUNS_BEFORE_MERGE", 3)
                writing.merge_where_due(folder.resolve())
            calls.append(merged)
            return before

        monkeypatch.setattr(reading, "runs_in", merged_meanwhile)
        assert count(folder) == 3
        assert len(calls) == 2

    def test_who_does_not_get_the_lock_leaves_merging_to_who_has_it(self, folder):
        add(folder)
        with writing.FileLock(folder / writing.LOCK_NAME):
            for _ in range(5):
                add(folder)
        assert len(self.files(folder)[1]) == 6
        add(folder)
        assert (len(self.files(folder)[0]), count(folder)) == (1, 7)


def test_leftovers_of_killed_processes_are_ignored_and_swept_when_old(folder):
    add(folder)
    old, young = (folder / f".{name}.parquet.1.partial" for name in ("old", "young"))
    for file in (old, young):
        file.write_bytes(b"PAR1 half")
    two_days_ago = time.time() - 2 * 86_400
    os.utime(old, (two_days_ago, two_days_ago))
    assert count(folder) == 1
    add(folder)
    assert (old.exists(), young.exists(), count(folder)) == (False, True, 2)


def _other_columns(file: Path) -> None:
    duckdb.sql(f"COPY (SELECT 1 AS a) TO '{file}' (FORMAT parquet)")


def _other_types(file: Path) -> None:
    ours = ", ".join(f"'x' AS \"{column.name}\"" for column in COLUMNS)
    duckdb.sql(f"COPY (SELECT {ours}) TO '{file}' (FORMAT parquet)")


def _cut_short(file: Path) -> None:
    whole = next(file.parent.glob("good*.parquet")).read_bytes()
    file.write_bytes(whole[: len(whole) // 2])


def _damaged_inside(file: Path) -> None:
    whole = bytearray(next(file.parent.glob("good*.parquet")).read_bytes())
    whole[4:400] = bytes(396)
    file.write_bytes(whole)


BAD = {
    "empty": lambda file: file.write_bytes(b""),
    "cut short": _cut_short,
    "damaged inside": _damaged_inside,
    "other columns": _other_columns,
    "other types": _other_types,
    "a pipe": lambda file: os.mkfifo(file),
    "a link": lambda file: file.symlink_to("/etc/passwd"),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file_is_named_in_one_line(folder, kind):
    for i in range(3):
        add(folder, run_id=f"good{i}")
    first, last = folder / "aaa.parquet", folder / "zzz.parquet"
    BAD[kind](first)
    for bad in (first, last):
        with pytest.raises(UsageError) as caught:
            ask(folder, lambda history: history.rows("SELECT max(COLUMNS(*)) FROM history"))
        message = str(caught.value)
        assert message.startswith(f"{bad}: ")
        assert "expected" in message
        assert "\n" not in message
        if bad == first:
            first.rename(last)


def test_more_rows_than_any_history_has_are_refused_before_they_are_read(folder, monkeypatch):
    monkeypatch.setattr(reading, "ROWS_AT_MOST", 1000)
    add(folder, run_id="good")
    rows = f"FROM '{folder / 'good.parquet'}' SELECT *"
    duckdb.sql(f"COPY (SELECT h.* FROM ({rows}) h, range(1000)) TO '{folder / 'zzz.parquet'}' (FORMAT parquet)")
    with pytest.raises(UsageError, match="found 1001 rows, expected at most 1000"):
        count(folder)


@pytest.mark.parametrize(
    "question",
    [
        "SELECT * FROM read_text('/etc/passwd')",
        "COPY history TO 'x.csv'",
        "SET memory_limit = '90GB'",
        "SELECT 1; SELECT 2",
        "what is slow?\nhm",
        "SELECT speed FROM history",
    ],
)
def test_a_question_may_only_read_the_history(folder, question):
    add(folder)
    with pytest.raises(UsageError) as caught:
        ask(folder, lambda history: history.answer(question))
    assert str(caught.value).startswith("--sql: ")
    assert "\n" not in str(caught.value)


def test_series_come_by_test_and_device_the_oldest_run_first_and_without_what_was_invalid(folder):
    def found(newest=100):
        return ask(folder, lambda history: series_in(history, newest))

    for second, gbps in ((3, 703.0), (1, 701.0), (2, 702.0), (4, 20.0)):
        row = outcome("t::a", gbps, invalid="throttled" if second == 4 else None)
        moment = {"started_at": f"2026-01-01T00:00:{second:02d}Z"}
        add(folder, outcome("t::b", 600.0), row, environment={**ENVIRONMENT, **moment})
    series = found()
    assert [(one.test, one.points[0].at.second) for one in series] == [("t::a", 1), ("t::b", 1)]
    assert [round(point.gbps) for point in series[0].points] == [701, 702, 703]
    assert series[0].device == "Imaginary GPU"
    assert [round(point.gbps) for point in found(newest=2)[0].points] == [702, 703]
