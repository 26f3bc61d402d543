"""A saved run read back: its JSON document, checked before anything is rendered or compared from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.form import check_form, check_plain, shown
from pytest_bandwidth.domain.measurement import Conditions, Fact, KernelResources
from pytest_bandwidth.domain.outcome import Outcome, from_plain
from pytest_bandwidth.domain.samples import Dropped
from pytest_bandwidth.domain.verdict import Status, Verdict

LARGEST_BYTES = 512 * 2**20
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class PeakForm:
    """The document's `device.peak`: GB/s, and who says so."""

    gbps: float
    source: str


@dataclass(frozen=True, slots=True)
class DeviceForm:
    """The document's `device`."""

    kind: str
    name: str
    serial: str
    memory_gib: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    peak: PeakForm | None = None


@dataclass(frozen=True, slots=True)
class DocumentForm:
    """The document itself; its results have the form of an `Outcome` and the nested forms below."""

    schema: int
    run_id: str
    device: DeviceForm
    results: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    baseline_path: str | None = None
    findings: tuple[Mapping[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class ConditionsForm:
    """A result's `conditions`: before the samples and after them."""

    before: Conditions = field(default_factory=Conditions)
    after: Conditions = field(default_factory=Conditions)


@dataclass(frozen=True, slots=True)
class ProbeForm:
    """A result's `probe`."""

    name: str | None = None
    bytes_moved: int | None = None


# What an `Outcome` declares as plain mappings.
NESTED_FORMS: Mapping[str, type] = {
    "verdict": Verdict,
    "baseline": Entry,
    "conditions": ConditionsForm,
    "probe": ProbeForm,
    "resources": KernelResources,
    "dropped": Dropped,
}


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
