"""Tell two processes in turn how to lay arrays that hold the same into the same memory.

A process that begins to measure says which arrays it has. The first is told to copy those that the second one may have
as well, both to run the workload once more and to compare, and to exchange what is the same still: see
`devices.shared_arrays`. What a run changes, such as what is added to, would be changed by both: it stays each's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES, SharedArrays

# What lines say: which arrays there are, and with which of them an order was carried out.
ARRAYS, DONE = "arrays", "done"
Work = Literal["copy", "same", "exchange"]
# Each order with the process, 0 or 1, that it is for; sent back is what that process did it with.
Orders = Generator[tuple[int, "Order"], Sequence[int] | None, None]


@dataclass(frozen=True, slots=True)
class Order:
    """Say what a process is to do with which of its arrays. places: number of the array, offset in the memory."""

    work: Work
    places: Sequence[tuple[int, int]]

    def text(self) -> str:
        """Return it as a line."""
        return json.dumps({"work": self.work, "places": self.places})

    def by(self, arrays: SharedArrays, run: Call) -> list[int]:
        """Carry it out; return the numbers of the arrays that it was done with. run: the workload, once."""
        if self.work == "copy":
            return arrays.copy(self.places)
        if self.work == "same":
            return arrays.same(self.places, run)
        return arrays.exchange(number for number, _ in self.places)


def order_of(line: str) -> Order | None:
    """Return the order that a line gives; None for another line."""
    if not line.startswith("{"):
        return None
    told = json.loads(line)
    return Order(told["work"], told["places"])


def orders(memory: int, one: Sequence[Sequence[int]], two: Sequence[Sequence[int]]) -> Orders:
    """Give orders, one after the other. one, two: the arrays of both, each as `SharedArrays.told` has it."""
    places = []
    # Nothing lies where an earlier measurement's arrays did: processes that the test has forked may have them still.
    end = os.fstat(memory).st_size
    for first, second in _alike(one, two):
        places.append(({0: first, 1: second}, end))
        end += -(-one[first][-1] // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    if not places:
        return
    try:
        os.ftruncate(memory, end)
    except OSError:  # a limit of files' sizes
        return
    steps: tuple[tuple[int, Work], ...] = ((0, "copy"), (0, "same"), (1, "same"), (0, "exchange"), (1, "exchange"))
    for side, work in steps:
        done = (yield side, Order(work, [(numbers[side], at) for numbers, at in places])) or ()
        places = [(numbers, at) for numbers, at in places if numbers[side] in done]
        if not places:  # what one cannot, the other may not
            yield 0, Order("exchange", [])
            yield 1, Order("exchange", [])
            return


def _alike(one: Sequence[Any], two: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Return the numbers of arrays of one size in both: the first with the first of that size, and so on."""
    left = list(enumerate(two))
    for first, array in enumerate(one):
        at = next((place for place, (_, other) in enumerate(left) if list(other) == list(array)), None)
        if at is not None:
            yield first, left.pop(at)[0]
