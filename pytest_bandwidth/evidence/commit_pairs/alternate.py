"""Let two fresh processes sample the same measurement alternately, round by round, under the same machine load.

The load of a shared machine changes within seconds, so processes that run one after the other would differ by it. A
child sends a line before its first round and after each one. Then it waits for the parent's answer: go on, or stop.
Before the first round the parent may also send orders for the child's arrays (see `Order`).
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO, ClassVar, Literal

from pytest_bandwidth.devices.base import Call, Device, Turn
from pytest_bandwidth.devices.host import available_bytes, remember
from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES, SharedArrays
from pytest_bandwidth.domain.measured.measurement import FEWEST_ROUNDS
from pytest_bandwidth.domain.statistics import precision_of_median
from pytest_bandwidth.evidence.processes.child import Child, ChildResult
from pytest_bandwidth.evidence.processes.requests import ChildRequest, Go, ParentLine
from pytest_bandwidth.measuring.task import TurnsOf

GO, STOP = "go", "stop"
SEED_BITS = 63
# After a sample the process waits until its OpenMP threads sleep; they spin first (SHORT_SPINS of `process`). Without
# this wait, a triad on all processors lost 60 to 100 % of its rounds. If the user lets threads spin for long, or
# forever (OMP_WAIT_POLICY=active), the wait ends after this time and the other process samples.
MOST_REST_SECONDS, STEP_SECONDS = 0.02, 0.0005
# A pair has enough rounds once the standard error of their ratio's median is this share of the tolerance. More rounds
# cost time and gain little: the first look, after four pairs, passes unchanged code whose pairs spread by three tenths
# of the tolerance, and pairs of identical code spread by half a percent or more (benchmarks/in_turn.py).
PRECISION_OF_TOLERANCE = 1 / 6
FINEST_PRECISION, COARSEST_PRECISION = 0.0025, 0.01
# The scatter of fewer rounds is unknown.
FEWEST_TO_STOP = 8

# Keys of a child's line: its arrays, whether those are all of the workload's arguments, and the numbers of the arrays
# for which it carried an order out.
ARRAYS, ALL, DONE = "arrays", "all", "done"
Work = Literal["copy", "same", "exchange"]
# The array's number in each process, its size in bytes, and its offset in the shared memory.
_Place = tuple[tuple[int, int], int, int]
# The share of the free memory that copies may take. They are optional.
FREE_SHARE = 0.25

# By label: the seconds of the first and of the second process, for each round that is valid in both.
RoundsInTurn = Mapping[str | None, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class TurnsTaken:
    """Hold how both ended, their common rounds, and the labels whose arrays all lay in the same memory."""

    ended: tuple[ChildResult, ChildResult]
    rounds: RoundsInTurn
    shared: frozenset[str | None]


@dataclass(frozen=True, slots=True)
class Alternate(ChildRequest):
    """Ask a child to sample alternately with another one, round by round.

    shared_memory: the inherited descriptor of memory that both may have arrays in (see `shared_arrays`).
    """

    shared_memory: int | None = None
    retries: ClassVar[int] = 0  # an invalid measurement is not repeated: the other process goes on

    @property
    def inherited(self) -> tuple[int, ...]:
        return () if self.shared_memory is None else (self.shared_memory,)

    def begin(self, device: Device) -> TurnsOf:
        """Wait for the parent. The device loads later, in both at the same time, and only the needed parts of it."""
        line = ParentLine(self.line)
        go = line.wait_for_turn()
        # With shared memory, arrays can lie in the same pages as those of the other process.
        arrays = None if self.shared_memory is None else SharedArrays(self.shared_memory, go.seed or 0)
        shares = device.share((lambda _: None) if arrays is None else arrays.allocate, go.seed)
        return turns_of(line, go, arrays if shares else None)


def turns_of(line: ParentLine, go: Go, arrays: SharedArrays | None = None) -> TurnsOf:
    """Make this process sample when its parent asks for it, on the processor of `go`."""
    if go.other is not None:
        remember(go.other)
    return lambda label: _Turns(line, go.processor, label, arrays)


@dataclass(frozen=True, slots=True)
class _Turns:
    line: ParentLine
    processor: int | None
    label: str | None
    arrays: SharedArrays | None

    @contextmanager
    def begin(self, run: Call, touched: Sequence[Any]) -> Iterator[Turn]:
        arrays = self.arrays
        if arrays is None:
            self._answer_to({"label": self.label})
            yield self
            return
        try:
            sizes = arrays.listed(touched)
            answer = self._answer_to({"label": self.label, ARRAYS: sizes, ALL: arrays.lists_all(touched)})
            while answer.startswith("{"):
                order = Order(**json.loads(answer))
                answer = self._answer_to({"label": self.label, DONE: order.by(arrays, run)})
            yield self
        finally:
            arrays.restore()

    def taken(self, seconds: float | None, *, stops: bool) -> bool:
        counts = self.arrays is None or not self.arrays.has_forked
        message = {"label": self.label, "seconds": seconds if counts else None, "stops": stops}
        stop = self._answer_to(message) == STOP
        if stop and self.arrays is not None:
            self.arrays.restore(remove=True)  # neither of the two goes on
        return stop

    def _answer_to(self, message: Mapping[str, Any]) -> str:
        rest()
        answer = self.line.answer_to(json.dumps(message)).strip()
        if answer == GO and self.processor is not None:
            # This moves the thread to that processor, if the system allows it. Neither the thread nor its children stay
            # pinned there. Other load on a processor, or on its core, may slow it and not another one.
            allowed = os.sched_getaffinity(0)
            with suppress(OSError):
                os.sched_setaffinity(0, {self.processor})
                os.sched_setaffinity(0, allowed)
        return answer


def rest(tasks: Path = Path("/proc/self/task")) -> None:
    """Wait until no other thread of this process runs or is runnable; without /proc, a fixed time.

    tasks: the folder that has a folder for each thread.
    """
    own, ends = str(threading.get_native_id()), time.monotonic() + MOST_REST_SECONDS
    try:
        while any(_runs(tasks / thread) for thread in os.listdir(tasks) if thread != own):
            if time.monotonic() > ends:
                return
            time.sleep(STEP_SECONDS)  # BLAS threads spin after a call, and no API reports when they stop
    except OSError:
        time.sleep(MOST_REST_SECONDS)  # without /proc nothing shows whether threads still spin


def _runs(thread: Path) -> bool:
    with suppress(OSError):  # it has ended
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "R"
    return False


def processor_of(turn: int) -> int:
    """Return the processor for the pair of number `turn`: round-robin over those that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[turn % len(allowed)]


