"""Run DuckDB for the history: in memory, bounded, without extensions from elsewhere, on files alone."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.options import MISSING

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

MEMORY_AT_MOST = "2GB"
THREADS_AT_MOST = 4
# What DuckDB does not count: long texts, and an answer as Python has it.
PROCESS_MEMORY_AT_MOST = 3 * 2**30
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
    """Let this process take no more than `PROCESS_MEMORY_AT_MOST` beside what it has, where the system can bound it.

    Raises UsageError where that is not enough.
    """
    held = _data_bytes()
    if resource is None or held is None:
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
    """Return what this process has of the memory that RLIMIT_DATA bounds; None where the system does not tell."""
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
