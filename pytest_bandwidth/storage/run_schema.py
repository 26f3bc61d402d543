"""Declare the JSON document's forms as dataclasses that a saved run is held to; docs/json.md tells their meaning."""

# None of them is ever made, and what `dataclass` would write for them takes longer than all else in this module.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import Conditions, Fact, TimedOn
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.domain.measured.rounds import Dropped
from pytest_bandwidth.domain.verdict import Numbers


@dataclass(init=False, repr=False, eq=False)
class PeakForm:
    """Declare the document's `device.peak`: GB/s and source."""

    gbps: float
    source: str


@dataclass(init=False, repr=False, eq=False)
class DeviceForm:
    """Declare the document's `device`."""

    kind: str
    name: str
    serial: str
    timed_on: TimedOn
    memory_gib: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
    variant: str = ""
    peak: PeakForm | None = None


@dataclass(init=False, repr=False, eq=False)
class DocumentForm:
    """Declare the document itself; its results have the form of an `Outcome` and the nested forms below."""

    schema: int
    run_id: str
    device: DeviceForm
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
