"""A saved run read back: its JSON document, checked before anything is rendered or compared from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.outcome import Outcome, from_plain
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.storage.run_schema import NESTED_FORMS, DocumentForm
from pytest_bandwidth.storage.schema_check import check_form, check_plain

LARGEST_BYTES = 512 * 2**20
SCHEMA = 1


def load_run(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """The document and its rows. Raises UsageError, one line with the file's name, for anything that is no such run."""
    try:
        with path.open("rb") as stream:
            # Bounded by what is read: a pipe or a device tells no size.
            data = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB, expected a saved run")
    try:
        document = json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: found no JSON, expected a document that --bandwidth-json wrote") from None
    return checked(document, str(path))


def checked(document: object, name: str) -> tuple[dict[str, Any], list[Outcome]]:
    """Document and rows of an already parsed mapping; raises UsageError like `load_run`."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise UsageError(f"{name}: found no results, expected a document that --bandwidth-json wrote")
    try:
        check_plain(document)
        schema = document.get("schema")
        if type(schema) is not int or schema != SCHEMA:
            raise UsageError(
                f"found schema {shown(schema)}, expected {SCHEMA}: use the version that wrote it, or a newer"
            )
        check_form(document, DocumentForm, "the document")
        return document, [_row(row, f"results[{i}]") for i, row in enumerate(document["results"])]
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def _row(plain: Mapping[str, Any], where: str) -> Outcome:
    check_form(plain, Outcome, where)
    for name, form in NESTED_FORMS.items():
        value = plain.get(name)
        for i, one in enumerate(value if isinstance(value, list) else [value] if value else []):
            check_form(one, form, f"{where}.{name}[{i}]" if isinstance(value, list) else f"{where}.{name}")
    if plain["status"] == Status.SUSPECT.value:
        raise UsageError(f"{where}.status is 'SUSPECT', expected one that a run ends with")
    return from_plain(plain)


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}, which JSON does not have")
