"""Run a decoded kernel for one batch of blocks, all their threads at once.

Threads at the same basic block form a group. The group of the smallest rank runs to the end of its block and joins the
group that waits at the next one. So diverged threads reconverge, and each warp executes the same instructions as if it
ran alone. Barriers hold groups back until whole blocks have arrived. A group that polls memory in a loop lets others
run first, and the lanes of its warp wait for it where they synchronise.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterable
from dataclasses import InitVar, dataclass
from functools import reduce
from typing import NoReturn

import numpy as np

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.interpreter import clock
from pytest_bandwidth.features.traffic.ptx import program
from pytest_bandwidth.features.traffic.ptx.counts import TrafficCounter
from pytest_bandwidth.features.traffic.ptx.faults import FaultLog, InitialisationChecker
from pytest_bandwidth.features.traffic.ptx.lanes import (
    SPECIALS,
    WARP,
    Array,
    Geometry,
    Mask,
    exchange,
    spread,
    warps_with,
)
from pytest_bandwidth.features.traffic.ptx.loops import lacking_of
from pytest_bandwidth.features.traffic.ptx.memory_unit import MemoryUnit
from pytest_bandwidth.features.traffic.ptx.participation import Participation
from pytest_bandwidth.features.traffic.ptx.races import HappensBefore

# A step counts at least so many threads against the limit, since a step of few threads takes as long. So a kernel whose
# blocks wait for each other forever is stopped in minutes, not in days.
LEAST_THREADS = 500
# A polling loop that counts its iterations changes registers forever. After so many iterations it lets others run.
PATIENCE = 64
# The time of an instruction by the clocks that a kernel can read, in cycles and in nanoseconds.
CLOCKS_PER_INSTRUCTION = 32
BARRIERS = 16  # the numbered barriers of a block (PTX ISA, bar)


class Registers:
    """Hold a batch's registers: one array each, of the smallest shape that holds its values.

    They are never changed in place, so a copy is the same array, and batches share constants.
    """

    def __init__(self, kernel: program.Kernel, geometry: Geometry, arguments: dict[int, Array]) -> None:
        self._values: list[Array | None] = [None] * kernel.register_count
        for index, array in (*kernel.constants.items(), *arguments.items()):
            self._values[index] = array
        for index, name in kernel.specials.items():
            self._values[index] = np.atleast_2d(SPECIALS[name](geometry)).astype(np.uint32)
        self._kept = 0

    def keep(self, live: Iterable[int]) -> None:
        """Set the registers (bit sets) that lanes outside the running group may still read: writes keep those."""
        self._kept = reduce(operator.or_, live, 0)

    def held(self, register: int) -> Array | None:
        """Return a register's value in its last type; None where it was never written."""
        return self._values[register]

    def read(self, source: program.Read) -> Array:
        value = self._values[source.register]
        if value is None:  # compilers read unwritten registers only for unused values
            value = np.zeros((1, 1), source.dtype)
        elif source.narrow:
            value = value.view(f"u{value.dtype.itemsize}").astype(f"u{source.dtype.itemsize}")
        if value.dtype is not source.dtype:
            value = value.view(source.dtype)
        return ~value if source.negated else value

    def write(self, target: program.Write | None, value: Array, lanes: Array, guarded: bool) -> None:
        """Set the value for `lanes`; others keep theirs if it may still be read, or if the write is `guarded`."""
        if target is None:
            return
        if target.widen is not None:
            value = value.astype(target.widen)
        register = target.register
        if guarded or (self._kept >> register) & 1:
            old = self._values[register]
            if old is not None:
                value = np.where(lanes, value, old.view(value.dtype))
        self._values[register] = value

    def guarded(self, guard: program.Read | None, lanes: Array) -> Array:
        """Return the lanes for which the guard holds."""
        return lanes if guard is None else lanes & self.read(guard)


