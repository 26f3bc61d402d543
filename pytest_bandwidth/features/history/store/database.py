"""Run DuckDB for the history: in memory, bounded, without extensions from elsewhere, on files alone.

The files come from elsewhere: each is held to the table's form, and what it holds is bounded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.options import MISSING
from pytest_bandwidth.features.history.store.columns import FORM

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_AT_MOST = "2GB"
THREADS_AT_MOST = 4
# What DuckDB does not count: long texts, and an answer as Python has it.
PROCESS_MEMORY_AT_MOST = 3 * 2**30
# Between two looks whether a question that was interrupted has ended.
_PAUSE_SECONDS = 0.05
ROWS_AT_MOST = 50_000_000
_EXPECTED = "expected what --bandwidth-history writes"

Answer = TypeVar("Answer")


@contextmanager
def database() -> Iterator[DuckDBPyConnection]:
    """Open an empty database in memory. Raises UsageError where DuckDB is missing."""
    if importlib.util.find_spec("duckdb") is None:
        raise UsageError(MISSING)
    import duckdb

    settings: dict[str, str | bool | int | float | list[str]] = {
        "autoinstall_known_extensions": False,
        "autoload_known_extensions": False,
        "memory_limit": MEMORY_AT_MOST,
        "temp_directory": "",
        "max_temp_directory_size": "0B",
        "threads": min(THREADS_AT_MOST, os.cpu_count() or 1),
    }
    connection = duckdb.connect(":memory:", config=settings)
    try:
        yield connection
    finally:
        connection.close()


@contextmanager
def memory_bounded() -> Iterator[None]:
    """Let this process take no more than `PROCESS_MEMORY_AT_MOST` more than it has, if the system can bound it.

    Raises UsageError where that is not enough.
    """
    held = _data_bytes()
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    bounds = [held + PROCESS_MEMORY_AT_MOST, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    except MemoryError:
        most = PROCESS_MEMORY_AT_MOST // 2**20
        raise UsageError(f"found an answer that takes more than {most} MiB of memory: ask for less") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int | None:
    """Return what this process has of the memory that RLIMIT_DATA bounds; None if the system does not say."""
    try:
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    except OSError:
        return None
    found = re.search(r"^VmData:\s*([0-9]+) kB$", status, re.MULTILINE)
    return None if found is None else int(found[1]) * 1024


def within(connection: DuckDBPyConnection, seconds: float, question: Callable[[], Answer]) -> Answer | None:
    """Answer a question in a thread of its own; return None where that takes longer, with the question ended.

    Ctrl-C ends it at once: of itself DuckDB (2.0.0) looks for it only when a question is answered, which took minutes.
    """
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(question)
        try:
            return answer.result() if wait([answer], seconds).done else None
        finally:
            while not answer.done():
                connection.interrupt()
                wait([answer], _PAUSE_SECONDS)


def quoted(text: str) -> str:
    """Return text as a literal of SQL."""
    return "'" + text.replace("'", "''") + "'"


def literal_pattern(name: str) -> str:
    """Return the pattern that means just this name: DuckDB takes every name of a file for a pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def files_literal(files: Sequence[Path]) -> str:
    """Return files as a list of SQL."""
    return f"[{', '.join(quoted(literal_pattern(str(file))) for file in files)}]"


def copy_to(
    connection: DuckDBPyConnection,
    query: str,
    file: Path,
    values: Sequence[object] = (),
    *,
    rows_of_group: int = 122_880,
) -> None:
    """Write what a query finds as one Parquet file. Raises UsageError where it cannot be written."""
    import duckdb

    form = f"(FORMAT parquet, COMPRESSION zstd, USE_TMP_FILE false, ROW_GROUP_SIZE {rows_of_group})"
    try:
        connection.execute(f"COPY ({query}) TO {quoted(str(file))} {form}", list(values))
    except duckdb.Error as error:
        raise UsageError(f"{file.parent}: cannot be written to: {first_line(error)}") from None


def first_line(error: Exception) -> str:
    """Return what DuckDB says, less the excerpt of the statement that it quotes."""
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


class Moved(Exception):
    """Raised where a file went while it was being read: it has been merged since."""


def check_files(connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Hold every file's head to the table's form, and their rows to a number.

    Raises UsageError that names the first bad file; Moved if one was removed.
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


def runs_in(connection: DuckDBPyConnection, merged: Sequence[Path]) -> tuple[set[str], bool]:
    """Return ids of the runs that the merged files hold, and whether two of the files hold the same run.

    Files overlap only where folders were copied together after each had merged on its own, or where writers merged a
    bucket's runs at once (`merge_bucket_where_due`). Raises UsageError that names a bad file.
    """
    if not merged:
        return set(), False
    query = f"SELECT DISTINCT filename, run_id FROM read_parquet({files_literal(merged)}, filename = true)"
    with named_in_errors(connection, merged, str(merged[0].parent)):
        rows = connection.execute(query).fetchall()
    ids = {run_id for _, run_id in rows}
    return ids, len(ids) < len(rows)
