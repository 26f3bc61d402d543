"""Offer the history as a table: the view `history` over a folder's files, for our own questions and users'."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.store.bucket import mirrored
from pytest_bandwidth.features.history.store.database import (
    Moved,
    check_files,
    database,
    first_line,
    literal_pattern,
    memory_bounded,
    named_in_errors,
    quoted,
    rows_of,
    runs_in,
    within,
)
from pytest_bandwidth.features.history.store.files import listing
from pytest_bandwidth.storage.atomic import real_path

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

# Writers may merge several times while a busy machine lets a reader open the files once: so the limit is a time,
# not a number of tries.
OPENING_SECONDS = 10.0
PAUSE_SECONDS = 0.01
# A user's question may be of any kind: a join of everything with everything ends here.
ANSWER_SECONDS = 60.0
ANSWER_ROWS = 100_000
ANSWER_CHARACTERS = 64 * 2**20
_ROWS_AT_ONCE = 100

Row = tuple[Any, ...]
Answer = TypeVar("Answer")
# Where a history lies: a folder, or a bucket.
Place = Path | Address


class History:
    """Ask the table `history` of one folder, over the files that it held when it was opened."""

    def __init__(self, connection: DuckDBPyConnection, files: Sequence[Path]) -> None:
        self._connection = connection
        self._files = files

    def rows(self, query: str, values: Sequence[object] = ()) -> list[Row]:
        """Return the rows that one of the project's own questions finds. Raises UsageError that names a bad file."""
        return self._asked(query, values, "the history")[1]

    def answer(self, query: str) -> tuple[list[str], list[Row]]:
        """Return the columns' names, and the rows, of a user's question.

        Raises UsageError for anything but one SELECT, and for what takes too long or has too many rows.
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
                found = within(self._connection, ANSWER_SECONDS, lambda: self._asked(query, (), "--sql", ANSWER_ROWS))
        except UsageError as error:
            said = str(error)
            raise UsageError(said if said.startswith("--sql: ") else f"--sql: {said}") from None
        if found is None:
            raise UsageError(f"--sql: found no answer in {ANSWER_SECONDS:g} s, expected one: ask for less")
        return found

    def _asked(
        self, query: str, values: Sequence[object], where: str, at_most: int | None = None
    ) -> tuple[list[str], list[Row]]:
        with named_in_errors(self._connection, self._files, where):
            result = self._connection.execute(query, list(values))
            names = [str(column[0]) for column in result.description or ()]
            return names, result.fetchall() if at_most is None else _fetched(result, at_most)


def _fetched(result: DuckDBPyConnection, at_most: int) -> list[Row]:
    """Return the rows of an answer. Raises UsageError for more than a person reads."""
    rows: list[Row] = []
    characters = 0
    while some := result.fetchmany(_ROWS_AT_ONCE):
        rows += some
        characters += sum(len(value) for row in some for value in row if isinstance(value, str | bytes | list))
        if len(rows) > at_most:
            raise UsageError(f"--sql: found more than {at_most:,} rows, expected no more: add a LIMIT or GROUP BY")
        if characters > ANSWER_CHARACTERS:
            raise UsageError(
                f"--sql: found more than {ANSWER_CHARACTERS // 2**20} MiB of text, expected no more: ask for less"
            )
    return rows


def ask(place: Place, question: Callable[[History], Answer]) -> Answer:
    """Open the history of a folder or bucket and let `question` ask it; again if files were merged.

    Raises UsageError, one line that names the file, for what no history holds, and for a bucket that cannot be read.
    """
    if isinstance(place, Address):
        with mirrored(place) as folder:
            return _ask(folder, question)
    return _ask(place, question)


def known_runs(place: Place) -> set[str]:
    """Return ids of the runs that the history has, merged or not; none where there is no history yet."""
    if isinstance(place, Address):
        with mirrored(place) as folder:
            return known_runs(folder)
    if not any(place.glob("*.parquet")):
        return set()
    return {run_id for (run_id,) in ask(place, lambda history: history.rows("SELECT DISTINCT run_id FROM history"))}


def _ask(folder: Path, question: Callable[[History], Answer]) -> Answer:
    until = time.monotonic() + OPENING_SECONDS
    while True:
        with suppress(Moved), _opened(folder) as history:
            return question(history)
        if time.monotonic() >= until:
            raise UsageError(f"{folder}: changes faster than it can be read, expected a history at rest: try again")
        time.sleep(PAUSE_SECONDS)  # nothing announces the end of the merge


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