class Tally:
    """Count the instructions that threads and warps execute, over all batches, and stop at a limit.

    limit: thread-instructions. seconds: wall-clock time from now on. Past either, UsageError names the current line.
    printed: the sites where a thread called printf().
    """

    def __init__(self, kernel: program.Kernel, limit: int, seconds: float = math.inf) -> None:
        self.threads = 0
        self.warps = 0
        self.printed: set[int] = set()
        self._executed = 0
        self._spent = 0
        self._kernel = kernel
        self._limit = limit
        self._seconds = seconds
        self._end = clock.monotonic() + seconds

    def add(self, block: program.BasicBlock, mask: Mask) -> None:
        steps = len(block.steps) + (block.end is not None)
        self.threads += steps * mask.threads
        self.warps += steps * mask.warps
        self._executed += steps
        self._spent += steps * max(mask.threads, LEAST_THREADS)
        if self._spent > self._limit:
            self._stop(block, f"executed more than {self._limit:.3g} thread-instructions", "or")
        if clock.monotonic() > self._end:
            self._stop(block, f"run for {self._seconds:g} s", "raise --bandwidth-traffic-timeout if it does end, or")

    def clock(self) -> int:
        """Return the time by the instructions that all groups have executed so far. No two reads are equal."""
        self._executed += 1
        return self._executed * CLOCKS_PER_INSTRUCTION

    def _stop(self, block: program.BasicBlock, found: str, remedy: str) -> NoReturn:
        sites = [self._kernel.sites[step.site] for step in block.all_steps]
        at = next((f", now at {site.file}:{site.line}" for site in sites if site.line), "")
        raise UsageError(
            f"kernel {self._kernel.name} has {found} on this device{at}; "
            f"use a smaller size there, {remedy} run a sample of its blocks (blocks=16 in the marker)"
        )


class NamedBarriers:
    """Count arrivals at one batch's barriers with a number and a count of threads (bar.sync 1, 128).

    As on a GPU, a whole warp arrives, even if only some of its lanes take part.
    waiting: whether a lane waits, bool of shape (rows, lanes).
    """

    def __init__(self, geometry: Geometry) -> None:
        self._shape = (geometry.rows, geometry.lanes)
        self._arrived = np.zeros((geometry.rows, BARRIERS), np.int64)
        self._needed = np.zeros((geometry.rows, BARRIERS), np.int64)
        self._awaited = np.zeros(self._shape, np.int64)
        self.waiting: Array = np.zeros(self._shape, np.bool_)

    def arrive(self, number: Array, count: Array, lanes: Array) -> None:
        """Add the lanes' warps to the arrivals at barrier `number`, which is complete with `count` threads."""
        barrier, needed, active = (
            spread(one, self._shape).reshape(self._shape[0], -1, WARP) for one in (number, count, lanes)
        )
        row, warp = np.nonzero(active.any(axis=2))
        first = active.argmax(axis=2)[row, warp]
        barriers = barrier[row, warp, first] % BARRIERS
        np.add.at(self._arrived, (row, barriers), WARP)
        self._needed[row, barriers] = needed[row, warp, first]

    def wait(self, number: Array, count: Array, lanes: Array) -> None:
        """Let the lanes arrive, and wait until the barrier is complete."""
        self.arrive(number, count, lanes)
        self._awaited = np.where(lanes, number % BARRIERS, self._awaited)
        self.waiting = self.waiting | lanes

    def complete(self) -> Array:
        """Return the lanes that wait at complete barriers, and reset those barriers."""
        full = (self._arrived >= self._needed) & (self._needed > 0)
        lanes = self.waiting & np.take_along_axis(full, self._awaited, axis=1)
        self._arrived -= np.where(full, self._needed, 0)
        self.waiting = self.waiting & ~lanes
        return lanes

    def give_up(self, row: int, lane: int) -> str:
        """Return a message on the barrier that a lane waits for, and release all lanes."""
        barrier = self._awaited[row, lane]
        arrived, needed = self._arrived[row, barrier], self._needed[row, barrier]
        self._arrived[:], self.waiting = 0, np.zeros_like(self.waiting)
        return f"waits at barrier {barrier} for {needed} threads, but {arrived} arrive"


