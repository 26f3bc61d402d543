"""Tell how long threads of this process were ready to run and waited for a processor: the scheduler's own account.

Unlike a list of other processes it sees the shortest neighbour, works in containers, and counts a quota's throttling.
Second field of /proc/PID/task/TID/schedstat, in nanoseconds (Documentation/scheduler/sched-stats.rst of Linux).
"""

from __future__ import annotations

import os
from pathlib import Path

from pytest_bandwidth.devices.base import Call, Sample
from pytest_bandwidth.domain.clock import clock
from pytest_bandwidth.domain.gc_disabled import gc_disabled
from pytest_bandwidth.domain.measured.measurement import Finding
from pytest_bandwidth.domain.measured.rounds import RUN_DELAY

# A sample in which a thread waited longer than this share of it does not count. On a quiet 2-core host, samples of 1 µs
# to 10 ms wait for nothing; 1 % or 10 % keep about as many, with other processes and without.
LARGEST_WAITED_SHARE = 0.03
LONGEST_RECORD = 64
# Of the files that a process may have open, tests need some: of 1,024 mostly.
MOST_THREADS = 256
# Each look lists a folder.
LOOK_SECONDS = 0.1


class RunDelay:
    """Watch the threads of this process; open files, since a path costs 15 µs a thread and a file one."""

    def __init__(self, tasks: Path = Path("/proc/self/task")) -> None:
        self._tasks = tasks
        self._files: dict[str, int] = {}
        self._process = 0
        self._looked = 0.0

    def look_for_threads(self) -> None:
        """Open the account of each thread that is new, close those of threads that ended; now and then, not always."""
        now = clock.monotonic()
        if self._process == os.getpid() and now - self._looked < LOOK_SECONDS:
            return
        if self._process != os.getpid():  # after a fork, what is open tells of the parent's threads
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
                continue  # it ended meanwhile, or the system keeps no such account

    def seconds(self) -> dict[str, float]:
        """Return how long each thread has waited since it began; empty where the system does not account for it."""
        waited = {}
        for thread, file in self._files.items():
            try:
                waited[thread] = int(os.pread(file, LONGEST_RECORD, 0).split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):
                continue  # the thread ended
        return waited

    def time(self, call: Call) -> Sample:
        """Time one call between two readings of the clock, no garbage collection; note whether a thread waited."""
        with gc_disabled():
            waited_before = self.seconds()
            started = clock.perf_counter_ns()
            call()
            ended = clock.perf_counter_ns()
            waited = longest_wait(waited_before, self.seconds())
        seconds = (ended - started) * 1e-9
        return Sample(seconds, seconds, why_disturbed(seconds, waited), waited)

    def close(self) -> None:
        """Close all accounts; the next look opens them again."""
        for file in self._files.values():
            os.close(file)
        self._files.clear()
        self._process = 0


def longest_wait(before: dict[str, float], after: dict[str, float]) -> float | None:
    """Return the seconds that the thread waited that waited longest; None where no account is kept."""
    if not before:
        return None
    return max((seconds - before[thread] for thread, seconds in after.items() if thread in before), default=0.0)


def why_disturbed(seconds: float, waited: float | None) -> Finding | None:
    """Return why a sample of so many seconds does not count; None where it does."""
    if waited is None or waited <= LARGEST_WAITED_SHARE * seconds:
        return None
    return Finding(RUN_DELAY, "a thread was ready to run and waited for a processor")
