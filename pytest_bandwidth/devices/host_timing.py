"""Time calls by the host's clock: with cold caches, from a random place of the stack, noting threads that waited.

The scheduler records how long a thread was ready to run and waited for a processor. Unlike a list of other processes,
this covers the shortest process, works in containers, and counts a quota's throttling. It is the second field of
/proc/PID/task/TID/schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).

The distance of a function's variables from its tables and data is an accident of the process. At some distances they
conflict in the first cache. `np.exp` took 1.8 to 2.4 times as long in one process of thirty on a Zen 4, in data that
fits any cache. One stack frame more made it as fast as ever (docs/measurements.md, "Where processes lie").
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from pytest_bandwidth.devices.base import Call, Probe, Sample, TimedDevice
from pytest_bandwidth.devices.host import ActivityWatch
from pytest_bandwidth.domain.device import Conditions, DeviceIdentity
from pytest_bandwidth.domain.interpreter import clock, gc_disabled
from pytest_bandwidth.domain.measured.measurement import RUN_DELAY, Finding
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_bytes

# A sample in which a thread waited longer than this share of it does not count. On a quiet 2-core host, samples of 1 µs
# to 10 ms do not wait; 1 % or 10 % keep about as many, with other processes and without.
LARGEST_WAITED_SHARE = 0.03
WAITED = Finding(RUN_DELAY, "a thread was ready to run and waited for a processor")
LONGEST_RECORD = 64
# Each thread takes an open file. A process may mostly have 1,024, and tests need some.
MOST_THREADS = 256
# Each check lists a folder.
LOOK_SECONDS = 0.1


class RunDelay:
    """Watch the threads of this process. Files stay open: to open one costs 15 µs a thread, to read one 1 µs."""

    def __init__(self, tasks: Path = Path("/proc/self/task")) -> None:
        self._tasks = tasks
        self._files: dict[str, int] = {}
        self._process = 0
        self._looked = 0.0

    def look_for_threads(self) -> None:
        """Open the records of new threads and close those of ended ones, at most once in LOOK_SECONDS."""
        now = clock.monotonic()
        if self._process == os.getpid() and now - self._looked < LOOK_SECONDS:
            return
        if self._process != os.getpid():  # after a fork, the open files are of the parent's threads
            self.close()
        self._process, self._looked = os.getpid(), now
        try:
            threads = set(os.listdir(self._tasks))
        except OSError:
            threads = set()
        for ended in self._files.keys() - threads:
            os.close(self._files.pop(ended))
        for thread in sorted(threads - self._files.keys(), key=int)[: MOST_THREADS - len(self._files)]:
            try:
                self._files[thread] = os.open(self._tasks / thread / "schedstat", os.O_RDONLY | os.O_CLOEXEC)
            except OSError:
                continue  # it ended meanwhile, or the system keeps no such record

    def seconds(self) -> dict[str, float]:
        """Return how long each thread has waited since it began; empty where the system does not record it."""
        waited = {}
        for thread, file in self._files.items():
            try:
                waited[thread] = int(os.pread(file, LONGEST_RECORD, 0).split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                continue  # the thread ended
        return waited

    def time(self, call: Call) -> Sample:
        """Time one call by the clock, without garbage collection; note whether a thread waited."""
        with gc_disabled():
            before = self.seconds()
            now = clock.perf_counter_ns  # if the call replaces the clock, it has no effect here
            started = now()
            call()
            ended = now()
            after = self.seconds()
        seconds = (ended - started) * 1e-9
        waits = (after[thread] - begun for thread, begun in before.items() if thread in after)
        waited = max(waits, default=0.0) if before else None
        is_disturbed = waited is not None and waited > LARGEST_WAITED_SHARE * seconds
        return Sample(seconds, seconds, WAITED if is_disturbed else None, waited)

    def close(self) -> None:
        """Close all records; the next check opens them again."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._process = 0


# For data this many times as large as the last-level cache, the part that a cache still holds has no visible effect.
COLD_BY_ITSELF = 5
# Caches do not replace the oldest line exactly: after reading once their size, much of the old data is still there.
# Four times its size removes almost as much as more would: `benchmarks/plateau.py`.
EVICTION_FACTOR = 4
# A virtual machine may report a whole socket's cache. Reading more than this before each of some dozens of samples
# would leave no time for the samples.
LARGEST_EVICTION_BYTES = 512 << 20
# For an unknown size: more than the last level of most desktop processors.
ASSUMED_CACHE_BYTES = 64 << 20


