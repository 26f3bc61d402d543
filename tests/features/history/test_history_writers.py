"""Several processes at one history, in a folder or a bucket, and processes that are killed at it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import histories
import pytest
from children import HANGS_SECONDS
from histories import ROWS_OF_RUN, appended, finished, runs_in, start

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history import reading, writing
from pytest_bandwidth.features.history.reading import Moved, Place, ask

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")


@pytest.fixture(params=["folder", "bucket"])
def place(request, tmp_path, monkeypatch) -> Place:
    """A folder, or a bucket on this machine's disk, whose copy this user has."""
    if request.param == "folder":
        return tmp_path / "history"
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Address(f"file://{tmp_path}/history")


@pytest.fixture
def url(place) -> str:
    """The place, as a process is told it."""
    return place.url if isinstance(place, Address) else str(place)


@pytest.mark.parametrize(
    ("place", "own_copies"),
    [("folder", False), ("bucket", True), ("bucket", False)],
    indirect=["place"],
    ids=["folder", "bucket of three machines", "bucket of one machine"],
)
def test_writers_at_once_lose_nothing_and_readers_meanwhile_see_whole_runs(place, url, tmp_path, own_copies):
    folder = tmp_path / "history"
    caches = [tmp_path / f"cache{i}" if own_copies else None for i in range(3)]
    writers = [start(url, f"w{i}", 8, runs_before_merge=5, cache=cache) for i, cache in enumerate(caches)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if folder.is_dir() and list(folder.glob("*.parquet")):
            runs = runs_in(place)
            assert len(set(runs)) == len(runs) >= seen
            seen = len(runs)
    told = [run_id for writer in writers for run_id in finished(writer)]
    assert len(told) == 24
    assert runs_in(place) == sorted(told)
    assert list(folder.glob("merged-*"))


def test_a_reader_tries_again_for_as_long_as_files_are_merged_under_its_hands(tmp_path, monkeypatch):
    folder = tmp_path / "history"
    for run_id in ("r0", "r1"):
        appended(folder, run_id)
    moves = iter([True] * 12 + [False])

    def asks(history):
        if next(moves):
            raise Moved
        return history.rows("SELECT count(*) FROM history")

    assert ask(folder, asks) == [(2 * ROWS_OF_RUN,)]
    monkeypatch.setattr(reading, "OPENING_SECONDS", 0.0)
    moves = iter([True] * 2)
    with pytest.raises(UsageError, match="changes faster than it can be read"):
        ask(folder, asks)


@pytest.mark.parametrize("fault", [histories.HALF_WRITTEN, histories.NOT_YET_NAMED], ids=["half written", "unnamed"])
def test_a_writer_killed_in_mid_write_leaves_a_history_without_its_run(tmp_path, fault):
    folder = tmp_path / "history"
    appended(folder, "good")
    killed = start(folder, "killed", 1, fault=fault)
    assert killed.communicate(timeout=HANGS_SECONDS)[0] == ""
    assert killed.returncode == -signal.SIGKILL
    assert [file.name for file in folder.glob(".killed*.partial")]
    assert runs_in(folder) == ["good"]
    appended(folder, "next")
    assert runs_in(folder) == ["good", "next"]


def test_a_process_killed_between_merging_and_removing_leaves_each_run_once(place, url, tmp_path, monkeypatch):
    folder, is_folder = tmp_path / "history", isinstance(place, Path)
    fault = histories.MERGED_AND_NOT_REMOVED if is_folder else histories.MERGED_AND_NOT_REMOVED_FROM_BUCKET
    killed = start(url, "a", 5, runs_before_merge=5, fault=fault)
    killed.communicate(timeout=HANGS_SECONDS)
    assert killed.returncode == -signal.SIGKILL
    assert (len(list(folder.glob("merged-*"))), len(list(folder.glob("a-*")))) == (1, 5)
    assert runs_in(place) == [f"a-{i:04d}" for i in range(5)]
    monkeypatch.setattr(writing, "RUNS_BEFORE_MERGE", 5)
    appended(place, "b-0000")
    # Of a bucket only the oldest are merged, so many at a time.
    assert [file.name for file in folder.glob("[ab]-*")] == ([] if is_folder else ["b-0000.parquet"])
    assert len(runs_in(place)) == 6


def test_whatever_the_moment_of_the_kill_what_was_said_to_be_written_is(tmp_path):
    folder = tmp_path / "history"
    told: list[str] = []
    for turn in range(4):
        writer = start(folder, f"k{turn}", 10_000, runs_before_merge=3)
        assert writer.stdout is not None
        told.append(writer.stdout.readline().strip())
        time.sleep(0.05 + 0.13 * turn)
        writer.kill()
        told += writer.communicate(timeout=HANGS_SECONDS)[0].split()
        runs = runs_in(folder)
        assert len(set(runs)) == len(runs)
        assert set(told) <= set(runs)
        # At most the one that was about to be told is there untold.
        assert len(set(runs) - set(told)) <= turn + 1
