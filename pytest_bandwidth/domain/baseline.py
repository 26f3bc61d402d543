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
# To be raised with each change of a probe that changes what it reaches: figures of other versions are no reference.
PROBE_VERSION = 1

# Where Linux puts a process's memory, or what `object.__repr__` calls an address.
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]{6,16}|\b0x(?:7[ef]|5[56])[0-9a-f]{10}\b")
# Of pytest's tmp_path and Python's tempfile.
_TEMPORARY = re.compile(r"pytest-of-[^/\]]+/pytest-[0-9]+|/tmp[a-z0-9_]{8}(?=[]/-]|$)")

Metric = Literal["relative", "gbps"]


# Nobody changes one; frozen, each of a large file's 100,000 would take several times as long to make.
@dataclass(slots=True)
class Run:
    """Hold one fresh process's evidence. probe_gbps: the probe in the same rounds.

    dram_read, dram_written: bytes that DRAM moved, where hardware counters were asked.
    commit, dirty: what was checked out, and whether what ran may have been other than that. extra: driver, runtime,
    settings of the machine and versions of loaded libraries, by which a drop may be explained, and keys of later
    versions.
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
    """Hold what is known of one measurement (`key` = node id, then `` @ label`` where there is one).

    gbps: achieved GB/s that the entry stands for; exact where there are no runs (written by hand).
    anchor: relative and GB/s of the first generation of runs, fixed while small drops are accepted.
    counts: what the traffic device counted, by name (``load_sectors`` …); empty for timed devices.
    code: hashes that identify what the newest runs ran, by name (`CodeIdentity`); empty where that is not known.
    line: where the entry begins in its file; no part of what the entry says.
    extra: text of scalar keys that this version does not know, kept on a rewrite.
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
    """Name the device a baseline file belongs to, and the peak its owner vouches for (GB/s), if any."""

    name: str
    memory_gib: int | None = None
    kind: str | None = None
    peak_gbps: float | None = None
    line: int | None = field(default=None, compare=False)

    def matches(self, identity: DeviceIdentity) -> bool:
        """Return whether this is the device at hand: the same name.

        The same memory and kind where both sides give them.
        """
        return (
            self.name == identity.name
            and (self.memory_gib is None or identity.memory_gib is None or self.memory_gib == identity.memory_gib)
            and self.is_of_kind(identity)
        )

    def is_of_kind(self, identity: DeviceIdentity) -> bool:
        """Return whether this is a device like the one at hand, a GPU, say; so may be one that does not tell."""
        return self.kind is None or self.kind == identity.kind


@dataclass(frozen=True, slots=True)
class Baseline:
    """Hold one baseline file: a device and its entries by key, in the file's order.

    code_of: the other device whose code alone the entries hold (`other_device`); None where they are whole.
    note: what the reader of the file has to know, though it is no error.
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
    """Return, in words, what in a key's parameters or label is another in each run, so that no run finds its entry."""
    given = re.search(r"\[.*|[ ]@[ ].*", key)
    for pattern, what in ((_ADDRESS, "an object's address"), (_TEMPORARY, "a temporary path")):
        if given is not None and (match := pattern.search(given[0])):
            return f"{what} ({match[0].strip()})"
    return None


def settled(entry: Entry, peak_gbps: float | None = None) -> Entry:
    """Return the entry as files hold it: six digits, the newest runs, derived figures derived.

    GB/s is the median of the runs, utilization GB/s ÷ peak where the file gives a peak.
    """
    runs = tuple(_rounded_run(run) for run in entry.runs[-NEWEST_RUNS_KEPT:])
    gbps = median(run.gbps for run in runs) if runs else entry.gbps
    if gbps is not None:
        gbps = rounded(gbps)
    utilization = gbps / peak_gbps if gbps is not None and peak_gbps is not None else entry.utilization
    anchor = None if entry.anchor is None else _rounded_run(entry.anchor)
    return replace(entry, runs=runs, gbps=gbps, utilization=utilization, anchor=anchor)


def rounded(figure: float) -> float:
    """Return the figure to six significant digits, as files hold it: noise is a thousand times what that leaves out."""
    return float(f"{figure:.5e}")


def _rounded_run(run: Run) -> Run:
    probe_gbps = None if run.probe_gbps is None else rounded(run.probe_gbps)
    relative = None if run.relative is None else rounded(run.relative)
    return replace(run, gbps=rounded(run.gbps), probe_gbps=probe_gbps, relative=relative)


def agrees(written: float, derived: float, rounding: float) -> bool:
    """Return whether a written figure is the derived one but for rounding.

    rounding: what the written digits leave open, in the figure's unit. At most 1 % of the figure counts as rounding,
    so that ``2 TB/s`` does not stand for 1747 GB/s; one part in 10⁵ is always granted to the six digits of `rounded`.
    """
    return abs(written - derived) <= min(rounding, 0.01 * derived) + 1e-5 * derived
