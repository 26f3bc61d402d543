"""Several processes at one history, in a folder or a bucket, and processes that are killed at it."""

from __future__ import annotations

import signal
import time
from pathlib import Path

import histories
import pytest
from children import HANGS_SECONDS
from histories import ROWS_OF_RUN, appended, finished, runs_in, start

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history import reading, writing
from pytest_bandwidth.features.history.place import Place
from pytest_bandwidth.features.history.reading import Moved, ask

pytest.importorskip("duckdb", reason="duckdb is not installed: pip install 'pytest-bandwidth[history]'")


@pytest.mark.parametrize("is_bucket", [False, True])
def test_writers_at_once_lose_nothing_and_readers_meanwhile_see_whole_runs(tmp_path, monkeypatch, is_bucket):
    """Write to a folder, or to a bucket. Each writer of a bucket has a local copy, as on its own machine."""
    folder: Path = tmp_path / "history"
    place: Place = folder
    if is_bucket:
        pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
        monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
        place = Address(f"file://{folder}")
    caches = [tmp_path / f"cache{i}" if is_bucket else None for i in range(3)]
    writers = [start(str(place), f"w{i}", 8, runs_before_merge=5, cache=cache) for i, cache in enumerate(caches)]
    seen = 0
    while any(writer.poll() is None for writer in writers):
        if folder.is_dir() and list(folder.glob("*.parquet")):
            runs = runs_in(place)
            assert len(set(runs)) == len(runs) >= seen
            seen = len(runs)
        time.sleep(0.05)  # what it reads next, the writers need time for
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


@pytest.mark.parametrize(
    ("fault", "left"),
    [(histories.NOT_YET_NAMED, []), (histories.MERGED_AND_NOT_REMOVED, [f"a-{i:04d}" for i in range(5)])],
    ids=["not yet named", "merged and not removed"],
)
def test_a_killed_writer_leaves_each_run_once_that_it_told_of(tmp_path, monkeypatch, fault, left):
    folder = tmp_path / "history"
    killed = start(folder, "a", 5, runs_before_merge=5, fault=fault)
    assert killed.communicate(timeout=HANGS_SECONDS)[0].split() == left[:-1]
    assert killed.returncode == -signal.SIGKILL
    assert list(folder.glob("merged-*" if left else ".a*.partial"))
    assert len(list(folder.glob("a-*"))) == len(left)
    monkeypatch.setattr(writing, "RUNS_BEFORE_MERGE", 5)
    appended(folder, "next")
    assert runs_in(folder) == [*left, "next"]
    assert not list(folder.glob("a-*"))