def _alike(before: dict[int, Mask] | None, now: dict[int, Mask]) -> bool:
    """Return whether the same lanes are at the same basic blocks."""
    if before is None or before.keys() != now.keys():
        return False
    return all(np.array_equal(before[number].lanes, mask.lanes) for number, mask in now.items())


@dataclass(eq=False)
class BatchInterpreter:
    """Run one batch: its registers, its groups, its barriers. arguments: the registers of parameters."""

    kernel: program.Kernel
    geometry: Geometry
    memory: MemoryUnit
    order: HappensBefore
    initialisation: InitialisationChecker
    traffic: TrafficCounter
    faults: FaultLog
    tally: Tally
    arguments: InitVar[dict[int, Array]]

    def __post_init__(self, arguments: dict[int, Array]) -> None:
        self._shape = (self.geometry.rows, self.geometry.lanes)
        self._warps = (self.geometry.rows, self.geometry.lanes // WARP)
        self._registers = Registers(self.kernel, self.geometry, arguments)
        self._participation = Participation(self.faults, self.geometry, self.kernel)
        self._ready: dict[int, Mask] = {}
        self._waiting: dict[int, Mask] = {}
        self._named = NamedBarriers(self.geometry)
        # Groups that repeat a loop that reads memory, without any change since their last iteration.
        self._polling: dict[int, Mask] = {}
        self._arrived: dict[int, tuple[Array, list[Array | None], int]] = {}
        self._counted = False
        # Lanes that wait, before a barrier or an exchange of their warp, for a polling lane of it. If nothing else can
        # run, they go on without that lane: their mask may not name it.
        self._held: dict[int, Mask] = {}
        self._holds = True
        self._polled, self.memory.watches = False, any(block.polls for block in self.kernel.blocks)

    def run(self) -> None:
        self._ready = {0: Mask(self.geometry.present, self.geometry)}
        blocks = self.kernel.blocks
        before: dict[int, Mask] | None = None
        with np.errstate(all="ignore"):
            while self._ready or self._waiting or self._polling or self._held:
                if self._ready:
                    number = min(self._ready, key=lambda n: blocks[n].rank)
                    mask = self._ready.pop(number)
                    if self._polling and self._holds and blocks[number].meets and self._hold(number, mask):
                        continue
                    groups = (*self._ready, *self._polling, *self._held)
                    elsewhere = (*groups, *(self._after(n) for n in self._waiting))
                    self._registers.keep(blocks[other].live for other in elsewhere)
                    self._run_block(blocks[number], number, mask)
                elif self._polling and (self._counted or self.memory.progressed or not _alike(before, self._polling)):
                    self._counted, self.memory.progressed, self._holds = False, False, True
                    before, self._ready, self._polling = dict(self._polling), self._polling, {}
                    self._release()
                elif self._pass_barriers():
                    before = None
                elif self._held:
                    self._holds = False
                    self._release()
                else:
                    self._refuse_to_wait()

    def _hold(self, number: int, mask: Mask) -> bool:
        """Hold back lanes whose warp has a polling lane. Return whether there are any; other lanes stay ready."""
        polling = np.any([spread(warps_with(one.lanes), self._warps) for one in self._polling.values()], axis=0)
        late = spread(mask.lanes, self._shape) & np.repeat(polling, WARP, axis=1)
        if not late.any():
            return False
        self._part(number, mask, late, self._held, self._ready)
        return True

    def _part(self, number: int, mask: Mask, chosen: Array, groups: dict[int, Mask], others: dict[int, Mask]) -> None:
        """Add the chosen lanes of a group to `groups`, and its other lanes to `others`."""
        for lanes, of in ((mask.lanes & chosen, groups), (mask.lanes & ~chosen, others)):
            if lanes.any():
                self._join(of, number, Mask(lanes, self.geometry))

    def _release(self) -> None:
        held, self._held = self._held, {}
        for number, mask in held.items():
            self._join(self._ready, number, mask)

    def _refuse_to_wait(self) -> NoReturn:
        """Raise UsageError: all remaining threads wait for values that none of them stores, perhaps after a fault."""
        before = "".join(f"; before that, {fault.text}" for fault in self.faults.faults[:1])
        block = self.kernel.blocks[min(self._polling)]
        site = self.kernel.sites[block.all_steps[0].site]
        at = f" at {site.file}:{site.line}" if site.line else ""
        words = {} if self.memory.barriers is None else self.memory.barriers.lacking
        for step in block.steps:
            if (word := words.get(step.site)) is not None:
                place, (arrivals, nbytes) = self.kernel.sites[step.site].place, lacking_of(word)
                raise UsageError(
                    f"kernel {self.kernel.name} waits forever at {place}: the phase of its mbarrier lacks {arrivals} "
                    f"arrivals and {nbytes} bytes, and no running thread brings them; compare them with "
                    f"init and expect_tx{before}"
                )
        raise UsageError(
            f"kernel {self.kernel.name} waits forever{at}: no running thread stores the value that it polls; this "
            f"device runs a large grid in parts, so a block cannot wait for one of a later part{before}"
        )

    def _after(self, number: int) -> int:
        following = self.kernel.blocks[number].following
        return number if following is None else following

    def _run_block(self, block: program.BasicBlock, number: int, mask: Mask) -> None:
        self.tally.add(block, mask)
        self._polled |= block.polls
        undefined = self._participation.undefined
        for step in block.steps:
            if undefined and step.guard is not None:
                self._participation.use((step.guard,), mask.lanes, step.site)
            lanes, guarded = self._registers.guarded(step.guard, mask.lanes), step.guard is not None
            if not isinstance(step, program.Compute):
                self._act(step, lanes)
                continue
            sources = [self._registers.read(source) for source in step.sources]
            result = step.function(*sources)
            if undefined:
                self._participation.compute(step, sources, lanes)
            if type(result) is not tuple:
                self._registers.write(step.targets[0], result, lanes, guarded)
                continue
            for target, part in zip(step.targets, result, strict=False):
                self._registers.write(target, part, lanes, guarded)
        self._leave(block, number, mask)

    # Steps

    def _act(self, step: program.Step, lanes: Array) -> None:
        """Access memory, exchange values or order accesses, for the lanes where the step's guard holds."""
        sources = tuple(self._registers.read(source) for source in step.sources)
        self._participation.act(step, sources, lanes)
        results: Iterable[Array] = ()
        if isinstance(step, program.Memory) and (step.fresh or isinstance(step, program.Atomic)):
            self._synchronise(step, lanes)
        if isinstance(step, program.GroupProduct):
            results = self.memory.group_product(step, sources, lanes)
        elif isinstance(step, program.Memory):
            undefined = self._participation.stored(step, sources[0], lanes) if isinstance(step, program.Store) else ()
            results = self.memory.access(step, sources[0], (*sources[1:], *undefined), lanes)
        elif isinstance(step, program.WarpStep):
            results = exchange(step.function, sources, lanes, self._shape)
        elif isinstance(step, program.WarpBarrier):
            self.order.warp_barrier(lanes)
        elif isinstance(step, program.Fence):
            self.order.fence(lanes)
        elif isinstance(step, program.Arrive):
            self._named.arrive(sources[0], sources[1], lanes & self.geometry.present)
        elif isinstance(step, program.Clock):
            results = (np.full((1, 1), self.tally.clock() >> step.shift).astype(step.dtype),)
        elif isinstance(step, program.CopyGroup):
            copies = self.memory.bulk_stores if step.bulk else self.memory.copies
            if copies is not None and step.commits:
                copies.commit(lanes)
            elif copies is not None:
                copies.wait(lanes, step.left)
        elif isinstance(step, program.BulkCopy):
            self.memory.bulk_copy(step, sources[0], sources[1], sources[2], lanes)
        elif isinstance(step, program.Print) and lanes.any():
            self.tally.printed.add(step.site)
        if self.initialisation.unwritten:
            self._participation.load(step, self.initialisation.unwritten)
            self.initialisation.unwritten = []
        for target, result in zip(step.targets, results, strict=False):
            self._registers.write(target, result, lanes, step.guard is not None)

    def _synchronise(self, step: program.Memory, lanes: Array) -> None:
        if lanes.any() and (step.space != "shared" or isinstance(step, program.Atomic)):
            if step.releases:
                self.order.fence(lanes)
            self.order.synchronise(
                lanes, publishes=not isinstance(step, program.Load), receives=not isinstance(step, program.Store)
            )

    # Jumps

    def _leave(self, block: program.BasicBlock, number: int, mask: Mask) -> None:
        end = block.end
        if end is not None and self._participation.undefined:
            guards = () if end.guard is None else (end.guard,)
            self._participation.use((*end.sources, *guards), mask.lanes, end.site)
        if end is None:
            self._go(block.following, mask, block.rank)
        elif isinstance(end, program.Barrier):
            if end.is_named:
                barrier, count = (self._registers.read(source) for source in end.sources)
                self._named.wait(barrier, count, mask.lanes & self.geometry.present)
            self._join(self._waiting, number, mask)
        elif isinstance(end, program.Exit):
            self._exit(end, block, mask)
        elif isinstance(end, program.Branch) and end.sources:
            self._switch(end, block, mask)
        else:
            self._branch(end, block, mask)

    def _go(self, number: int | None, mask: Mask, rank: int = -1) -> None:
        """Continue lanes at a basic block. rank: of the block they come from, to detect loops; −1 = no check."""
        if number is None:
            return
        self._participation.go(number, mask.lanes)
        comes_round = self._polled and self.kernel.blocks[number].rank <= rank
        self._join(self._polling if comes_round and self._nothing_changed(number, mask) else self._ready, number, mask)

    def _nothing_changed(self, number: int, mask: Mask) -> bool:
        """Return whether the same lanes were at the loop's beginning before, with the same registers and memory; also
        True after many iterations with other registers.
        """
        live = self.kernel.blocks[number].live
        now = [self._registers.held(register) for register in range(live.bit_length()) if live >> register & 1]
        lanes, then, rounds = self._arrived.get(number, (None, [], 0))
        changed, self.memory.changed = self.memory.changed, False
        again = not changed and lanes is not None and np.array_equal(lanes, mask.lanes)
        self._arrived[number], self._polled = (mask.lanes, now, rounds + 1 if again else 0), False
        if again and all(
            a is b or (a is not None and b is not None and bool(((a == b) | ~mask.lanes).all()))
            for a, b in zip(then, now, strict=True)
        ):
            return True
        if again and rounds >= PATIENCE:
            self._arrived[number], self._counted = (mask.lanes, now, 0), True
            return True
        return False

    def _join(self, groups: dict[int, Mask], number: int, mask: Mask) -> None:
        there = groups.get(number)
        groups[number] = mask if there is None else Mask(there.lanes | mask.lanes, self.geometry)

    def _split(self, guard: program.Read | None, mask: Mask) -> tuple[Mask | None, Mask | None]:
        """Return the lanes for which the guard holds, and the others; None for no lanes, the same mask for all."""
        if guard is None:
            return mask, None
        truth = self._registers.read(guard)
        taken = mask.lanes & truth
        if not taken.any():
            return None, mask
        rest = mask.lanes & ~truth
        if not rest.any():
            return mask, None
        return Mask(taken, self.geometry), Mask(rest, self.geometry)

    def _branch(self, end: program.Step, block: program.BasicBlock, mask: Mask) -> None:
        taken, rest = self._split(end.guard, mask)
        if end.guard is not None:
            divided = 0  # warps with lanes on both sides
            if taken is not None and rest is not None:
                both = warps_with(taken.lanes) & warps_with(rest.lanes)
                divided = int(np.count_nonzero(both)) * (self.geometry.rows // len(both))
            self.traffic.branch(end.site, mask.warps, divided)
        if taken is not None:
            self._go(block.branch[0], taken, block.rank)
        if rest is not None:
            self._go(block.following, rest, block.rank)

    def _switch(self, end: program.Branch, block: program.BasicBlock, mask: Mask) -> None:
        index = self._registers.read(end.sources[0])
        index = spread(index, np.broadcast_shapes(index.shape, mask.lanes.shape))
        lanes = spread(mask.lanes, index.shape)
        chosen, mixed = np.unique(index[lanes]), 0
        if len(chosen) > 1 and index.shape[1] > 1:
            shape = (len(index), -1, WARP)
            low = np.where(lanes, index, np.iinfo(index.dtype).max).reshape(shape).min(axis=2)
            high = np.where(lanes, index, 0).reshape(shape).max(axis=2)
            mixed = int(np.count_nonzero(low < high)) * (self.geometry.rows // len(index))
        self.traffic.branch(end.site, mask.warps, mixed)
        for value in chosen:
            there = lanes & (index == value)
            if value < len(block.branch):
                self._go(block.branch[int(value)], Mask(there, self.geometry))
            else:
                self.faults.add("trap", end.site, there, "branches beyond a jump table")

    def _exit(self, end: program.Exit, block: program.BasicBlock, mask: Mask) -> None:
        leaving, staying = self._split(end.guard, mask)
        if leaving is not None:
            self._participation.exit(leaving.lanes)
        if leaving is not None and end.trap:
            self.faults.add("trap", end.site, leaving.lanes, "executes a trap (assert or __trap)")
        if staying is not None:
            self._go(block.following, staying)

    # Barriers

    def _pass_barriers(self) -> bool:
        """Release blocks whose threads all wait at one barrier; report those whose threads wait at several.

        Called when no group can run. Return whether any block was released: polling blocks have to go on first.
        """
        waiting, self._waiting = self._waiting, {}
        busy, released = [mask.lanes for mask in (*self._polling.values(), *self._held.values())], False
        if self._named.waiting.any():
            waiting, released = self._pass_named(waiting)
            busy.append(self._named.waiting)
        if busy:
            waiting = self._hold_back(self._rows_with(busy), waiting)
        if self.geometry.cluster_blocks > 1:
            waiting = self._without_waiting_clusters(waiting)
        if len(waiting) > 1:
            self._report_stuck(waiting)
        for number, mask in waiting.items():
            block = self.kernel.blocks[number]
            end = block.end
            assert isinstance(end, program.Barrier)
            if end.targets:
                self._reduce(end, mask, waiting)
            passing = mask.lanes.any(axis=1, keepdims=True)
            self.order.block_barrier(passing)
            if end.cluster:
                self.order.cluster_barrier(passing)
            self._participation.block_barrier(passing)
            self._go(block.following, mask)
        return released or bool(waiting)

    def _pass_named(self, waiting: dict[int, Mask]) -> tuple[dict[int, Mask], bool]:
        """Release lanes whose named barrier is complete. Return groups at other barriers, and whether any went on."""
        named = {n: mask for n, mask in waiting.items() if getattr(self.kernel.blocks[n].end, "is_named", False)}
        others = {n: mask for n, mask in waiting.items() if n not in named}
        passing = self._named.complete()
        if not passing.any() and not self._polling:
            held = self._named.waiting.any(axis=1, keepdims=True)
            if not any((mask.lanes & ~held).any() for mask in others.values()):
                passing = self._named.waiting
                # Too few threads arrive: a GPU would hang; here all are released.
                number, mask = min(named.items())
                end = self.kernel.blocks[number].end
                assert end is not None
                waiting_here = spread(mask.lanes, self._shape)
                row, lane = map(int, np.argwhere(waiting_here)[0])
                self.faults.add("barrier", end.site, waiting_here, self._named.give_up(row, lane))
        if passing.any():
            # This also orders threads that do not take part: races with them may not be found.
            self.order.block_barrier(passing.any(axis=1, keepdims=True))
        for number, mask in named.items():
            for lanes, goes in ((mask.lanes & passing, True), (mask.lanes & ~passing, False)):
                if lanes.any() and goes:
                    self._go(self.kernel.blocks[number].following, Mask(lanes, self.geometry))
                elif lanes.any():
                    self._waiting[number] = Mask(lanes, self.geometry)
        return others, bool(passing.any())

    def _rows_with(self, groups: Iterable[Array]) -> Array:
        """Return the blocks of these lanes: bool (rows, 1)."""
        rows = np.zeros((self.geometry.rows, 1), np.bool_)
        for lanes in groups:
            rows |= lanes.any(axis=1, keepdims=True)
        return rows

    def _hold_back(self, rows: Array, waiting: dict[int, Mask]) -> dict[int, Mask]:
        """Return the groups without these blocks, whose lanes keep waiting."""
        passing: dict[int, Mask] = {}
        for number, mask in waiting.items():
            self._part(number, mask, rows, self._waiting, passing)
        return passing

    def _without_waiting_clusters(self, waiting: dict[int, Mask]) -> dict[int, Mask]:
        """Return the groups without clusters at a cluster barrier that have threads at a block barrier or polling."""
        ends = {number: self.kernel.blocks[number].end for number in waiting}
        at_cluster = {number for number, end in ends.items() if isinstance(end, program.Barrier) and end.cluster}
        passing = {number: mask for number, mask in waiting.items() if number not in at_cluster}
        busy = self._rows_with(mask.lanes for mask in (*passing.values(), *self._polling.values()))
        busy = busy[self.geometry.peers, 0].any(axis=1, keepdims=True)
        return passing | self._hold_back(busy, {number: waiting[number] for number in at_cluster})

    def _report_stuck(self, waiting: dict[int, Mask]) -> None:
        """Report blocks whose threads wait at different barriers: undefined in CUDA (often a hang); here all go on."""
        alike = {n: mask for n, mask in waiting.items() if not getattr(self.kernel.blocks[n].end, "cluster", False)}
        rows = [spread(mask.lanes.any(axis=1, keepdims=True), (self.geometry.rows, 1)) for mask in alike.values()]
        mixed = np.sum(rows, axis=0) > 1
        if np.any(mixed):
            number, mask = min(alike.items())
            end = self.kernel.blocks[number].end
            assert end is not None
            sentence = "waits at one __syncthreads() while others of its block wait at another"
            self.faults.add("barrier", end.site, mask.lanes & mixed, sentence)

    def _reduce(self, end: program.Barrier, mask: Mask, waiting: dict[int, Mask]) -> None:
        """Compute __syncthreads_count, _and and _or over the threads of each block."""
        blocks = self.kernel.blocks
        others = [self._after(n) for n in (*waiting, *self._waiting) if n in self._waiting or blocks[n].end is not end]
        elsewhere = (*self._ready, *self._polling, *self._held, *others)
        self._registers.keep(blocks[other].live for other in elsewhere)
        lanes = spread(mask.lanes & self.geometry.present, self._shape)
        predicate = self._registers.read(end.sources[0])
        if end.reduction == "and":
            result: Array = (predicate | ~lanes).all(axis=1, keepdims=True)
        elif end.reduction == "or":
            result = (predicate & lanes).any(axis=1, keepdims=True)
        else:
            result = np.count_nonzero(predicate & lanes, axis=1, keepdims=True).astype(np.uint32)
        self._registers.write(end.targets[0], result, mask.lanes, False)
