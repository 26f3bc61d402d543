"""Let two fresh processes sample the same measurement in turn, round by round, so that both see the same machine.

What a shared machine does changes within seconds: processes that follow each other differ by that. A child says a line
before its first round and after each one, and waits until it is told to go on or to stop; the parent conducts. Before
the first round it may be told what to do about its arrays (see `orders`).
"""

from __future__ import annotations

import json
import math
import os
import secrets
import threading
import time
from collections.abc import Generator, Iterator, Mapping, Sequence
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
# this wait, a triad on all processors lost 60 to 100 % of its rounds. If the user lets threads spin for long, or for
# ever (OMP_WAIT_POLICY=active), the wait ends here and the other process samples.
MOST_REST_SECONDS, STEP_SECONDS = 0.02, 0.0005
# A pair has enough rounds once the standard error of their ratio's median is this share of the tolerance. Finer rounds
# cost time and gain little: the first look, after four pairs, passes unchanged code whose pairs spread by three tenths
# of the tolerance, and pairs of identical code spread by half a percent or more (benchmarks/in_turn.py).
PRECISION_OF_TOLERANCE = 1 / 6
FINEST_PRECISION, COARSEST_PRECISION = 0.0025, 0.01
# Fewer rounds do not tell how they scatter.
FEWEST_TO_STOP = 8

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

# By label, of each round that counts in both processes: the seconds that the first and the second one took.
RoundsInTurn = Mapping[str | None, Sequence[tuple[float, float]]]


@dataclass(frozen=True, slots=True)
class TurnsTaken:
    """Hold how both ended, their common rounds, and the labels of which all arrays lay in the same memory."""

    ended: tuple[ChildResult, ChildResult]
    rounds: RoundsInTurn
    shared: frozenset[str | None]


@dataclass(frozen=True, slots=True)
class Alternate(ChildRequest):
    """Ask a child to sample round by round in turn with another one.

    shared_memory: the descriptor, which it inherits, of memory that both may have arrays in (see `shared_arrays`).
    """

    shared_memory: int | None = None
    retries: ClassVar[int] = 0  # an invalid measurement is not taken again: the other process goes on

    @property
    def inherited(self) -> tuple[int, ...]:
        return () if self.shared_memory is None else (self.shared_memory,)

    def begin(self, device: Device) -> TurnsOf:
        """Wait for the parent. The device loads later, at the same time in both, and only what the test needs."""
        line = ParentLine(self.line)
        go = line.wait_for_turn()
        # Arrays can lie where those of the other process lie, if that was asked for.
        arrays = None if self.shared_memory is None else SharedArrays(self.shared_memory, go.seed or 0)
        shares = device.share((lambda _: None) if arrays is None else arrays.allocate, go.seed)
        return turns_of(line, go, arrays if shares else None)


def turns_of(line: ParentLine, go: Go, arrays: SharedArrays | None = None) -> TurnsOf:
    """Have this process sample when its parent says so, on the processor that `go` names."""
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
            self._say({"label": self.label})
            yield self
            return
        try:
            told = arrays.told(touched)
            answer = self._say({"label": self.label, ARRAYS: told, ALL: arrays.tells_all(touched)})
            while answer.startswith("{"):
                order = Order(**json.loads(answer))
                answer = self._say({"label": self.label, DONE: order.by(arrays, run)})
            yield self
        finally:
            arrays.restore()

    def taken(self, seconds: float | None, *, stops: bool) -> bool:
        counts = self.arrays is None or not self.arrays.has_forked
        said = {"label": self.label, "seconds": seconds if counts else None, "stops": stops}
        stop = self._say(said) == STOP
        if stop and self.arrays is not None:
            self.arrays.restore(remove=True)  # neither of the two goes on
        return stop

    def _say(self, said: Mapping[str, Any]) -> str:
        rest()
        answer = self.line.answer_to(json.dumps(said)).strip()
        if answer == GO and self.processor is not None:
            # This thread goes on there, where the system lets it; neither it nor threads that it starts are held there.
            # Neighbours, and another thread of the same core, slow one processor and not the other.
            allowed = os.sched_getaffinity(0)
            with suppress(OSError):
                os.sched_setaffinity(0, {self.processor})
                os.sched_setaffinity(0, allowed)
        return answer


