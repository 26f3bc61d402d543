"""Declare the JSON document's forms as dataclasses that a saved run is held to; docs/json.md tells their meaning."""

# None of them is ever made, and what `dataclass` would write for them takes longer than all else in this module.

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.device import Conditions, Fact
from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.domain.measured.rounds import Dropped
from pytest_bandwidth.domain.verdict import Numbers
from pytest_bandwidth.features.counters.dram_traffic import KernelDram


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
    memory_gib: int | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, Fact] = field(default_factory=dict)
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


@dataclass(init=False, repr=False, eq=False)
class AccessForm:
    """Declare what the traffic device counted of one kind of access; sectors of 32 bytes."""

    accesses: int
    requests: int
    bytes_requested: int
    sectors: int
    sectors_per_request: float | None
    coalescing: float | None
    pattern: str


@dataclass(init=False, repr=False, eq=False)
class LineForm:
    """Declare the traffic device's counts of one source line."""

    file: str
    line: int
    loads: AccessForm | None = None
    stores: AccessForm | None = None
    atomics: AccessForm | None = None
    bank_conflicts: int = 0
    divergent_branches: int = 0


@dataclass(init=False, repr=False, eq=False)
class ArrayForm:
    """Declare what the traffic device saw of one array: its size and the distinct bytes touched."""

    name: str
    nbytes: int
    bytes_read: int
    bytes_written: int


@dataclass(init=False, repr=False, eq=False)
class OperatorForm:
    """Declare one operator of a framework: bytes, FLOP, and what bounds it; null where the framework does not tell."""

    name: str
    bytes_read: int | None
    bytes_written: int | None
    bytes_moved: int
    flop: int | None
    arithmetic_intensity: float | None
    bound: str | None


@dataclass(init=False, repr=False, eq=False)
class ExplainedForm:
    """Declare what a callable's operators move: the first of them, and sums over all."""

    framework: str
    bytes_moved: int
    least_bytes: int
    compiled_bytes: int | None = None
    is_compiled: bool = False
    intermediates: tuple[int, ...] | None = None
    operator_count: int = 0
    operators: tuple[OperatorForm, ...] = ()


@dataclass(init=False, repr=False, eq=False)
class DetailForm:
    """Declare a result's `detail`: what one kind of device adds, and an explanation of a framework's callable."""

    inputs: str | None = None
    dispatch_seconds: float | None = None
    graph_launches: int | None = None
    loads: AccessForm | None = None
    stores: AccessForm | None = None
    atomics: AccessForm | None = None
    kernel: str | None = None
    blocks: int | None = None
    blocks_run: int | None = None
    sample_spread: float | None = None
    thread_instructions: int | None = None
    lane_occupancy: float | None = None
    lines: tuple[LineForm, ...] = ()
    arrays: tuple[ArrayForm, ...] = ()
    modelled_floor_seconds: Mapping[str, float] = field(default_factory=dict)
    explained: ExplainedForm | None = None


@dataclass(init=False, repr=False, eq=False)
class DramForm:
    """Declare a result's `dram`: what hardware counters told beside the bytes."""

    counted_by: str = ""
    kernels: tuple[KernelDram, ...] = ()
    kernel_count: int = 0
    seconds: float | None = None
    l2_sectors_read: int | None = None
    l2_sectors_written: int | None = None


# What an `Outcome` declares as plain mappings.
NESTED_FORMS: Mapping[str, type] = {
    "code_identity": CodeIdentity,
    "verdict": DecisionForm,
    "baseline": Entry,
    "conditions": ConditionsForm,
    "probe": ProbeForm,
    "resources": KernelResources,
    "dropped": Dropped,
    "detail": DetailForm,
    "dram": DramForm,
}
