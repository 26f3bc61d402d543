"""Merge many runs' files into one: each costs DuckDB half a millisecond to open, and a history lives for years."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from filelock import FileLock, Timeout

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.storage.history.database import copy_to, database, files_literal
from pytest_bandwidth.storage.history.files import add, listing, merged_file
from pytest_bandwidth.storage.history.validation import Moved, check_files, named_in_errors, rows_of

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

    Files overlap only where folders were copied together after each had merged on its own.
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


def _merge(folder: Path) -> None:
    found = listing(folder)
    with database() as connection:
        some_older = check_files(connection, found.files)
        known = runs_in(connection, found.merged).ids
        left = [file for file in found.runs if file.stem not in known]
        if left:
            digest = hashlib.sha256("\n".join(file.name for file in left).encode()).hexdigest()[:16]
            query = f"{rows_of(left, some_older=some_older)} ORDER BY test, started_at"
            target = merged_file(folder, left[0].stem, digest)
            add(target, lambda partial: copy_to(connection, query, partial, rows_of_group=ROWS_OF_GROUP))
    for file in found.runs:
        file.unlink(missing_ok=True)
