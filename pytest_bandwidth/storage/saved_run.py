"""Read saved runs, here alone: check their JSON document before anything is rendered or compared from it.

The document is what ``--bandwidth-json`` writes; docs/json.md tells its meaning. The classes below declare its forms,
to which `schema_check` holds it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime
from pathlib import Path
from typing import Any, NoReturn

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import Conditions, Fact, TimedOn
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.gc_disabled import gc_disabled
from pytest_bandwidth.domain.measured.measurement import Finding, KernelResources
from pytest_bandwidth.domain.measured.rounds import Dropped
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.domain.units import parse_moment
from pytest_bandwidth.domain.verdict import Numbers, Status
from pytest_bandwidth.outcomes.outcome import Outcome, from_plain
from pytest_bandwidth.storage.schema_check import Unreal, check_figures, check_form, check_plain, without_unreal

LARGEST_BYTES = 512 * 2**20
# A value takes up to 120 bytes of memory, however short its text is. A document of ours has one in 24 bytes of text,
# and 400 in a result.
LEAST_BYTES_A_VALUE = 12
VALUES_OF_A_SMALL_ONE, MOST_VALUES = 100_000, 20_000_000
SCHEMA = 1
MAX_RENDERED_RESULTS = 50_000
# What no form declares the values of.
_UNTYPED = ("tags", "fresh", "detail")


@dataclass(frozen=True, slots=True)
class RunPeak:
    """Hold the peak bandwidth of a run's device in GB/s, and who says so."""

    gbps: float
    source: str


@dataclass(frozen=True, slots=True)
class RunDevice:
    """Describe the device of a run; GiB, None where unknown."""

    kind: str
    name: str
    serial: str
    timed_on: TimedOn
    memory_gib: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variant: str = ""
    peak: RunPeak | None = None

    @property
    def peak_gbps(self) -> float | None:
        return (self.peak.gbps if self.peak else None) or None

    @property
    def peak_source(self) -> str:
        return self.peak.source if self.peak else ""


# These are never made, and what `dataclass` would write for them takes longer than all else in this module.
@dataclass(init=False, repr=False, eq=False)
class DocumentForm:
    """Declare the document itself; its results have the form of an `Outcome` and the nested forms below."""

    schema: int
    run_id: str
    device: RunDevice
    results: tuple[Mapping[str, Any], ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)
    baseline_path: str | None = None
    findings: tuple[Mapping[str, str], ...] = ()


@dataclass(init=False, repr=False, eq=False, frozen=True)
class DecisionForm(Numbers):
    """Declare a result's `verdict`: the rule, its numbers and facts."""

    status: str = ""
    rule: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    why_not: tuple[str, ...] = ()


@dataclass(init=False, repr=False, eq=False)
class ConditionsForm:
    """Declare a result's `conditions`: before the samples and after them."""

    before: Conditions = field(default_factory=Conditions)
    after: Conditions = field(default_factory=Conditions)


@dataclass(init=False, repr=False, eq=False)
class ProbeForm:
    """Declare a result's `probe`."""

    name: str | None = None
    bytes_moved: int | None = None


# What an `Outcome` declares as plain mappings.
NESTED_FORMS: Mapping[str, type] = {
    "code_identity": CodeIdentity,
    "verdict": DecisionForm,
    "baseline": Entry,
    "conditions": ConditionsForm,
    "probe": ProbeForm,
    "resources": KernelResources,
    "dropped": Dropped,
}


@dataclass(frozen=True, slots=True)
class RunDocument:
    """Hold a whole run as renderers read it. `outcomes` in the order of the document."""

    run_id: str
    environment: Mapping[str, Any]
    device: RunDevice
    strict: bool
    settings: Mapping[str, Any]
    outcomes: tuple[Outcome, ...]
    findings: tuple[Finding, ...]
    baseline_path: str | None

    def fails(self, outcome: Outcome) -> bool:
        """Return whether the outcome fails its test under this run's settings."""
        return outcome.xfail is None and Status[outcome.status].fails(strict=self.strict)


def load_run(path: Path) -> tuple[dict[str, Any], list[Outcome]]:
    """Return the document and its rows. Raises UsageError, one line with the file's name, for anything else."""
    try:
        with path.open("rb") as stream:
            # Bounded by what is read: a pipe or a device tells no size.
            data = stream.read(LARGEST_BYTES + 1)
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from None
    if len(data) > LARGEST_BYTES:
        raise UsageError(f"{path}: larger than {LARGEST_BYTES // 2**20} MiB, expected a saved run")
    return checked(parsed(data, str(path)), str(path))


