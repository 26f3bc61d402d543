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
    def rows(self) -> int:
        return len(self.blocks)

    @cached_property
    def present(self) -> Array:
        """Return the lanes that are threads: (1, 1) where no warp is partly filled, else (1, lanes)."""
        if self.lanes == self.threads:
            return np.ones((1, 1), np.bool_)
        return (np.arange(self.lanes) < self.threads)[None]

    def special(self, name: str) -> Array:
        """Return a special register's value (``%tid.x`` …), uint32."""
        return _SPECIALS[name](self).astype(np.uint32)

    def thread_name(self, lane: int) -> str:
        x, y = self.block[0], self.block[1]
        return f"({lane % x}, {lane // x % y}, {lane // (x * y)})"

    def block_name(self, row: int) -> str:
        number = int(self.blocks[row])
        x, y = self.grid[0], self.grid[1]
        return f"({number % x}, {number // x % y}, {number // (x * y)})"


def _per_thread(value: Callable[[Array, Dim], Array]) -> Callable[[Geometry], Array]:
    return lambda geometry: value(np.arange(geometry.lanes), geometry.block)[None]


def _per_block(value: Callable[[Array, Dim], Array]) -> Callable[[Geometry], Array]:
    return lambda geometry: value(geometry.blocks, geometry.grid)[:, None]


def _same(value: Callable[[Geometry], int]) -> Callable[[Geometry], Array]:
    return lambda geometry: np.full((1, 1), value(geometry))


def _axis(axis: int) -> Callable[[Array, Dim], Array]:
    if axis == 0:
        return lambda number, size: number % size[0]
    if axis == 1:
        return lambda number, size: number // size[0] % size[1]
    return lambda number, size: number // (size[0] * size[1])


_LANE_MASKS: dict[str, Callable[[Array], Array]] = {
    "eq": lambda lane: 1 << lane,
    "lt": lambda lane: (1 << lane) - 1,
    "le": lambda lane: (2 << lane) - 1,
    "gt": lambda lane: 0xFFFFFFFF ^ ((2 << lane) - 1),
    "ge": lambda lane: 0xFFFFFFFF ^ ((1 << lane) - 1),
}


def _special_table() -> dict[str, Callable[[Geometry], Array]]:
    table: dict[str, Callable[[Geometry], Array]] = {}
    for axis, letter in enumerate("xyz"):
        table |= _special_of_axis(axis, letter)
    table["%laneid"] = _per_thread(lambda number, _: number % WARP)
    table["%warpid"] = _per_thread(lambda number, _: number // WARP)
    table["%nwarpid"] = _same(lambda g: g.lanes // WARP)
    table["%dynamic_smem_size"] = _same(lambda g: g.dynamic_shared_bytes)
    table["%total_smem_size"] = _same(lambda g: g.dynamic_shared_bytes + g.static_shared_bytes)
    table |= {f"%lanemask_{name}": _lane_mask(mask) for name, mask in _LANE_MASKS.items()}
    return table


def _special_of_axis(axis: int, letter: str) -> dict[str, Callable[[Geometry], Array]]:
    return {
        f"%tid.{letter}": _per_thread(_axis(axis)),
        f"%ctaid.{letter}": _per_block(_axis(axis)),
        f"%ntid.{letter}": _same(lambda g: g.block[axis]),
        f"%nctaid.{letter}": _same(lambda g: g.grid[axis]),
    }


def _lane_mask(mask: Callable[[Array], Array]) -> Callable[[Geometry], Array]:
    return _per_thread(lambda number, _: mask(number % WARP))


_SPECIALS = _special_table()


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
        return int(np.count_nonzero(warps_with(self.lanes))) * self._warp_repeat

    @property
    def _warp_repeat(self) -> int:
        rows, columns = self.lanes.shape
        g = self._geometry
        repeat: int = (g.rows // rows) * (1 if columns > 1 else g.lanes // WARP)
        return repeat


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
