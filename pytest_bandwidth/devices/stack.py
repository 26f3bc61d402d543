"""Call something at another place of the stack each time, so that no single place decides what is measured.

Where a function's variables lie to its tables and data is an accident of the process: at some places they are in each
other's way in the first cache. `np.exp` took 1.8 to 2.4 times as long in 3 to 5 % of processes on a Zen 4, in data
that fits any cache, and as long as ever from a frame more of the stack (docs/measurements.md, "Where processes lie").
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")

# Each frame is some 500 bytes. Prime, so that what is sampled in turns with others comes by all of them.
PLACES = 7


class StackPlaces:
    """Go through the places in turn."""

    def __init__(self) -> None:
        self._next = 0

    def call(self, function: Callable[[], T]) -> T:
        """Call it at the next place and return what it returns. Raises what it raises."""
        frames, self._next = self._next, (self._next + 1) % PLACES
        return _from_below(frames, function)


def _from_below(frames: int, function: Callable[[], T]) -> T:
    __tracebackhide__ = True
    # By way of C: a Python function that calls another one takes no stack.
    return function() if frames == 0 else partial(_from_below, frames - 1, function)()
