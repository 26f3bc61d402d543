"""Run DuckDB for the history: in memory, bounded, without extensions from elsewhere, on files alone."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_bandwidth.domain.errors import UsageError

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MISSING = "the history needs DuckDB and ruptures: pip install 'pytest-bandwidth[history]'"
MEMORY_AT_MOST = "2GB"
# Between two looks whether a question that was interrupted has ended.
_PAUSE_SECONDS = 0.05

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
    }
    connection = duckdb.connect(":memory:", config=settings)
    try:
        yield connection
    finally:
        connection.close()


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
