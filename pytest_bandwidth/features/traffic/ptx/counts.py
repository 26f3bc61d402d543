"""Count the memory requests of each instruction: sectors, patterns, bank passes, distinct bytes."""

from __future__ import annotations

import functools
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypeVar

import numpy as np

from pytest_bandwidth.features.traffic.ptx import loops
from pytest_bandwidth.features.traffic.ptx.faults import AccessFault, Checker
from pytest_bandwidth.features.traffic.ptx.lanes import Array, least, spread
from pytest_bandwidth.features.traffic.ptx.memory import (
    Access,
    Region,
    touched,
)
from pytest_bandwidth.features.traffic.ptx.program import Site, Symbol

# ---- values ----------------------------------------------------------------------------------------------------------

Pattern = Literal["coalesced", "misaligned", "strided", "random", "broadcast"]


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Count accesses to global memory of one kind. A request is one instruction of one warp.

    accesses: of all threads. bytes_requested: by all threads. sectors: of 32 bytes, the sum over requests.
    ideal_sectors: the fewest that could hold the distinct bytes of each request.
    requests_by_pattern: the number of requests with each pattern. stride_bytes: the most common step between
    neighbouring threads of strided requests; None without strided requests.
    """

    accesses: int = 0
    requests: int = 0
    bytes_requested: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    requests_by_pattern: Mapping[Pattern, int] = field(default_factory=dict)
    stride_bytes: int | None = None

    @property
    def sectors_per_request(self) -> float | None:
        return self.sectors / self.requests if self.requests else None

    @property
    def coalescing(self) -> float | None:
        """Return the ideal number of sectors ÷ the requested sectors; 1 is perfect."""
        return self.ideal_sectors / self.sectors if self.sectors else None

    @property
    def pattern(self) -> Pattern | None:
        """Return the most common pattern of requests; of equally common ones that with more sectors."""
        order: tuple[Pattern, ...] = ("random", "strided", "misaligned", "coalesced", "broadcast")
        most = max(order, key=lambda name: self.requests_by_pattern.get(name, 0))
        return most if self.requests_by_pattern.get(most) else None

    def describe(self) -> str:
        """Format the pattern: ``strided (32 bytes)``."""
        pattern = self.pattern
        if pattern is None:
            return "none"
        return f"strided ({self.stride_bytes} bytes)" if pattern == "strided" and self.stride_bytes else pattern


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Count accesses to shared memory. passes: over the banks; least_passes: without any bank conflict."""

    accesses: int = 0
    requests: int = 0
    bytes_requested: int = 0
    passes: int = 0
    least_passes: int = 0

    @property
    def bank_conflicts(self) -> int:
        """Count passes over the banks beyond the first of each request (or part of one, for wide accesses)."""
        return self.passes - self.least_passes