def take_turns(
    children: tuple[Child, Child],
    processor: int | None,
    timeout_seconds: float,
    memory: int | None = None,
    precision: float = FINEST_PRECISION,
) -> TurnsTaken:
    """Let both children measure, alternately where both measure the same.

    timeout_seconds: for both together. memory: the descriptor of the memory that both inherit for their arrays.
    precision: as in `Conductor`.
    """
    ends = time.monotonic() + timeout_seconds
    one, two = children
    seed = secrets.randbits(SEED_BITS)
    one.start(Go(two.pid, processor, seed))
    two.start(Go(one.pid, processor, seed))
    with one.line.makefile("rb") as from_one, two.line.makefile("rb") as from_two:
        conductor = Conductor((_Side(one, from_one, ends), _Side(two, from_two, ends)), memory, precision)
        conductor.conduct()
    first = one.result(max(0.0, ends - time.monotonic()))
    second = two.result(max(0.0, ends - time.monotonic()))
    return TurnsTaken((first, second), conductor.rounds, frozenset(conductor.shared))


def precision_for(tolerance: float) -> float:
    """Return the precision that a pair's rounds need to decide about a drop of `tolerance`; both are fractions."""
    return min(COARSEST_PRECISION, max(FINEST_PRECISION, PRECISION_OF_TOLERANCE * tolerance))


def drops(rounds: RoundsInTurn) -> dict[str | None, float]:
    """Return, by label, the median of ln(first's seconds ÷ second's) over the rounds, if there are enough rounds."""
    return {
        label: median(math.log(one / two) for one, two in taken)
        for label, taken in rounds.items()
        if len(taken) >= FEWEST_ROUNDS
    }


@dataclass(frozen=True, slots=True)
class _Side:
    """Exchange lines with one of the two processes until the time is over."""

    child: Child
    lines: BinaryIO
    ends: float

    def send(self, line: str) -> None:
        self.child.send(line)

    def hear(self) -> Mapping[str, Any] | None:
        """Return the process's next message about its rounds; None once it has ended, or the time is over."""
        with suppress(OSError):
            while (left := self.ends - time.monotonic()) > 0:
                self.child.line.settimeout(left)
                line = self.lines.readline()
                if not line.endswith(b"\n"):
                    return None
                with suppress(ValueError):  # another line, such as "ready"
                    if isinstance(message := json.loads(line), dict):
                        return message
        return None


