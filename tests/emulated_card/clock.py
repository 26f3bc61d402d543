"""Put the card's virtual time behind `time.perf_counter`, so that figures are the same on any machine, however busy.

It moves on when the host calls the card, waits for it, sleeps or reads the clock, and by nothing else. `time.time` and
`time.monotonic` stay real: by them processes wait for one another. A long sleep is over soon.
"""

from __future__ import annotations

import ctypes
import time

# A process that waits for another one asks again and again, and leaves it the processor meanwhile.
LONGEST_REAL_SLEEP_SECONDS = 0.02


def install(cuda: ctypes.CDLL) -> None:
    """Replace `time.perf_counter`, `time.perf_counter_ns` and `time.sleep`, for all that import them from now on."""
    read = cuda.card_read_clock
    read.restype = ctypes.c_double
    slept = cuda.card_host_sleeps
    slept.argtypes, slept.restype = (ctypes.c_double,), None
    really_sleep = time.sleep

    def perf_counter() -> float:
        return read() * 1e-9

    def perf_counter_ns() -> int:
        return int(read())

    def sleep(seconds: float) -> None:
        really_sleep(min(seconds, LONGEST_REAL_SLEEP_SECONDS))
        slept(seconds)

    for function in (perf_counter, perf_counter_ns, sleep):
        function.__module__ = "time"  # plugins look it up there by name
        setattr(time, function.__name__, function)
