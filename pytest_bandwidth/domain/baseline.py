"""A baseline: what an earlier run of each measurement showed on one device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

SCHEMA = 1
NEWEST_RUNS_KEPT = 20

Figure = Literal["relative", "gbps"]


@dataclass(frozen=True, slots=True)
class Run:
    """One fresh process's evidence. `probe_gbps` is the probe of the same rounds; `extra` keeps keys this version does not know."""

    gbps: float
    probe_gbps: float | None = None
    relative: float | None = None
    samples: int | None = None
    gpu: str | None = None
    commit: str | None = None
    at: str | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Entry:
    """What is known of one measurement (`key` = node id, then `` @ label`` where there is one).

    gbps: achieved GB/s that the entry stands for; exact where there are no runs (written by hand).
    anchor: relative and GB/s of the first generation of runs, fixed while small drops are accepted.
    counts: what the traffic device counted, by name (``load_sectors`` …); empty for timed devices.
    extra: text of scalar keys that this version does not know, kept on a rewrite.
    """

    key: str
    gbps: float | None = None
    utilization: float | None = None
    tolerance: float | None = None
    judged_on: Figure | None = None
    bytes_read: int | None = None
    bytes_written: int | None = None
    method: str | None = None
    xfail: str | None = None
    note: str | None = None
    anchor: Run | None = None
    resources: Mapping[str, int] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    runs: tuple[Run, ...] = ()
    line: int | None = None
    extra: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class BaselineDevice:
    """The device a baseline file belongs to, and the peak its owner vouches for (GB/s), if any."""

    name: str
    memory_gib: int | None = None
    kind: str | None = None
    peak_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class Baseline:
    """One baseline file: a device and its entries by key."""

    device: BaselineDevice | None
    entries: Mapping[str, Entry]
    tolerance: float | None = None
    path: str | None = None

    def find(self, key: str) -> Entry | None:
        """The entry of a measurement, or None."""
        return self.entries.get(key)
