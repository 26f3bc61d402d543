"""Say why nothing was counted."""

from __future__ import annotations

from pytest_bandwidth.domain.errors import BandwidthError


class CountersFailed(BandwidthError):
    """Raised where hardware counters cannot be read, for a reason that is no fault of the test."""


class NoKernelCounted(CountersFailed):
    """Raised where the profiler counts, and the workload launched no kernel that it saw."""


class CountUnfinished(CountersFailed):
    """Raised where the profiler counts, and the workload crashed or failed before its end: some kernels are missing."""
