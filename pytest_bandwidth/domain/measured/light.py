"""Tell the least time that a run can take: its bytes at the peak bandwidth or its FLOP at the peak FLOP/s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pytest_bandwidth.domain.traffic import Traffic

By = Literal["counted bytes", "explained bytes", "declared bytes", "FLOP"]
# A card's clock may be above that of its datasheet: an RTX 4090's has 2.52 GHz, and the card holds 2.85.
LARGEST_FLOP_SHARE = 1.2


@dataclass(frozen=True, slots=True)
class Least:
    """Hold what a run needs at least: bytes or FLOP, what tells them, and the device's peak rate of them a second."""

    amount: int
    by: By
    rate: float

    @property
    def seconds(self) -> float:
        return self.amount / self.rate


def least_of_bytes(declared: Traffic, counted: Traffic | None, explained: int | None, rate: float) -> Least:
    """Return what a run needs by the bytes that it moves: those counted, else explained, else declared.

    What a kernel writes beyond its declaration may stay in a cache, so it does not count. Of explained bytes the fewer
    count: an explanation has the whole of an array of which an operator reads a few rows.
    """
    if counted is not None:
        written = min(counted.bytes_written, declared.bytes_written)
        return Least(counted.bytes_read + written, "counted bytes", rate)
    if explained and explained < declared.bytes_moved:
        return Least(explained, "explained bytes", rate)
    return Least(declared.bytes_moved, "declared bytes", rate)


def least_of_flop(flop: int, seconds: float, rate: float, tensor_rate: float | None) -> Least:
    """Return what a run needs by its FLOP. seconds: what it took. rate: FLOP/s of its precision.

    tensor_rate: of tensor cores; where the run was faster than the rate, they computed it.
    """
    if tensor_rate is not None and flop > LARGEST_FLOP_SHARE * rate * seconds:
        rate = max(rate, tensor_rate)
    return Least(flop, "FLOP", rate)
