"""Say in how many blocks and threads a kernel was launched, as baselines keep it and messages tell it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

_AXES = "xyz"
_SHARED = "dynamic_shared_bytes"


class LaunchShape(NamedTuple):
    """Hold a launch's grid (blocks), block (threads), and dynamic shared memory a block in bytes."""

    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    shared_bytes: int = 0

    def recorded(self) -> dict[str, int]:
        """Return it as whole numbers by name; what is 1 block or thread along y or z, or no memory, goes without."""
        found: dict[str, int] = {}
        for name, extents in (("grid", self.grid), ("block", self.block)):
            found |= {f"{name}_{axis}": n for axis, n in zip(_AXES, extents, strict=True) if axis == "x" or n != 1}
        return found | ({_SHARED: self.shared_bytes} if self.shared_bytes else {})


def shape_of(recorded: Mapping[str, int]) -> LaunchShape | None:
    """Return the shape back from `LaunchShape.recorded`; None where none was recorded."""
    if "grid_x" not in recorded or "block_x" not in recorded:
        return None
    grid, block = (tuple(recorded.get(f"{name}_{axis}", 1) for axis in _AXES) for name in ("grid", "block"))
    return LaunchShape((grid[0], grid[1], grid[2]), (block[0], block[1], block[2]), recorded.get(_SHARED, 0))


def changes(then: LaunchShape, now: LaunchShape) -> list[str]:
    """Say which of them are others now: grid 4,096 → 8,192."""
    said = [
        f"{name} {_extents(before)} → {_extents(after)}"
        for name, before, after in (("grid", then.grid, now.grid), ("block", then.block, now.block))
        if before != after
    ]
    if then.shared_bytes != now.shared_bytes:
        said.append(f"dynamic shared memory {then.shared_bytes:,} → {now.shared_bytes:,} B a block")
    return said


def _extents(extents: tuple[int, int, int]) -> str:
    last = 3 if extents[2] != 1 else 2 if extents[1] != 1 else 1
    return " × ".join(f"{n:,}" for n in extents[:last])