@dataclass(frozen=True, slots=True)
class LocalCounts:
    """Count accesses of threads to local memory, such as arrays with an index that the compiler does not know."""

    accesses: int = 0
    bytes_requested: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Hold all counts of one kernel, or of one of its lines. Atomics are counted separately from loads and stores."""

    loads: AccessCounts = field(default_factory=AccessCounts)
    stores: AccessCounts = field(default_factory=AccessCounts)
    atomics: AccessCounts = field(default_factory=AccessCounts)
    shared_loads: SharedCounts = field(default_factory=SharedCounts)
    shared_stores: SharedCounts = field(default_factory=SharedCounts)
    shared_atomics: SharedCounts = field(default_factory=SharedCounts)
    local_loads: LocalCounts = field(default_factory=LocalCounts)
    local_stores: LocalCounts = field(default_factory=LocalCounts)
    branches: int = 0
    divergent_branches: int = 0

    @property
    def bank_conflicts(self) -> int:
        return sum(c.bank_conflicts for c in (self.shared_loads, self.shared_stores, self.shared_atomics))


@dataclass(frozen=True, slots=True)
class LineCounts:
    """Hold the counts of one source line; line 0 if unknown. text: of the line, if known."""

    file: str
    line: int
    counts: Counts
    text: str = ""


@dataclass(frozen=True, slots=True)
class ArrayCounts:
    """Count the distinct bytes of one array argument: each byte once, even if it was touched several times.

    arguments: the numbers from 0 of the kernel parameters that it was passed for; empty for module variables.
    address: of its first byte in this process, which identifies the array of a launch; it differs from run to run.
    role: in several launches. An ``input`` is only read, an ``output`` only written. The first launch that touches
    ``scratch`` writes it, a later one reads it. Other written arrays are ``in place``; "" for an untouched array.
    """

    name: str
    arguments: tuple[int, ...]
    nbytes: int
    bytes_read: int
    bytes_written: int
    address: int = field(default=0, compare=False, repr=False)
    role: str = ""


@dataclass(frozen=True, slots=True)
class Execution:
    """Hold the counts of one kernel launch. Results are in the arrays that were passed.

    blocks_run: how many of the grid's `blocks` were executed. Counts are of those; `scale` converts them to the grid's.
    bytes_read, bytes_written: distinct bytes over all arrays; bytes that two arguments share count once.
    bytes_fetched: the part of `bytes_read` that was read before the launch wrote it.
    sample_spread: None where all blocks ran, else the largest relative difference of any total between two sampled
    blocks (0.0: all are alike, so that scaling is exact unless other blocks differ from them).
    before_wait: lines that may access global memory before the wait for the previous kernel.
    printed: lines whose printf() a thread called.
    """

    kernel: str
    nvrtc_version: str
    blocks: int
    blocks_run: int
    counts: Counts
    lines: tuple[LineCounts, ...]
    arrays: tuple[ArrayCounts, ...]
    bytes_read: int
    bytes_written: int
    bytes_fetched: int
    thread_instructions: int
    warp_instructions: int
    faults: tuple[AccessFault, ...] = ()
    sample_spread: float | None = None
    before_wait: tuple[str, ...] = ()
    printed: tuple[str, ...] = ()

    @property
    def scale(self) -> float:
        return self.blocks / self.blocks_run if self.blocks_run else 0.0

    @property
    def lane_occupancy(self) -> float | None:
        """Return active threads per executed warp instruction ÷ 32; 1 without divergence or partly filled warps."""
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else None


def together(executions: Sequence[Execution]) -> Execution:
    """Add up the counts of consecutive launches; the distinct bytes are the sum over launches.

    Their arrays must be alive: else a new array may have got the address of a freed one.
    """
    if len(executions) == 1:
        return executions[0]
    lines: dict[tuple[str, int], LineCounts] = {}
    for line in (line for execution in executions for line in execution.lines):
        known = lines.get((line.file, line.line))
        counts = line.counts if known is None else _added(known.counts, line.counts)
        lines[line.file, line.line] = replace(line, counts=counts)
    added: dict[str, Any] = {name: sum(getattr(one, name) for one in executions) for name in _SUMS}
    for name in ("before_wait", "printed"):
        added[name] = tuple(dict.fromkeys(line for one in executions for line in getattr(one, name)))
    return replace(
        executions[0],
        kernel=" + ".join(dict.fromkeys(one.kernel for one in executions)),
        counts=functools.reduce(_added, (one.counts for one in executions)),
        lines=tuple(lines[place] for place in sorted(lines)),
        arrays=_joined(executions),
        **added,
    )


def _joined(executions: Sequence[Execution]) -> tuple[ArrayCounts, ...]:
    """Add up arrays that share bytes, in the order in which launches got them."""
    given = [(number, array) for number, one in enumerate(executions) for array in one.arrays]
    groups: list[list[int]] = []
    end = 0
    for place in sorted(range(len(given)), key=lambda place: given[place][1].address):
        array = given[place][1]
        if not groups or array.address >= end:
            groups.append([])
        groups[-1].append(place)
        end = max(end, array.address + max(array.nbytes, 1))
    return tuple(_one_array([given[place] for place in group]) for group in sorted(map(sorted, groups)))


def _one_array(given: Sequence[tuple[int, ArrayCounts]]) -> ArrayCounts:
    """Add up the counts of an array by launch number; overlapping parts are one array with the first part's name."""
    arrays = [array for _, array in given]
    reads, writes = ({n for n, a in given if getattr(a, name)} for name in ("bytes_read", "bytes_written"))
    first = min(reads | writes, default=None)
    start = min(array.address for array in arrays)
    if not writes:
        role = "input" if reads else ""
    elif first in reads:
        role = "in place"
    else:
        role = "scratch" if reads else "output"
    return replace(
        arrays[0],
        nbytes=max(array.address + array.nbytes for array in arrays) - start,
        bytes_read=sum(array.bytes_read for array in arrays),
        bytes_written=sum(array.bytes_written for array in arrays),
        address=start,
        role=role,
    )


_SUMS = (
    *("blocks", "blocks_run", "bytes_read", "bytes_written", "bytes_fetched"),
    *("thread_instructions", "warp_instructions"),
)
_Counted = TypeVar("_Counted", Counts, AccessCounts, SharedCounts, LocalCounts)


