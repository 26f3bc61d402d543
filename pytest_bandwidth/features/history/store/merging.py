"""Merge many runs' files into one: each costs DuckDB half a millisecond to open, and a history lives for years."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.store.bucket import Bucket
from pytest_bandwidth.features.history.store.database import copy_to, database, files_literal
from pytest_bandwidth.features.history.store.files import add, is_merged, listing, name_of_merged
from pytest_bandwidth.features.history.store.mirror import fetch_all, held
from pytest_bandwidth.features.history.store.validation import Moved, check_files, named_in_errors, rows_of
from pytest_bandwidth.storage.own_folders import temporary_folder

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# So many runs have files of their own before they are merged.
RUNS_BEFORE_MERGE = 200
LOCK_NAME = ".merging.lock"
# Sorted by test, a group of rows is of few tests: a question for one test skips the others.
ROWS_OF_GROUP = 20_480


@dataclass(frozen=True, slots=True)
class MergedRuns:
    """Describe merged files. ids: of the runs that they hold; overlap: whether two of the files hold the same run.

    Files overlap only where folders were copied together after each had merged on its own, or where writers merged a
    bucket's runs at once (`merge_bucket_where_due`).
    """

    ids: frozenset[str]
    overlap: bool


def runs_in(connection: DuckDBPyConnection, merged: Sequence[Path]) -> MergedRuns:
    """Return the runs that the merged files hold. Raises UsageError that names a bad file."""
    if not merged:
        return MergedRuns(frozenset(), False)
    query = f"SELECT DISTINCT filename, run_id FROM read_parquet({files_literal(merged)}, filename = true)"
    with named_in_errors(connection, merged, str(merged[0].parent)):
        rows = connection.execute(query).fetchall()
    ids = frozenset(run_id for _, run_id in rows)
    return MergedRuns(ids, len(ids) < len(rows))


def merge_where_due(folder: Path) -> None:
    """Merge the runs' files where there are many; leave all as it is where another process merges or a file is bad.

    The merged file appears whole, and only then do those go that it holds. A process killed between the two leaves
    runs in both: readers take them from the merged one, and the next merge removes the others.
    """
    with suppress(Timeout, OSError, UsageError, Moved):
        if len(listing(folder).runs) >= RUNS_BEFORE_MERGE:
            with FileLock(folder / LOCK_NAME, timeout=0):
                _merge(folder)


def merge_bucket_where_due(bucket: Bucket, names: Iterable[str]) -> None:
    """Merge the runs' files in a bucket as `merge_where_due` does in a folder. names: those of the files there.

    No lock reaches all writers. So the oldest runs are merged, RUNS_BEFORE_MERGE of them at a time: writers that merge
    at once write the same file, though newer runs may have come between their listings. Where they found other old runs
    they write two that hold some runs both, which readers count once. Each removes only runs that a file holds which it
    found, or put, there: merged files stay.
    """
    if sum(not is_merged(name) for name in names) < RUNS_BEFORE_MERGE:
        return
    with suppress(Timeout, OSError, UsageError, Moved), held(bucket.address, 0.0) as folder:
        fetch_all(bucket, folder)
        _merge_bucket(bucket, folder)


def _merge(folder: Path) -> None:
    found = listing(folder)
    with database() as connection:
        check_files(connection, found.files)
        known = runs_in(connection, found.merged).ids
        left = [file for file in found.runs if file.stem not in known]
        if left:
            add(folder / name_of_merged(left), lambda partial: _copy(connection, left, partial))
    for file in found.runs:
        file.unlink(missing_ok=True)


def _merge_bucket(bucket: Bucket, folder: Path) -> None:
    found = listing(folder)
    with database() as connection, temporary_folder() as made:
        check_files(connection, found.files)
        known = set(runs_in(connection, found.merged).ids)
        left = [file for file in found.runs if file.stem not in known]
        for i in range(0, len(left) - RUNS_BEFORE_MERGE + 1, RUNS_BEFORE_MERGE):
            oldest = left[i : i + RUNS_BEFORE_MERGE]
            merged = Path(made) / name_of_merged(oldest)
            _copy(connection, oldest, merged)
            bucket.put(merged, merged.name)
            known.update(file.stem for file in oldest)
    bucket.remove(file.name for file in found.runs if file.stem in known)


def _copy(connection: DuckDBPyConnection, runs: Sequence[Path], target: Path) -> None:
    query = f"{rows_of(runs)} ORDER BY test, started_at"
    copy_to(connection, query, target, rows_of_group=ROWS_OF_GROUP)
