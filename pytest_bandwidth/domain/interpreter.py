"""Keep the original clock of the process, since a frozen one ends no loop; disable garbage collection."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Hold the original functions of `time`, in a class: libraries that freeze time replace those in modules."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.perf_counter)
    perf_counter_ns = staticmethod(time.perf_counter_ns)
    sleep = staticmethod(time.sleep)


clock = Clock()


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable garbage collection, and restore its state afterwards."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