@gc_disabled()  # what a run holds stays: of a fleet's, looking through it again and again is a fifth of the time
def parsed(data: bytes, name: str) -> object:
    """Return what JSON text says. Raises UsageError, one line with the name, where it is none."""
    # What separates values, and opens those that hold others; of a text's own characters some count as well.
    values = sum(map(data.count, (b",", b"[", b"{")))
    most = min(VALUES_OF_A_SMALL_ONE + len(data) // LEAST_BYTES_A_VALUE, MOST_VALUES)
    if values > most:
        raise UsageError(
            f"{name}: found {values:,} values, expected at most {most:,} in {len(data):,} bytes: "
            "a document that --bandwidth-json wrote"
        )
    try:
        return json.loads(data.decode("utf-8"), parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise UsageError(f"{name}: found no JSON, expected a document that --bandwidth-json wrote") from None


@gc_disabled()
def checked(document: object, name: str) -> tuple[dict[str, Any], list[Outcome]]:
    """Return document and rows of an already parsed mapping; raises UsageError like `load_run`."""
    if not isinstance(document, dict) or not isinstance(document.get("results"), list):
        raise UsageError(f"{name}: found no results, expected a document that --bandwidth-json wrote")
    try:
        check_plain(document)
        return document, _rows(document)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None


def began(environment: Mapping[str, Any]) -> datetime:
    """Return when a run began, by its environment. Raises UsageError where that tells no moment."""
    value: Any = environment.get("started_at")
    try:
        return parse_moment(value)
    except (TypeError, ValueError):
        said = f"environment.started_at is {shown(value)}"
        raise UsageError(f"{said}, expected a moment like 2026-11-21T04:00:00Z") from None


def read_document(document: Mapping[str, Any]) -> RunDocument:
    """Return a document, saved or of this very run, for the renderers.

    A number that is no figure counts as absent: a report with a gap is of more use than none.
    Raises UsageError: where, what was found, what is expected.
    """
    if not isinstance(document, Mapping):
        raise UsageError(f"the document is {shown(document)}, expected a mapping")
    results = document.get("results")
    if isinstance(results, list | tuple) and len(results) > MAX_RENDERED_RESULTS:
        raise UsageError(f"the document has {len(results)} results, expected at most {MAX_RENDERED_RESULTS}: split it")
    plain = document
    try:
        outcomes = tuple(_rows(document))
    except Unreal:  # hardly ever; to copy without such numbers takes as long as all else
        plain = without_unreal(document)
        outcomes = tuple(_rows(plain))
    settings, of_device = plain.get("settings") or {}, plain["device"]
    given = {one.name: of_device[one.name] for one in fields(RunDevice) if of_device.get(one.name) is not None}
    peak = of_device.get("peak")
    given["name"] = of_device["name"] or "unnamed device"
    given["peak"] = RunPeak(peak.get("gbps") or 0.0, peak.get("source") or "") if peak else None
    return RunDocument(
        run_id=plain["run_id"],
        environment=plain.get("environment") or {},
        device=RunDevice(**given),
        strict=settings.get("strict") is True,
        settings=settings,
        outcomes=outcomes,
        findings=tuple(Finding(note.get("code", ""), note.get("text", "")) for note in plain.get("findings") or ()),
        baseline_path=plain.get("baseline_path"),
    )


def _rows(document: Mapping[str, Any]) -> list[Outcome]:
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise UsageError(f"found schema {shown(schema)}, expected {SCHEMA}: use the version that wrote it, or a newer")
    check_form(document, DocumentForm, "the document")
    check_figures([document.get("environment"), document.get("settings")])
    outcomes = []
    for number, row in enumerate(document["results"]):
        where = f"results[{number}]"
        check_form(row, Outcome, where)
        for name, form in NESTED_FORMS.items():
            value = row.get(name)
            if isinstance(value, (list, tuple)):
                for i, one in enumerate(value):
                    check_form(one, form, f"{where}.{name}[{i}]")
            elif value:
                check_form(value, form, f"{where}.{name}")
        for untyped in (*map(row.get, _UNTYPED), (row.get("verdict") or {}).get("facts")):
            if untyped:
                check_figures(untyped)
        outcomes.append(from_plain(row))
    return outcomes


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"found {name}, which JSON does not have")