def _added(one: _Counted, other: _Counted) -> _Counted:
    """Add every count; the stride is that of the side with more strided requests."""
    sums: dict[str, Any] = {}
    for of in fields(one):
        a, b = getattr(one, of.name), getattr(other, of.name)
        if isinstance(one, AccessCounts) and isinstance(other, AccessCounts) and of.name == "stride_bytes":
            most = max((one, other), key=lambda counts: counts.requests_by_pattern.get("strided", 0))
            sums[of.name] = most.stride_bytes
        elif isinstance(a, Mapping):
            sums[of.name] = {name: a.get(name, 0) + b.get(name, 0) for name in {**a, **b}}
        else:
            sums[of.name] = a + b if isinstance(a, int) else _added(a, b)
    return replace(one, **sums)


# ---- counting --------------------------------------------------------------------------------------------------------

_PATTERNS: tuple[tuple[Pattern, int], ...] = (
    ("coalesced", loops.COALESCED),
    ("misaligned", loops.MISALIGNED),
    ("strided", loops.STRIDED),
    ("random", loops.RANDOM),
    ("broadcast", loops.BROADCAST),
)
# Flags of a granule, which accesses set.
_READ, _WRITTEN = 1, 2
# The granule was read before it was written.
_FETCHED = 4
_DONE = (_READ, _WRITTEN, _FETCHED)
_DOES = {"load": _READ, "store": _WRITTEN, "atomic": _READ | _WRITTEN}


