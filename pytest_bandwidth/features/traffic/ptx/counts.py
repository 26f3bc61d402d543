"""Hold what an execution counted and found, as values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

Pattern = Literal["coalesced", "misaligned", "strided", "random", "broadcast"]


@dataclass(frozen=True, slots=True)
class AccessCounts:
    """Count accesses to global memory of one kind. A request is one instruction of one warp.

    accesses: by threads. bytes_requested: asked for by all threads. bytes_distinct: each byte once, however often it
    was asked for. sectors: 32-byte sectors, added up over the requests.
    ideal_sectors: the fewest that could hold the distinct bytes of each request.
    requests_by_pattern: how many requests had which pattern. stride_bytes: the commonest step between neighbouring
    threads of strided requests, None where there is none.
    """

    accesses: int = 0
    requests: int = 0
    bytes_requested: int = 0
    bytes_distinct: int = 0
    sectors: int = 0
    ideal_sectors: int = 0
    requests_by_pattern: Mapping[Pattern, int] = field(default_factory=dict)
    stride_bytes: int | None = None

    @property
    def sectors_per_request(self) -> float | None:
        return self.sectors / self.requests if self.requests else None

    @property
    def coalescing(self) -> float | None:
        """Divide the fewest sectors that could do by the sectors asked for; 1 is perfect."""
        return self.ideal_sectors / self.sectors if self.sectors else None

    @property
    def pattern(self) -> Pattern | None:
        """Return the pattern of most requests; of equally many the one that asks for more sectors."""
        order: tuple[Pattern, ...] = ("random", "strided", "misaligned", "coalesced", "broadcast")
        present = [name for name in order if self.requests_by_pattern.get(name)]
        most = max((self.requests_by_pattern[name] for name in present), default=0)
        return next((name for name in present if self.requests_by_pattern[name] == most), None)

    def describe(self) -> str:
        """Put the pattern in words: ``strided (32 bytes)``."""
        pattern = self.pattern
        if pattern is None:
            return "none"
        return f"strided ({self.stride_bytes} bytes)" if pattern == "strided" and self.stride_bytes else pattern


@dataclass(frozen=True, slots=True)
class SharedCounts:
    """Count accesses to shared memory. passes: over the banks; least_passes: had there been no conflict."""

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
    """Count accesses to local memory (register spills, indexed local arrays), by threads."""

    accesses: int = 0
    bytes_requested: int = 0


@dataclass(frozen=True, slots=True)
class Counts:
    """Hold all counts of one kernel, or of one line of it. Atomics count apart from loads and stores."""

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
    """Hold the counts of one line of the source; line 0 where the compiler gave none."""

    file: str
    line: int
    counts: Counts


@dataclass(frozen=True, slots=True)
class ArrayCounts:
    """Count the distinct bytes of one array argument: each byte once, however often it was touched.

    arguments: the kernel parameters, counted from 0, that it was passed for; empty for module variables.
    """

    name: str
    arguments: tuple[int, ...]
    nbytes: int
    bytes_read: int
    bytes_written: int


@dataclass(frozen=True, slots=True)
class AccessFault:
    """Describe something wrong that a thread did.

    code: ``out-of-bounds``, ``misaligned``, ``uninitialised``, ``race``, ``read-only``, ``barrier`` or ``trap``.
    threads: how many accesses of this line did the same to the same array.
    """

    code: str
    text: str
    array: str
    block: str
    thread: str
    address: int
    file: str
    line: int
    threads: int = 1


@dataclass(frozen=True, slots=True)
class Execution:
    """Hold the counts of one kernel launch. Results are in the arrays that were passed.

    blocks_run: how many of the grid's `blocks` were executed. Counts are of those; `scale` turns them into the grid's.
    bytes_read, bytes_written: distinct bytes over all arrays, those that two arguments share counted once.
    sample_spread: None where all blocks ran, else the largest relative difference of any total between two sampled
    blocks (0.0: all alike, so that scaling is exact unless the others differ from every sampled one).
    """

    kernel: str
    arch: str
    nvrtc_version: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    blocks: int
    blocks_run: int
    counts: Counts
    lines: tuple[LineCounts, ...]
    arrays: tuple[ArrayCounts, ...]
    bytes_read: int
    bytes_written: int
    thread_instructions: int
    warp_instructions: int
    faults: tuple[AccessFault, ...] = ()
    sample_spread: float | None = None

    @property
    def scale(self) -> float:
        return self.blocks / self.blocks_run if self.blocks_run else 0.0

    @property
    def lane_occupancy(self) -> float | None:
        """Divide the threads that took part per executed warp instruction by 32;
        1 without divergence or partly filled warps.
        """
        return self.thread_instructions / (32 * self.warp_instructions) if self.warp_instructions else None
