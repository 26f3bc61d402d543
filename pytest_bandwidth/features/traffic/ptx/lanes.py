"""Number the threads of one batch of blocks, mask them, count the warps of a mask, and exchange values inside warps.

Arrays over lanes have shape (blocks, threads), threads padded to whole warps. Arrays that do not differ between blocks,
or between threads, have one row, or one column, and NumPy broadcasts them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

# NumPy's stubs give Any for arithmetic on arrays of unknown dtype, as nearly all are here (the PTX type decides it at
# run time): a stricter alias would find no errors and need a cast on every line.
Array: TypeAlias = Any

Dim = tuple[int, int, int]
WARP = 32


def coordinates(number: Any, size: Dim) -> tuple[Any, Any, Any]:
    """Return x, y and z of a thread's or a block's linear number, or of an array of numbers."""
    return number % size[0], number // size[0] % size[1], number // (size[0] * size[1])


def three(sizes: Sequence[int]) -> Dim:
    """Return one to three extents with 1 for those that are left out."""
    x, y, z = (*sizes, *(1,) * (3 - len(sizes)))
    return int(x), int(y), int(z)


@dataclass(frozen=True)
class Geometry:
    """Describe a batch: grid and block as launched; `blocks` are its blocks' linear numbers, int64 of shape (B,).

    The geometry of a whole launch has no blocks.
    """

    grid: Dim
    block: Dim
    blocks: Array
    dynamic_shared_bytes: int = 0
    static_shared_bytes: int = 0
    cluster: Dim = (1, 1, 1)

    @cached_property
    def cluster_blocks(self) -> int:
        return self.cluster[0] * self.cluster[1] * self.cluster[2]

    @cached_property
    def grid_blocks(self) -> int:
        return self.grid[0] * self.grid[1] * self.grid[2]

    @cached_property
    def clusters(self) -> Dim:
        """Count the clusters along each axis of the grid."""
        x, y, z = (of_grid // of_cluster for of_grid, of_cluster in zip(self.grid, self.cluster, strict=True))
        return x, y, z

    @cached_property
    def places(self) -> tuple[tuple[Any, Any], ...]:
        """Return for each axis the blocks' clusters and the blocks' places in them: (rows, 1)."""
        axes = zip(coordinates(self.blocks[:, None], self.grid), self.cluster, strict=True)
        return tuple(np.divmod(block, size) for block, size in axes)

    @cached_property
    def cluster_ranks(self) -> Array:
        """Number the blocks in their clusters: (rows, 1)."""
        (_, x), (_, y), (_, z) = self.places
        return x + self.cluster[0] * (y + self.cluster[1] * z)

    @cached_property
    def peers(self) -> Array:
        """Return the rows of a block's cluster, by rank: (rows, blocks of a cluster)."""
        (x, _), (y, _), (z, _) = self.places
        number = (x + self.clusters[0] * (y + self.clusters[1] * z))[:, 0]
        order = np.lexsort((self.cluster_ranks[:, 0], number)).reshape(-1, self.cluster_blocks)
        found = np.empty((self.rows, self.cluster_blocks), np.int64)
        found[order] = order[:, None, :]
        return found

    @cached_property
    def threads(self) -> int:
        return self.block[0] * self.block[1] * self.block[2]

    @cached_property
    def lanes(self) -> int:
        """Count the threads of a block, padded to whole warps."""
        return -(-self.threads // WARP) * WARP

    @cached_property
    def numbers(self) -> Array:
        """Number the lanes: (1, lanes)."""
        return np.arange(self.lanes)[None]

    @cached_property
    def rows(self) -> int:
        return len(self.blocks)

    @cached_property
    def present(self) -> Array:
        """Return the lanes that are threads: (1, 1) where no warp is partly filled, else (1, lanes)."""
        return np.ones((1, 1), np.bool_) if self.lanes == self.threads else self.numbers < self.threads

    def thread_name(self, lane: int) -> str:
        return "({}, {}, {})".format(*coordinates(lane, self.block))

    def block_name(self, number: int) -> str:
        return "({}, {}, {})".format(*coordinates(number, self.grid))


def _of_axis(axis: int) -> dict[str, Callable[[Geometry], Any]]:
    letter = "xyz"[axis]
    return {
        f"%tid.{letter}": lambda g: coordinates(g.numbers, g.block)[axis],
        f"%ctaid.{letter}": lambda g: coordinates(g.blocks[:, None], g.grid)[axis],
        f"%ntid.{letter}": lambda g: g.block[axis],
        f"%nctaid.{letter}": lambda g: g.grid[axis],
        f"%clusterid.{letter}": lambda g: g.places[axis][0],
        f"%cluster_ctaid.{letter}": lambda g: g.places[axis][1],
        f"%nclusterid.{letter}": lambda g: g.clusters[axis],
        f"%cluster_nctaid.{letter}": lambda g: g.cluster[axis],
    }


# The special registers, each of 32 bits.
SPECIALS: dict[str, Callable[[Geometry], Any]] = {
    **_of_axis(0),
    **_of_axis(1),
    **_of_axis(2),
    "%cluster_ctarank": lambda g: g.cluster_ranks,
    "%cluster_nctarank": lambda g: g.cluster_blocks,
    "%laneid": lambda g: g.numbers % WARP,
    "%warpid": lambda g: g.numbers // WARP,
    "%nwarpid": lambda g: g.lanes // WARP,
    # All blocks run on one multiprocessor, which is possible on a GPU as well.
    "%smid": lambda _: 0,
    "%nsmid": lambda _: 1,
    "%dynamic_smem_size": lambda g: g.dynamic_shared_bytes,
    "%total_smem_size": lambda g: g.dynamic_shared_bytes + g.static_shared_bytes,
    "%lanemask_eq": lambda g: 1 << g.numbers % WARP,
    "%lanemask_lt": lambda g: (1 << g.numbers % WARP) - 1,
    "%lanemask_le": lambda g: (2 << g.numbers % WARP) - 1,
    "%lanemask_gt": lambda g: 0xFFFFFFFF ^ ((2 << g.numbers % WARP) - 1),
    "%lanemask_ge": lambda g: 0xFFFFFFFF ^ ((1 << g.numbers % WARP) - 1),
}


class Mask:
    """Hold the lanes that take part, as a bool array that broadcasts to (rows, lanes), and count threads and warps."""

    def __init__(self, lanes: Array, geometry: Geometry) -> None:
        self.lanes = lanes
        self._geometry = geometry

    @cached_property
    def threads(self) -> int:
        return self._of_all(self.lanes, self._geometry.lanes)

    @cached_property
    def warps(self) -> int:
        return self._of_all(warps_with(self.lanes), self._geometry.lanes // WARP)

    def _of_all(self, some: Array, columns: int) -> int:
        repeat: int = (self._geometry.rows // some.shape[0]) * (columns // some.shape[1])
        return int(np.count_nonzero(some)) * repeat


MOST_COPIED = 4096


def spread(array: Array, shape: tuple[int, ...]) -> Array:
    """Return the array, or it broadcast: a small one as a copy, which takes a quarter of np.broadcast_to's time."""
    if array.shape == shape:
        return array
    if math.prod(shape) > MOST_COPIED:
        return np.broadcast_to(array, shape)
    copied = np.empty(shape, array.dtype)
    copied[...] = array
    return copied


def warps_with(lanes: Array) -> Array:
    """Return for each warp (or row, where all threads agree) whether any lane is set."""
    rows, columns = lanes.shape
    return lanes if columns == 1 else lanes.reshape(rows, columns // WARP, WARP).any(axis=2)


def least(offset: Array, mask: Array) -> tuple[Array, Array]:
    """Return the offsets, and the mask reduced to their shape: whether any lane with that offset takes part."""
    rows, columns = offset.shape
    if rows == 1 and mask.shape[0] > 1:
        mask = mask.any(axis=0, keepdims=True)
    if columns == 1 and mask.shape[1] > 1:
        mask = mask.any(axis=1, keepdims=True)
    return offset, spread(mask, offset.shape)


# ---- exchange inside a warp: shuffles, votes, matches and reductions (PTX ISA, §9.7.9 and §9.7.13) -------------------

ALL_LANES = np.uint32(0xFFFFFFFF)


def exchange(
    function: Callable[..., tuple[Array, ...]], sources: tuple[Array, ...], active: Array, shape: tuple[int, int]
) -> tuple[Array, ...]:
    """Return the results of a warp instruction, each over `shape` or one row of it.

    function: gets the lanes that execute it, bool, and the operands, each of shape (rows, warps, 32).
    sources: the operands in the opcode's order, the membership mask last if there is one. A lane gets values only from
    lanes of its own mask, so parts of a warp may exchange separately at the same time.
    shape: (rows, lanes) of the batch.
    """
    rows = max(len(array) for array in (*sources, active))
    whole = (rows, shape[1])
    warps = (rows, shape[1] // WARP, WARP)
    operands = tuple(spread(source, whole).reshape(warps) for source in sources)
    results = function(spread(active, whole).reshape(warps), *operands)
    return tuple(spread(result, warps).reshape(whole) for result in results)


def _shuffle(
    mode: str, _active: Array, value: Array, lane_operand: Array, clamp_operand: Array, _members: Array
) -> tuple[Array, ...]:
    lane = np.arange(WARP)
    by = (lane_operand & 31).astype(np.int64)
    clamp, segment = (clamp_operand & 31).astype(np.int64), ((clamp_operand >> np.uint32(8)) & 31).astype(np.int64)
    lowest = lane & segment
    highest = lowest | (clamp & ~segment)
    if mode == "up":
        source = lane - by
        inside = source >= highest  # with `up` the clamp is a lower bound
    elif mode == "idx":
        source = lowest | (by & ~segment)
        inside = source <= highest
    else:
        source = lane + by if mode == "down" else lane ^ by
        inside = source <= highest
    source = np.where(inside, source, lane)
    return np.take_along_axis(value, spread(source, value.shape), axis=2), inside


def _vote(mode: str, active: Array, predicate: Array, members: Array) -> tuple[Array, ...]:
    every = (packed(~predicate & active) & members) == 0
    some = (packed(predicate & active) & members) != 0
    return ({"all": every, "any": some, "uni": every | ~some}[mode],)


def packed(bits: Array) -> Array:
    """Pack 32 bools of a warp into one word, lane 0 in bit 0."""
    return np.packbits(bits, axis=2, bitorder="little").view("<u4").astype(np.uint32)


def _match(_mode: str, active: Array, value: Array, members: Array) -> tuple[Array, ...]:
    found = np.empty(value.shape, np.uint32)
    for lane in range(WARP):
        found[:, :, lane : lane + 1] = packed((value == value[:, :, lane : lane + 1]) & active)
    return (found & members,)


def _match_all(mode: str, active: Array, value: Array, members: Array) -> tuple[Array, ...]:
    """Return the mask of all lanes if their values agree, else 0; and whether they agree."""
    (alike,) = _match(mode, active, value, members)
    everyone = packed(active) & members
    agree = alike == everyone
    return np.where(agree, everyone, np.uint32(0)), agree


def _reduce(mode: str, active: Array, value: Array, members: Array) -> tuple[Array, ...]:
    info = np.iinfo(value.dtype)
    neutral = {"and": info.max, "min": info.max, "max": info.min}.get(mode, 0)
    operation: Any = getattr(np, {"add": "add", "min": "minimum", "max": "maximum"}.get(mode, f"bitwise_{mode}"))
    nothing = value.dtype.type(neutral)
    taking_part = np.where(active, value, nothing)
    if (members == ALL_LANES).all():
        return (operation.reduce(taking_part, axis=2, keepdims=True, dtype=value.dtype),)
    result = np.full(value.shape, nothing)
    for lane in range(WARP):
        mine = (members >> np.uint32(lane)) & np.uint32(1) != 0
        result = operation(result, np.where(mine, taking_part[:, :, lane : lane + 1], nothing))
    return (result,)


def _elect(_mode: str, active: Array, members: Array) -> tuple[Array, ...]:
    """Return the lowest lane that takes part, and whether it is the lane itself."""
    taking_part = active & (members >> np.arange(WARP, dtype=np.uint32) & np.uint32(1) != 0)
    leader = taking_part.argmax(axis=2, keepdims=True).astype(np.uint32)
    return leader, leader == np.arange(WARP)


# By the action's name in the opcode table; each function gets its modifier first.
EXCHANGES: dict[str, Callable[..., tuple[Array, ...]]] = {
    "shuffle": _shuffle,
    "vote": _vote,
    "ballot": lambda _, active, predicate, members: (packed(predicate & active) & members,),
    "match": _match,
    "match all": _match_all,
    "warp reduction": _reduce,
    "active mask": lambda _, active: (packed(active),),
    "elect": _elect,
}
