"""Hold what an earlier run of each measurement showed on one device: the baseline."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Literal

from pytest_bandwidth.domain.device import DeviceIdentity

SCHEMA = 2
NEWEST_RUNS_KEPT = 20
# Increase it with each change of a probe that changes its bandwidth: figures of other versions are not comparable.
PROBE_VERSION = 1

# An address of a process's memory on Linux, or in a text of `object.__repr__`.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,16}|\b0x(?:7[ef]|5[56])[0-9a-f]{10}\b")
# Paths of pytest's tmp_path and Python's tempfile.
_TEMPORARY = re.compile(r"pytest-of-[^/\]]+/pytest-[0-9]+|/tmp[a-z0-9_]{8}(?=[]/-]|$)")

Metric = Literal["relative", "gbps"]


# Nobody changes a run. It is not frozen, since a frozen one takes several times as long to create.
@dataclass(slots=True)
class Run:
    """Hold one fresh process's figures. probe_gbps: the probe's bandwidth in the same rounds.

    dram_read, dram_written: bytes that DRAM moved, where hardware counters were read.
    commit, dirty: the checked-out commit, and whether the code that ran may differ from it. extra: what may explain a
    drop (driver, runtime, settings of the machine, versions of loaded libraries), and keys of later versions.
    """

    gbps: float
    probe_gbps: float | None = None
    relative: float | None = None
    samples: int | None = None
    gpu: str | None = None
    commit: str | None = None
    at: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)
    dirty: bool = False
    dram_read: int | None = None
    dram_written: int | None = None


@dataclass(frozen=True, slots=True)
class Entry:
    """Hold the baseline of one measurement (`key` = node id, then `` @ label`` where there is one).

    gbps: achieved GB/s: the median of the runs, or the exact figure of an entry without runs (written by hand).
    anchor: relative and GB/s of the first generation of runs. It stays the same while small drops are accepted.
    counts: what the traffic device counted, by name (``load_sectors`` …); empty for timed devices.
    code: hashes that identify the code of the newest runs, by name (`CodeIdentity`); empty where it is unknown.
    line: the entry's first line in its file; it is not part of the entry's content.
    extra: text of scalar keys that this version does not read. A rewrite keeps them.
    """

    key: str
    gbps: float | None = None
    utilization: float | None = None
    tolerance: float | None = None
    judged_on: Metric | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    method: str | None = None
    xfail: str | None = None
    note: str | None = None
    anchor: Run | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    code: Mapping[str, str] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    line: int | None = field(default=None, compare=False)
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BaselineDevice:
    """Name the device that a baseline file belongs to, and the peak that the file gives (GB/s), if any."""

    name: str
    memory_gib: int | None = None
    kind: str | None = None
    peak_gbps: float | None = None
    line: int | None = field(default=None, compare=False)

    def matches(self, identity: DeviceIdentity) -> bool:
        """Return whether the names are the same, and memory and kind as well where both give them."""
        return (
            self.name == identity.name
            and (self.memory_gib is None or identity.memory_gib is None or self.memory_gib == identity.memory_gib)
            and self.is_of_kind(identity)
        )

    def is_of_kind(self, identity: DeviceIdentity) -> bool:
        """Return whether both devices are of one kind, such as GPUs; also True where the file gives no kind."""
        return self.kind is None or self.kind == identity.kind


@dataclass(frozen=True, slots=True)
class Baseline:
    """Hold one baseline file: a device and its entries by key, in the file's order.

    code_of: the other device that the entries are from, without its figures (`code_alone`); None for this device's.
    note: a remark on the file for its reader; it is not an error.
    """

    device: BaselineDevice | None
    entries: Mapping[str, Entry]
    tolerance: float | None = None
    path: str | None = None
    code_of: str | None = None
    note: str | None = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Change:
    """Hold one entry before and after a write; None where it did not exist, or no longer does."""

    key: str
    before: Entry | None
    after: Entry | None


def changing_part(key: str) -> str | None:
    """Return, in words, which part of a key's parameters or label differs in each run, so that no entry is found."""
    given = re.search(r"\[.*|[ ]@[ ].*", key)
    for pattern, what in ((_ADDRESS, "an object's address"), (_TEMPORARY, "a temporary path")):
        if given is not None and (match := pattern.search(given[0])):
            return f"{what} ({match[0].strip()})"
    return None


def settled(entry: Entry, peak_gbps: float | None = None) -> Entry:
    """Return the entry as it is written to a file: six digits, the newest runs, derived figures computed.

    GB/s is the median of the runs. Utilization is GB/s ÷ peak where the file gives a peak.
    """
    runs = tuple(_rounded_run(run) for run in entry.runs[-NEWEST_RUNS_KEPT:])
    gbps = median(run.gbps for run in runs) if runs else entry.gbps
    if gbps is not None:
        gbps = rounded(gbps)
    utilization = gbps / peak_gbps if gbps is not None and peak_gbps is not None else entry.utilization
    anchor = None if entry.anchor is None else _rounded_run(entry.anchor)
    return replace(entry, runs=runs, gbps=gbps, utilization=utilization, anchor=anchor)


def rounded(figure: float) -> float:
    """Return the figure to six significant digits, as in files: noise is a thousand times larger than this rounding."""
    return float(f"{figure:.5e}")


def _rounded_run(run: Run) -> Run:
    probe_gbps = None if run.probe_gbps is None else rounded(run.probe_gbps)
    relative = None if run.relative is None else rounded(run.relative)
    return replace(run, gbps=rounded(run.gbps), probe_gbps=probe_gbps, relative=relative)
