"""What an operation moves through device memory and computes, as pure functions of its shape."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_bandwidth.domain.errors import UsageError


@dataclass(frozen=True, slots=True)
class Traffic:
    """Bytes that one run of an operation has to move, and the FLOP it computes.

    bytes_read, bytes_written: distinct bytes, each buffer byte once per launch.
    flop: floating-point operations; 0 where the operation only moves data.
    requested_read, requested_written: bytes asked for by every load and store, where that count is known apart.
    """

    bytes_read: int
    bytes_written: int
    flop: int = 0
    requested_read: int | None = None
    requested_written: int | None = None

    def __post_init__(self) -> None:
        for name in ("bytes_read", "bytes_written", "flop"):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < 0:
                raise UsageError(f"{name} is {value!r}, expected a whole number that is not negative")

    @property
    def bytes_moved(self) -> int:
        """Bytes read plus bytes written."""
        return self.bytes_read + self.bytes_written

    @property
    def arithmetic_intensity(self) -> float | None:
        """FLOP ÷ bytes moved; None where nothing is moved."""
        return self.flop / self.bytes_moved if self.bytes_moved else None
