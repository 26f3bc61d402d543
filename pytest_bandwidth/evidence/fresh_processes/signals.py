"""Turn SIGTERM and SIGHUP into KeyboardInterrupt, so that clean-up runs."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

_ENDING = ("SIGTERM", "SIGHUP")


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, unless something handles them already."""
    replaced = []
    if threading.current_thread() is threading.main_thread():
        numbers = (getattr(signal, name, None) for name in _ENDING)
        replaced = [n for n in numbers if n is not None and signal.getsignal(n) is signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, _interrupt)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


def _interrupt(number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)
