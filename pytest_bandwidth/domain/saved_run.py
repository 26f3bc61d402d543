"""A saved run read back: its JSON document, checked before anything is rendered or compared from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.outcome import Outcome, from_plain

LARGEST_BYTES = 512 * 2**20
SCHEMA = 1


def load_run(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """The document and its rows. Raises UsageError, one line with the file's name, for anything that is no such run."""
    try:
        if path.stat().st_size > LARGEST_BYTES:
            raise UsageError(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB, expected a saved run")
        document = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise UsageError(f"{path}: found no JSON, expected a document that --bandwidth-json wrote") from None
    return checked(document, str(path))


def checked(document: object, name: str) -> tuple[dict[str, Any], list[Outcome]]:
    """Document and rows of an already parsed mapping; raises UsageError like `load_run`."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise UsageError(f"{name}: found no results, expected a document that --bandwidth-json wrote")
    schema = document.get("schema")
    if schema != SCHEMA:
        raise UsageError(
            f"{name}: found schema {schema!r:.20}, expected {SCHEMA}: use the version that wrote it, or a newer"
        )
    if not isinstance(document.get("device"), Mapping) or not isinstance(document["device"].get("name"), str):
        raise UsageError(f"{name}: found no device, expected a document that --bandwidth-json wrote")
    try:
        return document, [from_plain(row) for row in document["results"]]
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
