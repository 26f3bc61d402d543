"""Keep the clock that the process began with, as a frozen one ends no loop; put off the search for garbage."""

from __future__ import annotations

import gc
import time
from collections.abc import Iterator
from contextlib import contextmanager


class Clock:
    """Hold `time`'s functions of then, in a class: what libraries that freeze time put others for is in modules."""

    monotonic = staticmethod(time.monotonic)
    perf_counter = staticmethod(time.perf_counter)
    perf_counter_ns = staticmethod(time.perf_counter_ns)
    sleep = staticmethod(time.sleep)


clock = Clock()


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Collect no garbage meanwhile; afterwards it is as it was."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
