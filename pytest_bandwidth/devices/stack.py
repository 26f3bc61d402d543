"""Call something at a place of the stack that is drawn each time, so that no one place decides what is measured.

Where a function's variables lie to its tables and data is an accident of the process: at some places they are in each
other's way in the first cache. `np.exp` took 1.8 to 2.4 times as long in one process of thirty on a Zen 4, in data that
fits any cache, and was as fast as ever from a frame more of the stack.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import TypeVar

T = TypeVar("T")

# A frame took 544 to 624 bytes with CPython 3.10 to 3.13: so many of them are in as many lines of a page.
PLACES = 7


class StackPlaces:
    """Draw the places, since what is sampled in turns with others might always come by the same one."""

    def __init__(self) -> None:
        self._random = random.Random()  # tests seed the one of the module

    def call(self, function: Callable[[], T]) -> T:
        """Call it at a drawn place of this thread's stack and return what it returns. Raises what it raises."""
        return _from_below(self._random.randrange(PLACES), function)


def _from_below(frames: int, function: Callable[[], T]) -> T:
    __tracebackhide__ = True
    # By way of C: since Python 3.11 a function of Python's that calls another one takes no stack.
    return function() if frames == 0 else partial(_from_below, frames - 1, function)()
