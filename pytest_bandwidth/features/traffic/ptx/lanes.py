"""Number the threads of one batch of blocks, mask them, and count how many warps a mask keeps busy.

Arrays over lanes have shape (blocks, threads), threads padded to whole warps; whatever does not differ between blocks
or between threads keeps one row or one column, and NumPy broadcasts it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

# NumPy's stubs give Any for arithmetic on arrays whose dtype is not known, as nearly all are here (the PTX type decides
# it at run time): a stricter alias would find nothing and ask for a cast on every line.
Array: TypeAlias = Any

Dim = tuple[int, int, int]
WARP = 32


def coordinates(number: Any, size: Dim) -> tuple[Any, Any, Any]:
    """Return x, y and z of a thread's or a block's linear number, or of an array of such."""
    return number % size[0], number // size[0] % size[1], number // (size[0] * size[1])


@dataclass(frozen=True)
class Geometry:
    """Describe a batch: grid and block as launched; `blocks` are its blocks' linear numbers, int64 of shape (B,)."""

    grid: Dim
    block: Dim
    blocks: Array
    dynamic_shared_bytes: int = 0
    static_shared_bytes: int = 0

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

    def special(self, name: str) -> Array:
        """Return a special register's value (``%tid.x`` …), uint32."""
        return np.atleast_2d(SPECIALS[name](self)).astype(np.uint32)

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
    }


# The special registers, each of 32 bits.
SPECIALS: dict[str, Callable[[Geometry], Any]] = {
    **_of_axis(0),
    **_of_axis(1),
    **_of_axis(2),
    "%laneid": lambda g: g.numbers % WARP,
    "%warpid": lambda g: g.numbers // WARP,
    "%nwarpid": lambda g: g.lanes // WARP,
    "%dynamic_smem_size": lambda g: g.dynamic_shared_bytes,
    "%total_smem_size": lambda g: g.dynamic_shared_bytes + g.static_shared_bytes,
    "%lanemask_eq": lambda g: 1 << g.numbers % WARP,
    "%lanemask_lt": lambda g: (1 << g.numbers % WARP) - 1,
    "%lanemask_le": lambda g: (2 << g.numbers % WARP) - 1,
    "%lanemask_gt": lambda g: 0xFFFFFFFF ^ ((2 << g.numbers % WARP) - 1),
    "%lanemask_ge": lambda g: 0xFFFFFFFF ^ ((1 << g.numbers % WARP) - 1),
}


class Mask:
    """Tell which lanes take part, as a bool array that broadcasts to (rows, lanes), and how many threads and warps."""

    def __init__(self, lanes: Array, geometry: Geometry) -> None:
        self.lanes = lanes
        self._geometry = geometry

    @cached_property
    def threads(self) -> int:
        rows, columns = self.lanes.shape
        g = self._geometry
        repeat: int = (g.rows // rows) * (g.lanes // columns)
        return int(np.count_nonzero(self.lanes)) * repeat

    @cached_property
    def warps(self) -> int:
        rows, columns = self.lanes.shape
        g = self._geometry
        repeat: int = (g.rows // rows) * (1 if columns > 1 else g.lanes // WARP)
        return int(np.count_nonzero(warps_with(self.lanes))) * repeat


def spread(array: Array, shape: tuple[int, ...]) -> Array:
    """Do np.broadcast_to, which takes microseconds even where there is nothing to do."""
    return array if array.shape == shape else np.broadcast_to(array, shape)


def warps_with(lanes: Array) -> Array:
    """Tell per warp (or per row, where all threads agree) whether any lane is set."""
    rows, columns = lanes.shape
    return lanes if columns == 1 else lanes.reshape(rows, columns // WARP, WARP).any(axis=2)


def least(offset: Array, mask: Array) -> tuple[Array, Array]:
    """Return the offsets as they are, and the mask reduced to their shape:
    whether any lane with that offset takes part.
    """
    rows, columns = offset.shape
    if rows == 1 and mask.shape[0] > 1:
        mask = mask.any(axis=0, keepdims=True)
    if columns == 1 and mask.shape[1] > 1:
        mask = mask.any(axis=1, keepdims=True)
    return offset, spread(mask, offset.shape)
