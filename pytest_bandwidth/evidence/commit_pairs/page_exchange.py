"""Tell two processes in turn how to lay arrays that hold the same into the same memory.

A process that begins to measure says which arrays it has. Each is told to copy half of those that the other one may
have as well, then both to run the workload once more and to compare, and to exchange what is the same still: see
`devices.shared_arrays`. What a run changes, such as what is added to, would be changed by both: it stays each's own.
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from pytest_bandwidth.devices.base import Call
from pytest_bandwidth.devices.host import available_bytes
from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES, SharedArrays

# What lines say: which arrays there are, whether those are all that the workload is given, and with which of them an
# order was carried out.
ARRAYS, ALL, DONE = "arrays", "all", "done"
Work = Literal["copy", "same", "exchange"]
# What the processes, 0 and 1, are to do at the same time; sent back is with which arrays each did it.
Both = tuple["Order", "Order"]
# The end tells whether those of all arrays were exchanged.
Orders = Generator[Both, tuple[Sequence[int], Sequence[int]] | None, bool]
# Numbers of an array in both processes, its bytes, and where the shared memory has room for it.
_Place = tuple[tuple[int, int], int, int]

_NOTHING: tuple[Sequence[int], Sequence[int]] = ((), ())
# Of the free memory, what copies may take: nothing fails without them.
FREE_SHARE = 0.25


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
    """Give orders, one after the other; return whether all arrays of both had their pages exchanged.

    one, two: the arrays of both, each as `SharedArrays.told` has it.
    """
    places: list[_Place] = []
    # Nothing lies where an earlier measurement's arrays did: processes that the test has forked may have them still.
    end = os.fstat(memory).st_size
    for numbers in _alike(one, two):
        length = one[numbers[0]][-1]
        places.append((numbers, length, end))
        end += -(-length // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    if not places or not _made_room(memory, sum(length for _, length, _ in places), end):
        return False
    # Each every other one, the largest first: nothing else that is ordered takes as long.
    places.sort(key=lambda place: -place[1])
    halves = places[::2], places[1::2]
    done = (yield _order("copy", halves[0], 0), _order("copy", halves[1], 1)) or _NOTHING
    places = [place for side, half in enumerate(halves) for place in half if place[0][side] in done[side]]
    steps: tuple[Work, Work] = ("same", "exchange")
    for work in steps:
        if places:
            done = (yield _order(work, places, 0), _order(work, places, 1)) or _NOTHING
        places = [place for place in places if all(place[0][side] in done[side] for side in (0, 1))]
    if not places:  # what one cannot, the other may not
        yield Order("exchange", []), Order("exchange", [])
    return len(places) == len(one) == len(two)


def _made_room(memory: int, needed: int, end: int) -> bool:
    """Let the memory end there, where so many bytes may be taken."""
    free = available_bytes()
    if free is not None and needed > FREE_SHARE * free:
        return False
    try:
        os.ftruncate(memory, end)
    except OSError:  # a limit of files' sizes
        return False
    return True


def _order(work: Work, places: Sequence[_Place], side: int) -> Order:
    return Order(work, [(numbers[side], at) for numbers, _, at in places])


def _alike(one: Sequence[Any], two: Sequence[Any]) -> Iterator[tuple[int, int]]:
    """Return the numbers of arrays of one size in both: the first with the first of that size, and so on."""
    left = list(enumerate(two))
    for first, array in enumerate(one):
        at = next((place for place, (_, other) in enumerate(left) if list(other) == list(array)), None)
        if at is not None:
            yield first, left.pop(at)[0]
