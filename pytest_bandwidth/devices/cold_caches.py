"""Make caches cold by reading so much other memory that nothing of a workload's data is left in them."""

from __future__ import annotations

from collections.abc import Callable

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.domain.clock import clock
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.units import format_bytes, format_seconds

# Of data this many times as large as the last-level cache, what a cache still holds does not show.
COLD_BY_ITSELF = 5
# Caches do not replace the oldest line exactly: after reading once their size, much of the old data is still there.
# Four times takes away most of what more would: `benchmarks/ceiling.py --plateau`.
EVICTION_FACTOR = 4
# A virtual machine may report a whole socket's cache. Reading more than this before each of some dozens of samples
# would leave no time for the samples.
LARGEST_EVICTION_BYTES = 512 << 20
# Where the system tells no sizes: more than the last level of most desktop processors.
ASSUMED_CACHE_BYTES = 64 << 20


class CacheEviction:
    """Read a buffer through before each sample of a workload that a cache could hold.

    Reading is enough: what it pushes out is written back on the way, before the sample begins.
    """

    def __init__(
        self, reader: Callable[[int], Call], cache: int | None, assumed_bytes: int = ASSUMED_CACHE_BYTES
    ) -> None:
        """Take what makes a buffer of so many bytes, all touched, and returns what reads it through.

        cache: bytes of the last level, None where the system tells no size: then it is taken for `assumed_bytes`.
        """
        self._reader = reader
        self.cache_known = cache is not None
        self.cache_bytes = assumed_bytes if cache is None else cache
        self._read: Call | None = None
        self._needed = False
        self._seconds: list[float] = []

    @property
    def eviction_bytes(self) -> int:
        return min(EVICTION_FACTOR * self.cache_bytes, LARGEST_EVICTION_BYTES)

    def prepare(self, data_bytes: int, *, others_have_them: bool = False) -> None:
        """Prepare for a workload that touches so many bytes. Raises OutOfMemory.

        others_have_them: whether another process works on the same bytes just before, so that none of them may stay.
        """
        self._needed = others_have_them or data_bytes < COLD_BY_ITSELF * self.cache_bytes
        self._seconds = []
        if self._needed and self._read is None:
            read = self._reader(self.eviction_bytes)
            read()  # compiles
            self._read = read

    @property
    def is_needed(self) -> bool:
        """Return whether the workload asks for it."""
        return self._needed and self._read is not None

    def evict(self) -> None:
        """Make the caches cold where the workload asks for it."""
        if self._needed and self._read is not None:
            started = clock.perf_counter()
            self._read()
            self._seconds.append(clock.perf_counter() - started)

    def finding(self, data_bytes: int) -> Finding | None:
        """Tell what was done for the workload just measured; None where nothing had to be."""
        if not self._seconds or data_bytes >= COLD_BY_ITSELF * self.cache_bytes:
            return None
        each = sorted(self._seconds)[len(self._seconds) // 2]
        known = "" if self.cache_known else "assumed "
        wanted = EVICTION_FACTOR * self.cache_bytes
        capped = f" ({format_bytes(wanted)} would be wanted: some of the data may stay)"
        short = capped if self.eviction_bytes < wanted else ""
        return Finding(
            "cache-evicted",
            f"{format_bytes(data_bytes)} of data is less than {COLD_BY_ITSELF} × the {known}"
            f"{format_bytes(self.cache_bytes)} last-level cache: before each sample "
            f"{format_bytes(self.eviction_bytes)} of other memory were read{short}, "
            f"{format_seconds(each)} each, untimed",
        )

    def release(self) -> None:
        self._read = None
        self._needed = False
