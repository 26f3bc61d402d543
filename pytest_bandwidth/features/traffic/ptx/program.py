"""Hold a decoded kernel: basic blocks of steps with registers by index; only the launch is still open."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array, Dim

# A bulk copy moves a multiple of so many bytes, from and to addresses that are multiples of it.
BULK_BYTES = 16

Space = Literal["global", "shared", "local", "const", "param", "generic"]


@dataclass(frozen=True, slots=True)
class Site:
    """Hold the place of an instruction: `line` of `file` in the CUDA source (0 if unknown), and its line in the PTX."""

    opcode: str
    ptx_line: int
    file: str
    line: int

    @property
    def place(self) -> str:
        return f"{self.file}:{self.line}" if self.line else f"PTX line {self.ptx_line}"


@dataclass(frozen=True, slots=True)
class Read:
    """Describe a source operand: the register's index, and the NumPy type to read it as.

    narrow: the register is wider than the type, so its low part is taken.
    negated: a predicate is read as its opposite.
    """

    register: int
    dtype: np.dtype[Any]
    narrow: bool = False
    negated: bool = False


@dataclass(frozen=True, slots=True)
class Write:
    """Describe a destination. widen: the type to which a narrower result is extended; None for equal widths."""

    register: int
    widen: np.dtype[Any] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Hold one instruction: at `site` (an index into the kernel's sites), for the lanes where `guard` holds."""

    site: int
    guard: Read | None = None
    sources: tuple[Read, ...] = ()
    targets: tuple[Write | None, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Compute(Step):
    """Compute targets = function(*sources); several targets where it returns a tuple."""

    function: Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Memory(Step):
    """Access `count` consecutive elements of `dtype` at the first source plus `offset` bytes.

    ordered: relaxed, acquire or release: synchronisation, which is no race. fresh: ordered or volatile, so that a loop
    may wait for another value. releases: it is also a fence for earlier stores.
    """

    space: Space
    dtype: np.dtype[Any]
    count: int
    offset: int
    ordered: bool = False
    fresh: bool = False
    releases: bool = False

    @property
    def width(self) -> int:
        """Return the bytes that one thread accesses."""
        return self.dtype.itemsize * self.count

    @property
    def align(self) -> int:
        """Return the alignment of an address."""
        return self.width


class Load(Memory): ...


class Store(Memory): ...


class CopyStore(Store):
    """Store the bytes of an asynchronous copy to shared memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyGroup(Step):
    """Close the group of a thread's asynchronous copies (commits), or wait until at most `left` groups are pending.

    left: None waits for every copy. bulk: whether it is about the groups of bulk copies to global memory.
    """

    commits: bool
    left: int | None = None
    bulk: bool = False


class BulkPart(Memory):
    """Describe the reads or the writes of a bulk copy; `count` is known when it runs."""

    @property
    def align(self) -> int:
        return BULK_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class BulkCopy(Step):
    """Copy a piece of memory per thread; its sources: destination, start, and number of bytes."""

    reads: BulkPart
    writes: BulkPart


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupProduct(Load):
    """Multiply matrices in a warp group; those in shared memory are read by 16 bytes a lane.

    sources: whether to add to the result; the result's registers; A's registers or descriptor; B's descriptor.
    columns, depth: of the product. kinds: types of A, B and the result. transposed: A and B. negative: whether A·B is.
    """

    columns: int
    depth: int
    kinds: tuple[str, str, str]
    transposed: tuple[bool, bool]
    negative: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Atomic(Memory):
    """Update memory atomically: `operation` and PTX `type` as in the opcode; sources after the first are its operands;
    no target for red.
    """

    operation: str
    type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BarrierStep(Memory):
    """Execute an operation on the mbarrier object at the first source.

    operation: ``init`` (its second source: arrivals of a phase), ``inval``, ``update`` (arrivals, and expected bytes),
    ``complete`` (arrivals, and completed bytes), ``test`` (a token, or the phase's parity).
    drops: later phases expect so many arrivals less. orders: it releases or acquires. joins: the thread's earlier
    cp.async belong to the phase.
    """

    operation: Literal["init", "inval", "update", "complete", "test"]
    drops: bool = False
    orders: bool = False
    parity: bool = False
    joins: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WarpStep(Step):
    """Exchange values between the lanes of a warp; `name` and `mode` are the opcode's (``shuffle``, ``down``).

    function: see `lanes.exchange`.
    """

    name: str
    mode: str = ""
    function: Callable[..., tuple[Any, ...]]


class WarpBarrier(Step): ...


class Fence(Step): ...


class Nothing(Step):
    """Do nothing: the effect of the hint is not modelled (prefetch, nanosleep)."""


class Print(Step):
    """Record a call of printf() without printing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch(Step):
    """Jump to the first of `labels`, or to the one at the index of the source, if there is one."""

    labels: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit(Step):
    trap: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Barrier(Step):
    """Wait as __syncthreads() does, with its reduction (``popc``, ``and``, ``or``) where it has one.

    is_named: its two sources are a number and a count of threads. cluster: wait for all threads of the cluster.
    """

    reduction: str = ""
    is_named: bool = False
    cluster: bool = False


class Arrive(Step):
    """Arrive at a named barrier without waiting; its sources are number and count of threads."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Clock(Step):
    """Read a clock: its bits from `shift` on, as `dtype`."""

    shift: int
    dtype: np.dtype[Any]


@dataclass(frozen=True, slots=True)
class BasicBlock:
    """Hold steps without a jump, then at most one jump. Other blocks are given as indexes of `Kernel.blocks`.

    branch: the targets of the final Branch, in its labels' order; following: the next block in the text, None after an
    end. live: registers whose values may still be read on entry, as a bit set. polls: whether a step reads memory that
    other threads may change meanwhile. meets: whether the lanes of a warp execute a step together. shuffles: whether it
    or a block reachable from it has a shuffle.
    """

    steps: tuple[Step, ...]
    end: Step | None
    branch: tuple[int, ...]
    following: int | None
    rank: int = 0
    live: int = 0
    polls: bool = False
    meets: bool = False
    shuffles: bool = False

    @property
    def all_steps(self) -> tuple[Step, ...]:
        """Return the steps, and the jump after them if there is one."""
        return self.steps if self.end is None else (*self.steps, self.end)


@dataclass(frozen=True, slots=True)
class Parameter:
    """Describe a parameter: PTX type (``u64``, ``f32``, ``b8`` for structs), place in the parameter buffer, bytes."""

    name: str
    type: str
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class Symbol:
    """Hold the place of a variable: its byte offset in its space, or the full address for global and const variables.

    Or of an array argument: its place in its allocation; `arguments` are the parameters' numbers.
    """

    name: str
    address: int
    size: int
    arguments: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Kernel:
    """Hold a decoded kernel.

    constants: registers that hold immediates, symbols and launch parameters' defaults, each of shape (1, 1).
    specials: registers that hold special registers such as ``%tid.x``.
    arguments: registers that hold a part of the parameters: (byte offset, NumPy type).
    shared: static variables of shared memory; dynamic shared memory begins at `dynamic_shared_offset`.
    granule_bytes: the narrowest access of each space, which is the resolution of shadows.
    exact_block: the only allowed block size, if the kernel has one.
    waits_for_grid: whether all blocks have to run together. before_wait: sites of accesses to global memory that may
    come before griddepcontrol.wait.
    asynchronous: whether it uses mbarriers or bulk copies. cluster: how many blocks it has along each axis.
    """

    name: str
    parameters: tuple[Parameter, ...]
    sites: tuple[Site, ...]
    blocks: tuple[BasicBlock, ...]
    register_count: int
    constants: Mapping[int, Array]
    specials: Mapping[int, str]
    arguments: Mapping[int, tuple[int, np.dtype[Any]]]
    shared: tuple[Symbol, ...]
    dynamic_shared_offset: int
    local: tuple[Symbol, ...]
    local_bytes: int
    granule_bytes: Mapping[str, int]
    max_threads: int | None
    exact_block: Dim | None
    waits_for_grid: bool
    before_wait: tuple[int, ...]
    asynchronous: bool
    cluster: Dim

    @property
    def static_shared_bytes(self) -> int:
        return sum(symbol.size for symbol in self.shared)


_LOCAL_NAME = re.compile(r"^_ZZ.*E(\d+)([A-Za-z_]\w*?)(?:_\d+)?$")


def readable_name(symbol: str) -> str:
    """Return a variable's name as written: ``_ZZ7softmaxE4tile`` → ``tile`` (Itanium C++ ABI, §5.1.6, local names)."""
    match = _LOCAL_NAME.match(symbol)
    if match:
        return match[2][: int(match[1])]
    plain = re.match(r"^_Z(?:N.*?)?(\d+)(\w+)$", symbol)
    return plain[2][: int(plain[1])] if plain else symbol
