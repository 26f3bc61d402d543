"""Choose the probe of a workload: the plain operation whose mix of reads and writes is nearest to its own."""

from __future__ import annotations

from dataclasses import dataclass
from fractions import Fraction

from pytest_bandwidth.domain.traffic import Traffic


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
