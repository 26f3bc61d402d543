"""Validate the history's files, which come from elsewhere: hold each to the table's form, bound what it holds."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.store.columns import FORM
from pytest_bandwidth.features.history.store.database import files_literal, first_line

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

ROWS_AT_MOST = 50_000_000
_EXPECTED = "expected what --bandwidth-history writes"


class Moved(Exception):
    """Raised where a file went while it was being read: it has been merged since."""


def check_files(connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Hold every file's head to the table's form, and their rows to a number.

    Raises UsageError that names the first bad file; Moved where one went meanwhile.
    """
    if not files:
        return
    named = files_literal(files)
    with named_in_errors(connection, files, str(files[0].parent)):
        heads = connection.execute(
            "SELECT file_name, list(name ORDER BY file_row), list(duckdb_type ORDER BY file_row) FROM ("
            f"SELECT *, row_number() OVER () AS file_row FROM parquet_schema({named})) "
            "WHERE duckdb_type IS NOT NULL GROUP BY file_name ORDER BY file_name"
        ).fetchall()
        counted = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({named})").fetchone()
    for name, names, types in heads:
        found = tuple(zip(names, types, strict=True))
        if found != FORM:
            raise UsageError(f"{name}: found {_difference(found)}, {_EXPECTED}")
    if counted is not None and counted[0] > ROWS_AT_MOST:
        raise UsageError(f"{files[0].parent}: found {counted[0]} rows, expected at most {ROWS_AT_MOST}")


def rows_of(files: Sequence[Path]) -> str:
    """Return the SELECT of the files' rows in the table's form.

    They are read by their positions, several times as fast as by names.
    """
    names = ", ".join(f'"{name}"' for name, _ in FORM)
    return f"SELECT {names} FROM read_parquet({files_literal(files)})"


@contextmanager
def named_in_errors(connection: DuckDBPyConnection, files: Sequence[Path], where: str) -> Iterator[None]:
    """Turn errors of DuckDB into a UsageError that names the bad file, else `where`; Moved where a file went."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        _check_values(connection, files)
        raise UsageError(f"{where}: {first_line(error)}") from None


def _check_values(connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Read everything, file by file, to name the one that is bad: how DuckDB names it depends on what is wrong."""
    import duckdb

    for file in files:
        if not file.exists():
            raise Moved
        try:
            connection.execute(
                f"SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet({files_literal([file])})"
            ).fetchall()
        except duckdb.Error as error:
            if not file.exists():
                raise Moved from None
            raise UsageError(f"{file}: cannot be read: {first_line(error)}, {_EXPECTED}") from None


def _difference(found: tuple[tuple[str, str], ...]) -> str:
    for have, want in zip(found, FORM, strict=False):
        if have != want:
            return f"a column {have[0][:40]!r} of type {have[1][:40]} in place of {want[0]!r} of type {want[1]}"
    return f"{len(found)} columns in place of {len(FORM)}"