class DistinctBytes:
    """Record for each granule of a region whether it was read, written, and read before it was written.

    granule_bytes: the narrowest global access of the kernel. Aligned accesses touch whole granules: counts are exact.
    """

    def __init__(self, granule_bytes: int) -> None:
        self._granule, self._shift = granule_bytes, granule_bytes.bit_length() - 1
        self._flags: dict[Region, Array] = {}
        self._extents: dict[Region, tuple[int, int]] = {}
        self._found: dict[tuple[Region, int, int], tuple[int, ...]] = {}

    def mark(self, access: Access) -> None:
        region = access.region
        if region not in self._flags:
            self._flags[region] = region.zeros_per_place(-(-region.nbytes // self._granule), np.uint8)
        first, end = self._extents.get(region, (region.nbytes, 0))
        self._extents[region] = min(first, access.first), max(end, access.end)
        self._found.clear()
        offset, mask = least(access.offset, access.mask)
        count = max(1, access.width // self._granule)
        does = _DOES[access.kind]
        fetches = _FETCHED if does & _READ else 0
        loops.mark(self._flags[region], 0, 0, offset, self._shift, mask, count, does, fetches, _WRITTEN)

    def count(self, region: Region, start: int, nbytes: int) -> tuple[int, ...]:
        """Count the bytes read, written and fetched (read before they were written) in a part of a region."""
        key = (region, start, nbytes)
        if key not in self._found:
            first, end = self._extents.get(region, (0, 0))
            low, high = max(start, first) // self._granule, -(-min(start + nbytes, end) // self._granule)
            found = np.zeros(256, np.int64)
            for part in touched(self._flags[region][0], low, high) if low < high else ():
                found += loops.histogram(self._flags[region][0][part])
            totals = (sum(int(n) for flags, n in enumerate(found[: 2 * _FETCHED]) if flags & what) for what in _DONE)
            self._found[key] = tuple(min(total * self._granule, nbytes) for total in totals)
        return self._found[key]


# The number of counts of an access to each space: those of `loops`, of SharedCounts and of LocalCounts.
_COUNTED = {"global": loops.COUNTS, "shared": 5, "local": 2}


class TrafficCounter(Checker):
    """Count accesses. granule_bytes: the narrowest global access of the kernel. sites: the kernel's instructions."""

    def __init__(self, granule_bytes: int, sites: Sequence[Site]) -> None:
        self._sites = sites
        self._distinct = DistinctBytes(granule_bytes)
        # By space, site and kind of access.
        self._counts: dict[tuple[str, int, str], Array] = {}
        self._branches: dict[int, Array] = {}

    def see(self, access: Access) -> None:
        space = access.region.kind
        if space not in _COUNTED:
            return
        counts = self._counts.setdefault((space, access.site, access.kind), np.zeros(_COUNTED[space], np.int64))
        # Broadcast over all threads; over all blocks only where blocks differ.
        rows: int = max(access.offset.shape[0], access.mask.shape[0])
        offset, mask = (spread(one, (rows, self.geometry.lanes)) for one in (access.offset, access.mask))
        repeat = self.geometry.rows // rows
        if space == "global":
            loops.count_sectors(offset, mask, access.width, repeat, counts)
            self._distinct.mark(access)
        elif space == "shared":
            requests, passes, least_passes, lanes = loops.count_bank_passes(offset, mask, access.width, repeat)
            counts += (lanes, requests, lanes * access.width, passes, least_passes)
        else:
            lanes = np.count_nonzero(mask) * repeat
            counts += (lanes, lanes * access.width)

    def branch(self, site: int, warps: int, divergent: int) -> None:
        self._branches.setdefault(site, np.zeros(2, np.int64))[:] += (warps, divergent)

    # Results

    def lines(self, file: str, source: str) -> tuple[LineCounts, ...]:
        """Add up the counts by line. source: the text of `file`, empty if unknown."""
        texts = source.splitlines()
        known = defaultdict(int, {file: len(texts)})
        by_line: dict[tuple[str, int], list[int]] = {}
        for number in self._seen():
            by_line.setdefault((self._sites[number].file, self._sites[number].line), []).append(number)
        return tuple(
            LineCounts(name, line, self._sum(sites), texts[line - 1].strip() if 0 < line <= known[name] else "")
            for (name, line), sites in sorted(by_line.items())
        )

    def total(self) -> Counts:
        return self._sum(self._seen())

    def figures(self) -> Array:
        """Return totals to compare blocks: for each kind of access its requests, sectors (or passes) and threads."""
        total = np.zeros(9)
        for (space, _, kind), counts in self._counts.items():
            if space == "global":
                places = [loops.REQUESTS, loops.SECTORS, loops.LANES]
                total[{"load": slice(0, 3), "store": slice(3, 6), "atomic": slice(3, 6)}[kind]] += counts[places]
            elif space == "shared":
                total[6:9] += counts[[1, 3, 0]]
        return total

    def arrays(self, regions: Sequence[Region]) -> tuple[ArrayCounts, ...]:
        """Count the distinct bytes of each array argument, and of each module variable that was touched."""
        found: list[ArrayCounts] = []
        for region in regions:
            for view in region.views or (Symbol(region.name, 0, region.nbytes),):
                read, written, _ = self._distinct.count(region, view.address, view.size)
                if view.arguments or read or written:
                    address = region.data.ctypes.data + view.address
                    found.append(ArrayCounts(view.name, view.arguments, view.size, read, written, address))
        return tuple(sorted(found, key=lambda counts: (not counts.arguments, counts.arguments)))

    def distinct_bytes(self, regions: Sequence[Region]) -> dict[str, int]:
        """Count distinct bytes over all allocations, by fields of `Execution`; shared bytes count once."""
        each = [self._distinct.count(region, 0, region.nbytes) for region in regions]
        names = ("bytes_read", "bytes_written", "bytes_fetched")
        return {name: sum(one[place] for one in each) for place, name in enumerate(names)}

    def _seen(self) -> list[int]:
        return sorted({site for _, site, _ in self._counts} | set(self._branches))

    def _sum(self, sites: Sequence[int]) -> Counts:
        branches = sum((self._branches[s] for s in sites if s in self._branches), np.zeros(2, np.int64))
        return Counts(
            loads=self._accesses(sites, "load"),
            stores=self._accesses(sites, "store"),
            atomics=self._accesses(sites, "atomic"),
            shared_loads=SharedCounts(*self._total("shared", sites, "load")),
            shared_stores=SharedCounts(*self._total("shared", sites, "store")),
            shared_atomics=SharedCounts(*self._total("shared", sites, "atomic")),
            local_loads=LocalCounts(*self._total("local", sites, "load")),
            local_stores=LocalCounts(*self._total("local", sites, "store")),
            branches=int(branches[0]),
            divergent_branches=int(branches[1]),
        )

    def _found(self, space: str, sites: Sequence[int], kind: str) -> list[Array]:
        return [self._counts[space, site, kind] for site in sites if (space, site, kind) in self._counts]

    def _total(self, space: str, sites: Sequence[int], kind: str) -> list[int]:
        total: Array = sum(self._found(space, sites, kind), np.zeros(_COUNTED[space], np.int64))
        return list(map(int, total))

    def _accesses(self, sites: Sequence[int], kind: str) -> AccessCounts:
        total = self._total("global", sites, kind)
        most = max(self._found("global", sites, kind), key=lambda counts: counts[loops.STRIDED], default=total)
        return AccessCounts(
            accesses=total[loops.LANES],
            requests=total[loops.REQUESTS],
            bytes_requested=total[loops.BYTES],
            sectors=total[loops.SECTORS],
            ideal_sectors=total[loops.IDEAL_SECTORS],
            requests_by_pattern={name: total[place] for name, place in _PATTERNS if total[place]},
            stride_bytes=int(most[loops.STRIDE]) if most[loops.STRIDED] else None,
        )