def rest(tasks: Path = Path("/proc/self/task")) -> None:
    """Wait until no other thread of this process runs, or is ready to; without /proc, a while.

    tasks: has a folder for each thread.
    """
    own, ends = str(threading.get_native_id()), time.monotonic() + MOST_REST_SECONDS
    try:
        while any(_runs(tasks / thread) for thread in os.listdir(tasks) if thread != own):
            if time.monotonic() > ends:
                return
            time.sleep(STEP_SECONDS)  # BLAS threads spin after a call, and no API says when they stop
    except OSError:
        time.sleep(MOST_REST_SECONDS)  # without /proc nothing shows whether threads still spin


def _runs(thread: Path) -> bool:
    with suppress(OSError):  # it has ended
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "R"
    return False


def processor_of(turn: int) -> int:
    """Return the processor for so many a pair of processes: each in turn, of those that this process may use."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[turn % len(allowed)]


def take_turns(
    children: tuple[Child, Child],
    processor: int | None,
    timeout_seconds: float,
    memory: int | None = None,
    precision: float = FINEST_PRECISION,
) -> TurnsTaken:
    """Let both children measure, in turn where both measure the same.

    timeout_seconds: for both together. memory: the descriptor of what both inherit for their arrays. precision: as in
    `Conductor`.
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
    """Return how precise the rounds of a pair have to be to decide about a drop of `tolerance`, both as fractions."""
    return min(COARSEST_PRECISION, max(FINEST_PRECISION, PRECISION_OF_TOLERANCE * tolerance))


def drops(rounds: RoundsInTurn) -> dict[str | None, float]:
    """Return by label the median over the rounds of ln(the first's seconds ÷ the second's), where there are enough."""
    return {
        label: median(math.log(one / two) for one, two in taken)
        for label, taken in rounds.items()
        if len(taken) >= FEWEST_ROUNDS
    }


@dataclass(frozen=True, slots=True)
class _Side:
    """Talk with one of the two processes until the time is over."""

    child: Child
    lines: BinaryIO
    ends: float

    def tell(self, line: str) -> None:
        self.child.tell(line)

    def hear(self) -> Mapping[str, Any] | None:
        """Return what it says next of its rounds; None once it has ended, or the time is over."""
        with suppress(OSError):
            while (left := self.ends - time.monotonic()) > 0:
                self.child.line.settimeout(left)
                line = self.lines.readline()
                if not line.endswith(b"\n"):
                    return None
                with suppress(ValueError):  # another line, such as that it is ready
                    if isinstance(said := json.loads(line), dict):
                        return said
        return None