class CacheEviction:
    """Read a buffer through before each sample of a workload that a cache could hold.

    Reading is enough: evicted data is written back before the sample begins.
    is_needed: whether the prepared workload needs it.
    """

    def __init__(
        self, reader: Callable[[int], Call], cache: int | None, assumed_bytes: int = ASSUMED_CACHE_BYTES
    ) -> None:
        """Prepare for a cache. reader: makes a buffer of so many bytes, all touched; returns a call that reads it.

        cache: bytes of the last level; None where unknown, which counts as `assumed_bytes`.
        """
        self._reader = reader
        self.cache_known = cache is not None
        self.cache_bytes = assumed_bytes if cache is None else cache
        self._read: Call | None = None
        self.is_needed = False

    def prepare(self, data_bytes: int, *, cold: bool = True, others_have_them: bool = False) -> None:
        """Prepare for a workload that touches so many bytes. Raises OutOfMemory.

        cold: whether it needs cold caches.
        others_have_them: whether another process uses the same bytes just before, so that none may stay in a cache.
        """
        self.is_needed = cold and (others_have_them or data_bytes < COLD_BY_ITSELF * self.cache_bytes)
        if self.is_needed and self._read is None:
            read = self._reader(min(EVICTION_FACTOR * self.cache_bytes, LARGEST_EVICTION_BYTES))
            read()  # compiles
            self._read = read

    def evict(self) -> None:
        """Make the caches cold where the workload needs it."""
        if self.is_needed and self._read is not None:
            self._read()

    def finding(self) -> Finding | None:
        """Report that the cache may still have held data of the workload just measured; None where it did not."""
        wanted = EVICTION_FACTOR * self.cache_bytes
        if not self.is_needed or wanted <= LARGEST_EVICTION_BYTES:
            return None
        known = "" if self.cache_known else "assumed "
        return Finding(
            "cache-evicted",
            f"before each sample {format_bytes(LARGEST_EVICTION_BYTES)} of other memory were read, "
            f"{format_bytes(wanted)} would evict all of the {known}last-level cache: some of the data may stay",
        )

    def release(self) -> None:
        self._read = None
        self.is_needed = False


class HostTimedDevice(TimedDevice):
    """Base of the devices that the host's clock times; watches other processes on the host.

    probes: makes probes, and frees their buffers by `release`.
    """

    def __init__(self, identity: DeviceIdentity, probes: Any, eviction: CacheEviction) -> None:
        self.identity, self._probes, self._eviction = identity, probes, eviction
        self._watch, self._run_delay = ActivityWatch(), RunDelay()

    def now(self) -> float:
        return clock.perf_counter()

    def probe(self, traffic: Traffic, inputs: Sequence[Any] = ()) -> Probe:
        """Return the plain read, add, copy or write that is nearest in mix and as large. Raises OutOfMemory."""
        found: Probe = self._probes.probe(traffic, inputs)
        return found

    def conditions(self) -> Conditions:
        """Return the host's state; that of another processor is unknown."""
        return self._watch.conditions()

    def release(self) -> None:
        """Free the probe's buffers, and the buffer that evicts the caches."""
        self._probes.release()
        self._run_delay.close()
        self._eviction.release()


T = TypeVar("T")

# A frame took 544 to 624 bytes with CPython 3.10 to 3.13: so many frames begin in as many different lines of a page.
PLACES = 7


_places = random.Random()  # tests seed the module's own generator


def from_a_drawn_place(function: Callable[[], T]) -> T:
    """Call it at a random place of this thread's stack and return what it returns. Raises what it raises.

    Without this, alternating samples might always run at the same place.
    """
    return _from_below(_places.randrange(PLACES), function)


def _from_below(frames: int, function: Callable[[], T]) -> T:
    __tracebackhide__ = True
    # Through C: since Python 3.11 a Python function that calls another one takes no stack.
    return function() if frames == 0 else partial(_from_below, frames - 1, function)()
