"""Keep the clock that the process began with: tests put others in its place, and a frozen one ends no loop."""

from __future__ import annotations

import time


class Clock:
    """Hold `time`'s functions of then, in a class: what libraries that freeze time put others for is in modules."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.perf_counter)
    perf_counter_ns = staticmethod(time.perf_counter_ns)
    sleep = staticmethod(time.sleep)


clock = Clock()
