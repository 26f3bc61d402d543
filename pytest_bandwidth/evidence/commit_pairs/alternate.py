"""Let two fresh processes sample the same measurement in turn, round by round, so that both see the same machine.

What a shared machine does changes within seconds: processes that follow each other differ by that. A child says a line
before its first round and after each one, and waits until it is told to go on or to stop; the parent conducts. Before
the first round it may be told what to do about its arrays (see `sharing`).
"""

from __future__ import annotations

import json
import math
import os
import secrets
import selectors
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, ClassVar

from pytest_bandwidth.devices.base import Call, Device, Turn
from pytest_bandwidth.devices.host import remember
from pytest_bandwidth.devices.shared_arrays import SharedArrays
from pytest_bandwidth.domain.measured.rounds import FEWEST_ROUNDS
from pytest_bandwidth.domain.statistics import precision_of_median
from pytest_bandwidth.evidence.commit_pairs.page_exchange import ALL, ARRAYS, DONE, Both, Orders, order_of, orders
from pytest_bandwidth.evidence.processes.child import Child, ChildResult
from pytest_bandwidth.evidence.processes.requests import ChildRequest, Go, ParentLine
from pytest_bandwidth.measuring.task import TurnsOf

GO, STOP = "go", "stop"
SEED_BITS = 63
_CHUNK_BYTES = 1 << 16
# OpenMP's threads of the process that has sampled spin for some milliseconds before they sleep. Where that was not
# waited for, a triad on all processors lost 60 to 100 % of its rounds to them. Where they spin for long (LLVM's OpenMP:
# 200 ms) or for ever (OMP_WAIT_POLICY=active), the other process goes on all the same.
MOST_REST_SECONDS, STEP_SECONDS = 0.02, 0.0005
# A pair has enough rounds once the standard error of their ratio's median is this share of the tolerance. Finer rounds
# cost time and gain little: the first look, after four pairs, passes unchanged code whose pairs spread by three tenths
# of the tolerance, and pairs of identical code spread by half a percent or more (benchmarks/in_turn.py).
PRECISION_OF_TOLERANCE = 1 / 6
FINEST_PRECISION, COARSEST_PRECISION = 0.0025, 0.01
# Fewer rounds do not tell how they scatter.
FEWEST_TO_STOP = 8

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
        return turns_of(line, go, self._arrays(device, go.seed))

    def _arrays(self, device: Device, seed: int | None) -> SharedArrays | None:
        """Have the device make arrays that can lie where those of the other process lie, if that was asked for."""
        arrays = None if self.shared_memory is None else SharedArrays(self.shared_memory, seed or 0)
        shares = device.share((lambda _: None) if arrays is None else arrays.allocate, seed)
        return arrays if shares else None


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
            while (order := order_of(answer)) is not None:
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
            _move_to(self.processor)
        return answer


def rest(tasks: Path = Path("/proc/self/task")) -> None:
    """Wait until no other thread of this process runs, or is ready to; where the system does not tell, a while.

    tasks: has a folder for each thread.
    """
    own, ends = str(threading.get_native_id()), time.monotonic() + MOST_REST_SECONDS
    try:
        while any(_runs(tasks / thread) for thread in os.listdir(tasks) if thread != own):
            if time.monotonic() > ends:
                return
            time.sleep(STEP_SECONDS)  # nobody tells when another library's thread has spun for long enough
    except OSError:  # another system than Linux
        time.sleep(MOST_REST_SECONDS)  # nothing tells there which threads run


