"""Append one run to the history, in a file of its own, so that writers never wait for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.storage.atomic import real_path
from pytest_bandwidth.storage.history.columns import COLUMNS, columns_of, run_id_of
from pytest_bandwidth.storage.history.database import copy_to, database
from pytest_bandwidth.storage.history.files import add, run_file, sweep
from pytest_bandwidth.storage.history.merging import merge_where_due


def append(folder: Path, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Path:
    """Write the run as one file of the folder, which is made where there is none, and returns it.

    document: a whole run in the form that `--bandwidth-json` writes; outcomes: its results, at least one.
    Raises UsageError for a run that has a file there already or that no row can be made of, OSError. Merged files are
    not searched for the run: a new one's id is new.
    """
    values = columns_of(document, outcomes)
    _make(folder)
    folder = real_path(folder)
    target = run_file(folder, run_id_of(document))
    if target.exists():
        raise UsageError(f"{target}: is there already, expected a run that the history has not")
    add(target, lambda partial: _write(partial, values))
    sweep(folder)
    merge_where_due(folder)
    return target


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder}: found a file, expected a folder for the history") from None


def _write(file: Path, values: Sequence[Sequence[object]]) -> None:
    lists = ", ".join(f'unnest(${i}::{column.type}[]) AS "{column.name}"' for i, column in enumerate(COLUMNS, 1))
    with database() as connection:
        copy_to(connection, f"SELECT {lists}", file, values)