class Conductor:
    """Decide which of two processes, 0 and 1, samples next: AB BA AB …, until their ratio is precise, or both stop.

    Before the first round the conductor sends both the places for arrays of equal contents. A process samples alone
    while the other one is at another measurement. It waits for an answer to each of its messages.

    memory: the descriptor of the memory that both have for their arrays. precision: a measurement has enough rounds
    once the standard error of the ratio's median, as a fraction, is at most this.
    """

    def __init__(self, sides: Sequence[_Side], memory: int | None = None, precision: float = FINEST_PRECISION) -> None:
        self._sides, self._memory, self._precision = sides, memory, precision
        # The last message of each; None for a process that has ended.
        self._last: list[Mapping[str, Any] | None] = [None, None]
        self.rounds: dict[str | None, list[tuple[float, float]]] = {}
        # The labels of measurements whose arrays all lie in the same memory.
        self.shared: set[str | None] = set()

    def conduct(self) -> None:
        """Let both measure until both have ended."""
        number = 0
        self._hear(0, 1)
        while any(message is not None for message in self._last):
            if (both := self._together()) is None:
                side = 1 if self._last[0] is None else 0
                self._answer({side: STOP if (self._last[side] or {}).get("stops") else GO})
            elif self._lay_out(*both):
                label = both[0].get("label")
                ratios = [one / two for one, two in self.rounds.get(label, ())]
                precise = len(ratios) >= FEWEST_TO_STOP and precision_of_median(ratios) <= self._precision
                if precise or all(message.get("stops") for message in both):
                    self._answer({0: STOP, 1: STOP})
                else:
                    self._take_round(label, (0, 1) if number % 2 == 0 else (1, 0))
                    number += 1

    def _together(self) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """Return the last message of both, if both are at the same measurement; else None."""
        one, two = self._last
        if one is None or two is None or one.get("label") != two.get("label"):
            return None
        return one, two

    def _lay_out(self, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
        """Order both to lay out the arrays that they reported, if any; return whether they may sample.

        Each process copies every other array, the largest first: no other work takes as long. The arrays that both can
        exchange lie in the same memory afterwards.
        """
        if self._memory is None or ARRAYS not in one or ARRAYS not in two:
            return True
        left = places_for(self._memory, one[ARRAYS], two[ARRAYS])
        if not left:
            return True
        halves = left[::2], left[1::2]
        if (done := self._ordered("copy", *halves)) is None:
            return False
        left = [place for side, half in enumerate(halves) for place in half if place[0][side] in done[side]]
        works: tuple[Work, Work] = ("same", "exchange")
        for work in works:
            if left and (done := self._ordered(work, left, left)) is None:
                return False
            left = [place for place in left if all(place[0][side] in done[side] for side in (0, 1))]
        # If one cannot exchange an array, the other must not.
        if not left and self._ordered("exchange", [], []) is None:
            return False
        if len(left) == len(one[ARRAYS]) == len(two[ARRAYS]) and one.get(ALL) and two.get(ALL):
            self.shared.add(one.get("label"))
        return True

    def _ordered(self, work: Work, *places: Sequence[_Place]) -> tuple[Sequence[int], Sequence[int]] | None:
        """Send both an order; return the numbers of the arrays that each did it with, or None if one broke it off."""
        for side, of_side in enumerate(places):
            order = Order(work, [(numbers[side], at) for numbers, _, at in of_side])
            self._sides[side].send(json.dumps(asdict(order)))
        self._hear(0, 1)
        now = self._together()
        if now is None or any(ARRAYS in message for message in now):  # one ended, or began a measurement
            return None
        return now[0].get(DONE, ()), now[1].get(DONE, ())

    def _take_round(self, label: str | None, order: tuple[int, int]) -> None:
        taken: dict[int, float | None] = {}
        for side in order:
            self._answer({side: GO})
            if (message := self._last[side]) is None:
                return
            taken[side] = message.get("seconds")
        if (one := taken[0]) and (two := taken[1]):
            self.rounds.setdefault(label, []).append((one, two))

    def _answer(self, answers: Mapping[int, str]) -> None:
        """Send answers to sides, and read their next messages."""
        for side, answer in answers.items():
            self._sides[side].send(answer)
        self._hear(*answers)

    def _hear(self, *sides: int) -> None:
        for side in sides:
            message = self._last[side] = self._sides[side].hear()
            if message is not None and ARRAYS in message:  # new arrays: those before do not matter any more
                self.shared.discard(message.get("label"))


@dataclass(frozen=True, slots=True)
class Order:
    """Hold an order for a process: the work, and the number and the offset in the memory of each array for it."""

    work: Work
    places: Sequence[tuple[int, int]]

    def by(self, arrays: SharedArrays, run: Call) -> list[int]:
        """Carry the order out; return the numbers of the arrays for which that worked. run: runs the workload once."""
        if self.work == "copy":
            return arrays.copy(self.places)
        if self.work == "same":
            return arrays.same(self.places, run)
        return arrays.exchange(number for number, _ in self.places)


def places_for(memory: int, one: Sequence[Sequence[int]], two: Sequence[Sequence[int]]) -> list[_Place]:
    """Return places in the memory for arrays that both processes have, the largest first; none where memory is short.

    one, two: the arrays of each process: size in bytes, offset in the first page, and size of the pages.
    """
    places: list[_Place] = []
    # The places of an earlier measurement's arrays are not used again: forked processes may still have them.
    end = os.fstat(memory).st_size
    left = list(enumerate(two))
    for first, array in enumerate(one):
        # Arrays of the same size share a place: the first with the other's first of that size, and so on.
        at = next((place for place, (_, other) in enumerate(left) if list(other) == list(array)), None)
        if at is not None:
            places.append(((first, left.pop(at)[0]), array[-1], end))
            end += -(-array[-1] // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    free = available_bytes()
    if free is not None and sum(length for _, length, _ in places) > FREE_SHARE * free:
        return []
    try:
        os.ftruncate(memory, end)
    except OSError:  # a limit of files' sizes
        return []
    return sorted(places, key=lambda place: -place[1])