def _runs(thread: Path) -> bool:
    with suppress(OSError):  # it has ended
        return (thread / "stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "R"
    return False


def _move_to(processor: int) -> None:
    """Have this thread go on there, where the system lets it; neither it nor threads that it starts are held there.

    Neighbours, and another thread of the same core, slow one processor and not the other.
    """
    if not hasattr(os, "sched_setaffinity"):
        return
    allowed = os.sched_getaffinity(0)
    with suppress(OSError):
        os.sched_setaffinity(0, {processor})
        os.sched_setaffinity(0, allowed)


def processor_of(turn: int) -> int | None:
    """Return the processor for so many a pair of processes: each in turn, of those that this process may use."""
    if not hasattr(os, "sched_getaffinity"):
        return None
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
    conductor = Conductor(memory, precision)
    with selectors.DefaultSelector() as selector:
        pending = {0: b"", 1: b""}
        for side, child in enumerate(children):
            selector.register(child.line, selectors.EVENT_READ, side)
        while selector.get_map() and (left := ends - time.monotonic()) > 0:
            for key, _ in selector.select(left):
                side = key.data
                chunk = _received(children[side])
                if not chunk:
                    selector.unregister(children[side].line)
                    answers = conductor.ended(side)
                else:
                    *lines, pending[side] = (pending[side] + chunk).split(b"\n")
                    answers = [answer for line in lines for answer in conductor.heard(side, _said(line))]
                for asked, answer in answers:
                    children[asked].tell(answer)
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


class Conductor:
    """Decide which of two processes, 0 and 1, samples next: AB BA AB …, until their ratio is precise, or both stop.

    Before the first round both are told where arrays that are equal lie. A process whose measurement the other one does
    not take at the same time goes alone.

    memory: the descriptor of what both have for their arrays. precision: the standard error of the ratio's median, as
    a fraction, with which a measurement has enough rounds.
    """

    def __init__(self, memory: int | None = None, precision: float = FINEST_PRECISION) -> None:
        self._memory, self._precision = memory, precision
        self._orders: Orders | None = None
        self.rounds: dict[str | None, list[tuple[float, float]]] = {}
        # The labels of measurements of which all arrays lie in the same memory.
        self.shared: set[str | None] = set()
        self._waiting: dict[int, Mapping[str, Any]] = {}
        self._gone: set[int] = set()
        # Whether an order was given, of those that there are, and whether they are about all arrays.
        self._asked = self._all_told = False
        self._sampling: int | None = None
        # Who is still to go in this round, and what those took who went.
        self._to_go: list[int] = []
        self._taken: dict[int, float | None] = {}
        self._number = 0

    def heard(self, side: int, said: Mapping[str, Any] | None) -> list[tuple[int, str]]:
        """Return whom to answer what, after a line of a side; None: a line of another kind."""
        if said is None:
            return []
        self._waiting[side] = said
        if ARRAYS in said:  # whatever came of those before
            self._orders = None
            self.shared.discard(said.get("label"))
        if self._sampling == side:
            self._sampling = None
        if side in self._taken:
            self._taken[side] = said.get("seconds")
        return self._answers()

    def ended(self, side: int) -> list[tuple[int, str]]:
        """Return the same after the end of a side."""
        self._gone.add(side)
        self._orders = None
        self._waiting.pop(side, None)
        if self._sampling == side:
            self._sampling = None
        self._to_go, self._taken = [], {}
        return self._answers()

    def _answers(self) -> list[tuple[int, str]]:
        if self._sampling is not None:
            return []
        if self._to_go:
            return self._go(self._to_go.pop(0))
        self._note_round()
        if len(self._waiting) == 2:
            one, two = self._waiting[0], self._waiting[1]
            if one.get("label") != two.get("label"):
                self._orders = None
                return self._alone(0)
            if (both := self._next_orders(one, two)) is not None:
                self._waiting.clear()
                return [(side, order.text()) for side, order in enumerate(both)]
            if (one.get("stops") and two.get("stops")) or self._is_precise(one.get("label")):
                self._waiting.clear()
                return [(0, STOP), (1, STOP)]
            self._to_go = [1] if self._number % 2 == 0 else [0]
            self._taken = {0: None, 1: None}
            self._number += 1
            return self._go(1 - self._to_go[0])
        if self._waiting and self._gone:
            return self._alone(next(iter(self._waiting)))
        return []  # the other one is on its way

    def _next_orders(self, one: Mapping[str, Any], two: Mapping[str, Any]) -> Both | None:
        """Return what both are to do about their arrays, once they have told them; None once that is done."""
        if self._orders is None:
            if self._memory is None or ARRAYS not in one or ARRAYS not in two:
                return None
            self._orders, self._asked = orders(self._memory, one[ARRAYS], two[ARRAYS]), False
            self._all_told = bool(one.get(ALL) and two.get(ALL))
        done = (one.get(DONE, ()), two.get(DONE, ())) if self._asked else None
        self._asked = True
        try:
            return self._orders.send(done)
        except StopIteration as end:
            self._orders = None
            if end.value and self._all_told:
                self.shared.add(one.get("label"))
            return None

    def _is_precise(self, label: str | None) -> bool:
        ratios = [one / two for one, two in self.rounds.get(label, ())]
        return len(ratios) >= FEWEST_TO_STOP and precision_of_median(ratios) <= self._precision

    def _note_round(self) -> None:
        one, two = self._taken.get(0), self._taken.get(1)
        if one and two:
            self.rounds.setdefault(self._waiting[0].get("label"), []).append((one, two))
        self._taken = {}

    def _go(self, side: int) -> list[tuple[int, str]]:
        del self._waiting[side]
        self._sampling = side
        return [(side, GO)]

    def _alone(self, side: int) -> list[tuple[int, str]]:
        if self._waiting[side].get("stops"):
            del self._waiting[side]
            return [(side, STOP)]
        return self._go(side)


def _received(child: Child) -> bytes:
    try:
        child.line.settimeout(None)
        return child.line.recv(_CHUNK_BYTES)
    except OSError:
        return b""


def _said(line: bytes) -> Mapping[str, Any] | None:
    """Return what a child says of its rounds; None for another line, such as that it is ready."""
    try:
        said = json.loads(line)
    except ValueError:
        return None
    return said if isinstance(said, dict) else None
