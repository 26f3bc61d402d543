"""Read a history by DuckDB: as the view `history` over a folder's files, for queries of the plugin and of users.

DuckDB runs in memory, bounded, without extensions from elsewhere, on files alone. The files may come from elsewhere:
each must have the form of the table, and its content is bounded.
"""

from __future__ import annotations

import importlib.util
import os
import re
import resource
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import Address
from pytest_bandwidth.features.history import MISSING
from pytest_bandwidth.features.history.place import Place, listing, mirrored
from pytest_bandwidth.features.history.table import FORM
from pytest_bandwidth.storage.atomic import real_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Writers may merge several times while a busy machine lets a reader open the files once: so the limit is a time,
# not a number of tries.
OPENING_SECONDS = 10.0
PAUSE_SECONDS = 0.01
# The limit for a user's query, which may be as expensive as a join of all rows with all rows.
ANSWER_SECONDS = 60.0
ANSWER_ROWS = 100_000
_ROWS_AT_ONCE = 100
MEMORY_AT_MOST = "2GB"
THREADS_AT_MOST = 4
# For memory that DuckDB does not count: long texts, and an answer's Python objects.
PROCESS_MEMORY_AT_MOST = 3 * 2**30
# Between two checks whether an interrupted query has ended.
_PAUSE_SECONDS = 0.05
ROWS_AT_MOST = 50_000_000
_EXPECTED = "expected what --bandwidth-history writes"

Row = tuple[Any, ...]
Answer = TypeVar("Answer")


