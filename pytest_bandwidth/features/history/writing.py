"""Append runs to the history, each in a file of its own, so that writers never wait for each other; merge many of them.

Each file costs DuckDB half a millisecond to open, and a history lives for years.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history.place import (
    Bucket,
    Place,
    add,
    fetch_all,
    is_merged,
    listing,
    locked_copy,
    name_of_merged,
    sweep,
)
from pytest_bandwidth.features.history.reading import (
    Moved,
    check_files,
    database,
    first_line,
    quoted,
    rows_of,
    runs_in,
)
from pytest_bandwidth.features.history.table import COLUMNS, run_id_of
from pytest_bandwidth.options.options import places_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.session.publishing.run_files import check_writable
from pytest_bandwidth.storage.atomic import real_path
from pytest_bandwidth.storage.own_folders import temporary_folder

if TYPE_CHECKING:
    import pytest
    from duckdb import DuckDBPyConnection

# The number of runs with files of their own before they are merged.
RUNS_BEFORE_MERGE = 200
LOCK_NAME = ".merging.lock"
# Sorted by test, a group of rows is of few tests: a question for one test skips the others.
ROWS_OF_GROUP = 20_480

# Writes a file.
Fill = Callable[[Path], None]


class HistoryReporter:
    """Append each device's results. place: the folder or bucket, as the option names it."""

    def __init__(self, config: pytest.Config, place: Place) -> None:
        self._place, self._given_by = place, places_of(config)["history"]
        self._at = config.invocation_params.dir / place

    def check(self) -> None:
        """Raise UsageError where the folder cannot be written, or the bucket not listed."""
        if isinstance(self._at, Path):
            check_writable(self._given_by, self._at, a_file=False)
            return
        try:
            Bucket(self._at).names()
        except UsageError as error:
            raise UsageError(f"{self._given_by}: {error}") from None

    def write(self, document: Mapping[str, Any], outcomes: Sequence[Outcome], suffix: str | None) -> list[str]:
        """Append one device's results, and return the name of their file; return nothing if nothing was measured."""
        del suffix  # the run's id holds it
        if not outcomes:
            return []
        try:
            return [str(self._place / append(self._at, document, outcomes).name)]
        except (OSError, BandwidthError) as error:
            raise UsageError(f"{self._place} was not appended to: {error}") from None


def append(place: Place, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Place:
    """Write the run as one file of the bucket, or of the folder, which is made if it is missing; return the file.

    document: a whole run in the form that `--bandwidth-json` writes; outcomes: its results, at least one.
    Raises UsageError for a run that has a file there already or gives no row, and for any error of a bucket; OSError.
    Merged files are not searched for the run: a new run has a new id.
    """
    values = [[column.of(document, one) for one in outcomes] for column in COLUMNS]
    name = f"{run_id_of(document)}.parquet"

    def fill(file: Path) -> None:
        lists = ", ".join(f'unnest(${i}::{column.type}[]) AS "{column.name}"' for i, column in enumerate(COLUMNS, 1))
        with database() as connection:
            copy_to(connection, f"SELECT {lists}", file, values)

    if isinstance(place, Address):
        bucket = Bucket(place)
        # Foreign files do not prevent an append; reading and merging refuse them.
        names = bucket.names()
        if name in names:
            raise _there_already(place / name)
        _put(bucket, name, fill)
        merge_bucket_where_due(bucket, (*names, name))
        return place / name
    try:
        place.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{place}: found a file, expected a folder for the history") from None
    folder = real_path(place)
    target = folder / name
    if target.exists():
        raise _there_already(target)
    add(target, fill)
    sweep(folder)
    merge_where_due(folder)
    return target


def _there_already(file: Place) -> UsageError:
    return UsageError(f"{file}: is there already, expected a run that the history has not")


def _put(bucket: Bucket, name: str, fill: Fill) -> None:
    with temporary_folder() as folder:
        fill(Path(folder) / name)
        bucket.put(Path(folder) / name, name)


def merge_where_due(folder: Path) -> None:
    """Merge the runs' files if there are many; change nothing if another process merges or a file is bad.

    The merged file appears whole, and only then are the files of its runs removed. A process killed between the two
    leaves runs in both: readers take them from the merged one, and the next merge removes the others.
    """
    with suppress(Timeout, OSError, UsageError, Moved):
        if len(listing(folder).runs) < RUNS_BEFORE_MERGE:
            return
        with FileLock(folder / LOCK_NAME, timeout=0):
            held = _merged(folder, lambda left: [left] if left else [], lambda name, fill: add(folder / name, fill))
            for file in held:
                file.unlink(missing_ok=True)


def merge_bucket_where_due(bucket: Bucket, names: Iterable[str]) -> None:
    """Merge the runs' files in a bucket as `merge_where_due` does in a folder. names: those of the files there.

    No lock reaches all writers. So the oldest runs are merged, RUNS_BEFORE_MERGE of them at a time: concurrent writers
    write the same file, even if newer runs came between their listings. If they found different old runs, they write
    two files with some equal runs, which readers count once. Each removes only runs in a merged file that it found or
    wrote. Merged files stay.
    """
    if sum(not is_merged(name) for name in names) < RUNS_BEFORE_MERGE:
        return

    def oldest_together(runs: Sequence[Path]) -> list[Sequence[Path]]:
        ends = range(RUNS_BEFORE_MERGE, len(runs) + 1, RUNS_BEFORE_MERGE)
        return [runs[end - RUNS_BEFORE_MERGE : end] for end in ends]

    with suppress(Timeout, OSError, UsageError, Moved), locked_copy(bucket.address, 0.0) as folder:
        fetch_all(bucket, folder)
        held = _merged(folder, oldest_together, partial(_put, bucket))
        bucket.remove(file.name for file in held)


def _merged(
    folder: Path,
    parts_of: Callable[[Sequence[Path]], Sequence[Sequence[Path]]],
    put: Callable[[str, Fill], None],
) -> list[Path]:
    """Merge a folder's runs, each part of them into a file; return the files of runs that a merged file now holds."""
    found = listing(folder)
    with database() as connection:
        check_files(connection, found.files)
        known, _ = runs_in(connection, found.merged)
        for part in parts_of([file for file in found.runs if file.stem not in known]):
            query = f"{rows_of(part)} ORDER BY test, started_at"
            put(name_of_merged(part), partial(copy_to, connection, query, rows_of_group=ROWS_OF_GROUP))
            known.update(file.stem for file in part)
    return [file for file in found.runs if file.stem in known]


def copy_to(
    connection: DuckDBPyConnection,
    query: str,
    file: Path,
    values: Sequence[object] = (),
    *,
    rows_of_group: int = 122_880,
) -> None:
    """Write a query's rows as one Parquet file. Raises UsageError where it cannot be written."""
    import duckdb

    form = f"(FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false, ROW_GROUP_SIZE {rows_of_group})"
    try:
        connection.execute(f"COPY ({query}) TO {quoted(str(file))} {form}", list(values))
    except duckdb.Error as error:
        raise UsageError(f"{file.parent}: cannot be written to: {first_line(error)}") from None
