"""Hold what one run of an operation moves through device memory and computes."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pytest_bandwidth.domain.errors import UsageError

# A smaller difference does not show in figures: a halo, or a counter.
LEAST_DIFFERENCE = 0.01
_BYTES_PER_ELEMENT = {
    **{f"float{bits}": bits // 8 for bits in (64, 32, 16)},
    "bfloat16": 2,
    **{f"{kind}{bits}": bits // 8 for kind in ("int", "uint") for bits in (64, 32, 16, 8)},
    "bool": 1,
}


def differ(some_bytes: int, others: int) -> bool:
    """Return whether two numbers of bytes differ by enough to show in figures."""
    return abs(some_bytes - others) >= LEAST_DIFFERENCE * max(some_bytes, others)


@dataclass(frozen=True, slots=True)
class Traffic:
    """Hold the bytes that one run of an operation has to move, and the FLOP it computes.

    bytes_read, bytes_written: distinct bytes, each buffer byte once per launch.
    flop: floating-point operations; 0 where the operation only moves data.
    requested_read, requested_written: bytes that all loads and stores ask for, where that count is known.
    """

    bytes_read: int
    bytes_written: int
    flop: int = 0
    requested_read: int | None = None
    requested_written: int | None = None

    def __post_init__(self) -> None:
        for name in ("bytes_read", "bytes_written", "flop", "requested_read", "requested_written"):
            value = getattr(self, name)
            if value is None and name.startswith("requested"):
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"{name} is {value!r}, expected a whole number that is not negative")

    def __add__(self, other: Traffic) -> Traffic:
        """Add two launches, one after the other. Distinct counts replace missing requested counts."""
        if not isinstance(other, Traffic):
            return NotImplemented
        return Traffic(
            self.bytes_read + other.bytes_read,
            self.bytes_written + other.bytes_written,
            self.flop + other.flop,
            _sum_of_requests(self.requested_read, self.bytes_read, other.requested_read, other.bytes_read),
            _sum_of_requests(self.requested_written, self.bytes_written, other.requested_written, other.bytes_written),
        )

    @property
    def bytes_moved(self) -> int:
        """Return the bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    @property
    def bytes_requested(self) -> int:
        """Return the bytes that all loads and stores ask for; the distinct bytes where that is unknown."""
        read = self.bytes_read if self.requested_read is None else self.requested_read
        written = self.bytes_written if self.requested_written is None else self.requested_written
        return read + written

    @property
    def arithmetic_intensity(self) -> float | None:
        """Return FLOP ÷ bytes moved; None where nothing is moved."""
        return self.flop / self.bytes_moved if self.bytes_moved else None


def _sum_of_requests(first: int | None, first_distinct: int, second: int | None, second_distinct: int) -> int | None:
    if first is None and second is None:
        return None
    return (first_distinct if first is None else first) + (second_distinct if second is None else second)


def bytes_per_element(dtype: Any) -> int:
    """Return the bytes of one element: of a name ("float32", "bfloat16" …), or of anything with an `itemsize`.

    NumPy, CuPy and torch dtypes and NumPy's scalar classes all qualify. Raises UsageError for anything else.
    """
    itemsize = getattr(dtype, "itemsize", None)
    if isinstance(itemsize, int) and not isinstance(itemsize, bool) and itemsize > 0:
        return itemsize
    # numpy.float32 is a class: its itemsize is a descriptor, so its name is used.
    name = dtype if isinstance(dtype, str) else getattr(dtype, "__name__", None)
    if name in _BYTES_PER_ELEMENT:
        return _BYTES_PER_ELEMENT[name]
    raise UsageError(
        f"dtype is {repr(dtype)[:40]}, expected one of {', '.join(_BYTES_PER_ELEMENT)} or an object with an itemsize"
    )


def tiles(extent: int, tile: int) -> int:
    """Return the tiles of `tile` that cover `extent`: ⌈extent ÷ tile⌉."""
    return -(-extent // tile)


@dataclass(frozen=True, slots=True)
class Mix:
    """Name a plain operation, and how many arrays it reads and writes."""

    name: str
    reads: int
    writes: int

    @property
    def arrays(self) -> int:
        return self.reads + self.writes

    @property
    def written_share(self) -> Fraction:
        return Fraction(self.writes, self.arrays)


READ = Mix("read", 1, 0)
ADD = Mix("add", 2, 1)
COPY = Mix("copy", 1, 1)
WRITE = Mix("write", 0, 1)
MIXES = (READ, ADD, COPY, WRITE)


def nearest_mix(traffic: Traffic) -> Mix:
    """Return the mix whose share of written bytes is nearest to the traffic's (of two, the one that writes less)."""
    share = Fraction(traffic.bytes_written, traffic.bytes_moved)  # exact, so that a tie is one on every machine
    return min(MIXES, key=lambda mix: abs(mix.written_share - share))