class History:
    """Ask the table `history` of one folder, over the files that it held when it was opened."""

    def __init__(self, connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
        self._connection = connection
        self._files = files

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows of one of the plugin's own queries. Raises UsageError that names a bad file."""
        with named_in_errors(self._connection, self._files, "the history"):
            return self._connection.execute(query, list(values)).fetchall()

    def answer(self, query: str) -> tuple[list[str], list[Row]]:
        """Return the columns' names, and the rows, of a user's question.

        Raises UsageError for anything but one SELECT, and for a query that takes too long or has too many rows.
        """
        import duckdb

        try:
            statements = self._connection.extract_statements(query)
        except duckdb.Error as error:
            raise UsageError(f"--sql: {first_line(error)}") from None
        if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
            raise UsageError(f"--sql: found {query[:80]!r}, expected one SELECT")
        try:
            with memory_bounded():
                found = within(self._connection, ANSWER_SECONDS, lambda: self._bounded(query))
        except UsageError as error:
            text = str(error)
            raise UsageError(text if text.startswith("--sql: ") else f"--sql: {text}") from None
        if found is None:
            raise UsageError(f"--sql: found no answer in {ANSWER_SECONDS:g} s, expected one: ask for less")
        return found

    def _bounded(self, query: str) -> tuple[list[str], list[Row]]:
        with named_in_errors(self._connection, self._files, "--sql"):
            result = self._connection.execute(query)
            names = [str(column[0]) for column in result.description or ()]
            rows: list[Row] = []
            while some := result.fetchmany(_ROWS_AT_ONCE):
                rows += some
                # Nobody reads more.
                if len(rows) > ANSWER_ROWS:
                    raise UsageError(f"found more than {ANSWER_ROWS:,} rows, expected no more: add a LIMIT or GROUP BY")
            return names, rows


def ask(place: Place, question: Callable[[History], Answer]) -> Answer:
    """Open the history of a folder or bucket and call `question` with it; again if files were merged.

    Raises UsageError, one line that names the file, for files of no history, and for a bucket that cannot be read.
    """
    if isinstance(place, Address):
        with mirrored(place) as folder:
            return ask(folder, question)
    until = time.monotonic() + OPENING_SECONDS
    while True:
        with suppress(Moved), _opened(place) as history:
            return question(history)
        if time.monotonic() >= until:
            raise UsageError(
                f"{place}: changes faster than it can be read, expected no run to write meanwhile: try again"
            )
        time.sleep(PAUSE_SECONDS)  # another process merges these files, and sends no signal at its end


def known_runs(place: Place) -> set[str]:
    """Return ids of the runs that the history has, merged or not; empty without a history."""
    if isinstance(place, Address):
        with mirrored(place) as folder:
            return known_runs(folder)
    if not any(place.glob("*.parquet")):
        return set()
    return {run_id for (run_id,) in ask(place, lambda history: history.rows("SELECT DISTINCT run_id FROM history"))}


@contextmanager
def _opened(folder: Path) -> Iterator[History]:
    resolved = real_path(folder)
    found = listing(resolved)
    if not found.files:
        raise UsageError(f"{folder}: found no runs, expected a folder that --bandwidth-history wrote to")
    with database() as connection:
        check_files(connection, found.files)
        merged, overlap = runs_in(connection, found.merged)
        files = [*found.merged, *(file for file in found.runs if file.stem not in merged)]
        source = rows_of(files)
        if overlap:
            source += " QUALIFY row_number() OVER (PARTITION BY run_id, test) = 1"
        with named_in_errors(connection, files, str(folder)):
            connection.execute(f"CREATE VIEW history AS {source}")
        # From here on a user's question may run: it reads this folder, and nothing else of the machine.
        folders = {f"{resolved}/", f"{literal_pattern(str(resolved))}/"}  # it is looked up as it is spelt
        connection.execute(f"SET allowed_directories = [{', '.join(map(quoted, folders))}]")
        connection.execute("SET enable_external_access = false")
        connection.execute("SET lock_configuration = true")
        yield History(connection, files)


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
    """Limit this process to `PROCESS_MEMORY_AT_MOST` more memory than it has, if the system can.

    Raises UsageError where that is not enough.
    """
    status = ""
    with suppress(OSError):
        status = Path("/proc/self/status").read_text(encoding="ascii", errors="replace")
    # This process's part of the memory that RLIMIT_DATA bounds.
    held = re.search(r"^VmData:\s*([0-9]+) kB$", status, re.MULTILINE)
    if held is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most_bytes = int(held[1]) * 1024 + PROCESS_MEMORY_AT_MOST
    bounds = [most_bytes, *(limit for limit in (soft, hard) if limit != resource.RLIM_INFINITY)]
    resource.setrlimit(resource.RLIMIT_DATA, (min(bounds), hard))
    try:
        yield
    except MemoryError:
        most = PROCESS_MEMORY_AT_MOST // 2**20
        raise UsageError(f"found an answer that takes more than {most} MiB of memory: ask for less") from None
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def within(connection: DuckDBPyConnection, seconds: float, question: Callable[[], Answer]) -> Answer | None:
    """Answer a question in a thread of its own; return None where that takes longer, with the question ended.

    Ctrl-C ends it at once: DuckDB (2.0.0) itself checks for Ctrl-C only after an answer, which took minutes.
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
    """Return the pattern that matches only this name: DuckDB reads every file name as a pattern."""
    return "".join(f"[{c}]" if c in "*?[" else c for c in name)


def files_literal(files: Sequence[Path]) -> str:
    """Return files as a list of SQL."""
    return f"[{', '.join(quoted(literal_pattern(str(file))) for file in files)}]"


def first_line(error: Exception) -> str:
    """Return DuckDB's message without its excerpt of the statement."""
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


class Moved(Exception):
    """Raised for a file that disappeared while it was read: another process has merged it."""


def check_files(connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Check that every file's head has the table's form, and that the rows are not too many.

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
        ((rows,),) = connection.execute(f"SELECT sum(num_rows) FROM parquet_file_metadata({named})").fetchall()
    for name, names, types in heads:
        found = tuple(zip(names, types, strict=True))
        if found == FORM:
            continue
        fault = f"{len(found)} columns in place of {len(FORM)}"
        for have, want in zip(found, FORM, strict=False):
            if have != want:
                fault = f"a column {have[0][:40]!r} of type {have[1][:40]} in place of {want[0]!r} of type {want[1]}"
                break
        raise UsageError(f"{name}: found {fault}, {_EXPECTED}")
    if rows > ROWS_AT_MOST:
        raise UsageError(f"{files[0].parent}: found {rows} rows, expected at most {ROWS_AT_MOST}")


def rows_of(files: Sequence[Path]) -> str:
    """Return the SELECT of the files' rows in the table's form.

    They are read by their positions, several times as fast as by names.
    """
    names = ", ".join(f'"{name}"' for name, _ in FORM)
    return f"SELECT {names} FROM read_parquet({files_literal(files)})"


@contextmanager
def named_in_errors(connection: DuckDBPyConnection, files: Sequence[Path], where: str) -> Iterator[None]:
    """Turn errors of DuckDB into a UsageError that names the bad file, else `where`; Moved where a file disappeared."""
    import duckdb

    try:
        yield
    except duckdb.Error as error:
        _check_values(connection, files)
        raise UsageError(f"{where}: {first_line(error)}") from None


def _check_values(connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
    """Read everything, file by file, to name the bad file: DuckDB names it differently for each kind of error."""
    import duckdb

    for file in files:
        try:
            connection.execute(
                f"SELECT bit_xor(hash(COLUMNS(*))) FROM read_parquet({files_literal([file])})"
            ).fetchall()
        except duckdb.Error as error:
            if not file.exists():
                raise Moved from None
            raise UsageError(f"{file}: cannot be read: {first_line(error)}, {_EXPECTED}") from None


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