class Conductor:
    """Decide which of two processes, 0 and 1, samples next: AB BA AB …, until their ratio is precise, or both stop.

    Before the first round both are told where arrays that are equal lie. A process whose measurement the other one does
    not take at the same time goes alone. It waits for its answer after each thing that it says.

    memory: the descriptor of what both have for their arrays. precision: the standard error of the ratio's median, as
    a fraction, with which a measurement has enough rounds.
    """

    def __init__(self, sides: Sequence[_Side], memory: int | None = None, precision: float = FINEST_PRECISION) -> None:
        self._sides, self._memory, self._precision = sides, memory, precision
        # What each said last; None of one that has ended.
        self._said: list[Mapping[str, Any] | None] = [None, None]
        self.rounds: dict[str | None, list[tuple[float, float]]] = {}
        # The labels of measurements of which all arrays lie in the same memory.
        self.shared: set[str | None] = set()

    def conduct(self) -> None:
        """Let both measure until both have ended."""
        number = 0
        self._hear(0, 1)
        while any(said is not None for said in self._said):
            if (both := self._together()) is None:
                side = 1 if self._said[0] is None else 0
                self._answer({side: STOP if (self._said[side] or {}).get("stops") else GO})
            elif self._lay_out(*both):
                label = both[0].get("label")
                ratios = [one / two for one, two in self.rounds.get(label, ())]
                precise = len(ratios) >= FEWEST_TO_STOP and precision_of_median(ratios) <= self._precision
                if precise or all(said.get("stops") for said in both):
                    self._answer({0: STOP, 1: STOP})
                else:
                    self._take_round(label, (0, 1) if number % 2 == 0 else (1, 0))
                    number += 1

    def _together(self) -> tuple[Mapping[str, Any], Mapping[str, Any]] | None:
        """Return what both said, where both are at the same measurement."""
        one, two = self._said
        if one is None or two is None or one.get("label") != two.get("label"):
            return None
        return one, two

    def _lay_out(self, one: Mapping[str, Any], two: Mapping[str, Any]) -> bool:
        """Have both lay their arrays out, once they have told them; return whether they may sample."""
        if self._memory is None or ARRAYS not in one or ARRAYS not in two:
            return True
        steps, done = orders(self._memory, one[ARRAYS], two[ARRAYS]), None
        while True:
            try:
                both = steps.send(done)
            except StopIteration as end:
                if end.value and one.get(ALL) and two.get(ALL):
                    self.shared.add(one.get("label"))
                return True
            self._answer({side: json.dumps(asdict(order)) for side, order in enumerate(both)})
            now = self._together()
            if now is None or any(ARRAYS in said for said in now):  # one broke off
                return False
            done = now[0].get(DONE, ()), now[1].get(DONE, ())

    def _take_round(self, label: str | None, order: tuple[int, int]) -> None:
        taken: dict[int, float | None] = {}
        for side in order:
            self._answer({side: GO})
            if (said := self._said[side]) is None:
                return
            taken[side] = said.get("seconds")
        if (one := taken[0]) and (two := taken[1]):
            self.rounds.setdefault(label, []).append((one, two))

    def _answer(self, answers: Mapping[int, str]) -> None:
        """Tell sides what to do, and hear what they say next."""
        for side, answer in answers.items():
            self._sides[side].tell(answer)
        self._hear(*answers)

    def _hear(self, *sides: int) -> None:
        for side in sides:
            said = self._said[side] = self._sides[side].hear()
            if said is not None and ARRAYS in said:  # whatever came of those before
                self.shared.discard(said.get("label"))


@dataclass(frozen=True, slots=True)
class Order:
    """Say what a process is to do with which of its arrays, each by its number and its offset in the memory."""

    work: Work
    places: Sequence[tuple[int, int]]

    def by(self, arrays: SharedArrays, run: Call) -> list[int]:
        """Carry it out; return the numbers of the arrays that it was done with. run: the workload, once."""
        if self.work == "copy":
            return arrays.copy(self.places)
        if self.work == "same":
            return arrays.same(self.places, run)
        return arrays.exchange(number for number, _ in self.places)


def orders(memory: int, one: Sequence[Sequence[int]], two: Sequence[Sequence[int]]) -> Orders:
    """Give orders, one after the other; return whether all arrays of both had their pages exchanged.

    one, two: the arrays of both, each as `SharedArrays.told` has it.
    """
    places: list[_Place] = []
    # Nothing lies where an earlier measurement's arrays did: processes that the test has forked may have them still.
    end = os.fstat(memory).st_size
    left = list(enumerate(two))
    for first, array in enumerate(one):
        # Those of one size in both lie together: the first with the first of that size, and so on.
        at = next((place for place, (_, other) in enumerate(left) if list(other) == list(array)), None)
        if at is not None:
            places.append(((first, left.pop(at)[0]), array[-1], end))
            end += -(-array[-1] // HUGE_PAGE_BYTES) * HUGE_PAGE_BYTES
    if not places:
        return False
    free = available_bytes()
    if free is not None and sum(length for _, length, _ in places) > FREE_SHARE * free:
        return False
    try:
        os.ftruncate(memory, end)
    except OSError:  # a limit of files' sizes
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


def _order(work: Work, places: Sequence[_Place], side: int) -> Order:
    return Order(work, [(numbers[side], at) for numbers, _, at in places])
