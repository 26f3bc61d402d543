"""Append one run to the history, in a file of its own, so that writers never wait for each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.address import Address
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.history.store.bucket import Bucket
from pytest_bandwidth.features.history.store.columns import COLUMNS, columns_of, run_id_of
from pytest_bandwidth.features.history.store.database import copy_to, database
from pytest_bandwidth.features.history.store.files import add, name_of_run, sweep
from pytest_bandwidth.features.history.store.merging import merge_bucket_where_due, merge_where_due
from pytest_bandwidth.features.history.store.reading import Place
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.storage.atomic import real_path
from pytest_bandwidth.storage.own_folders import temporary_folder

Values = Sequence[Sequence[object]]


def append(place: Place, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> Place:
    """Write the run as one file of the folder, which is made where there is none, or bucket, and return it.

    document: a whole run in the form that `--bandwidth-json` writes; outcomes: its results, at least one.
    Raises UsageError for a run that has a file there already or that no row can be made of, and for whatever a bucket
    refuses; OSError. Merged files are not searched for the run: a new one's id is new.
    """
    values, name = columns_of(document, outcomes), name_of_run(run_id_of(document))
    return _append_there(place, name, values) if isinstance(place, Address) else _append_here(place, name, values)


def _append_here(folder: Path, name: str, values: Values) -> Path:
    _make(folder)
    folder = real_path(folder)
    target = folder / name
    if target.exists():
        raise _there_already(target)
    add(target, lambda partial: _write(partial, values))
    sweep(folder)
    merge_where_due(folder)
    return target


def _append_there(address: Address, name: str, values: Values) -> Address:
    bucket = Bucket(address)
    # No foreign file keeps a run out: reading and merging are what refuses those.
    names = bucket.names()
    if name in names:
        raise _there_already(address / name)
    with temporary_folder() as folder:
        _write(Path(folder) / name, values)
        bucket.put(Path(folder) / name, name)
    merge_bucket_where_due(bucket, (*names, name))
    return address / name


def _there_already(file: Place) -> UsageError:
    return UsageError(f"{file}: is there already, expected a run that the history has not")


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise UsageError(f"{folder}: found a file, expected a folder for the history") from None


def _write(file: Path, values: Values) -> None:
    lists = ", ".join(f'unnest(${i}::{column.type}[]) AS "{column.name}"' for i, column in enumerate(COLUMNS, 1))
    with database() as connection:
        copy_to(connection, f"SELECT {lists}", file, values)
