"""Say by which names a chip counts the bytes that its DRAM moves.

Which chip has which names, and that all of a chip's are counted in one pass, CUPTI's host library tells without a GPU
(tests/features/counters/test_metric_names.py).
"""

from __future__ import annotations

from dataclasses import dataclass

from pytest_bandwidth.features.counters.errors import CountersFailed

TIME = "gpu__time_duration.sum"
L2_READ, L2_WRITTEN = "lts__t_sectors_op_read.sum", "lts__t_sectors_op_write.sum"
# Volta is the first that Nsight Compute's metrics of these names know.
FIRST_CAPABILITY = (7, 0)
# Chips with memory of the host's: GV11B, GA10B, GB10B (of two numbers), GB20B. None of them counts DRAM.
WITHOUT_DRAM = frozenset({(7, 2), (8, 7), (10, 1), (11, 0), (12, 1)})
# Blackwell's GB20x, which rejects the names of all chips before it.
NAMES_WITH_OP_FROM = (12, 0)
# GV100 would take two passes with them.
WITHOUT_L2 = frozenset({(7, 0)})


@dataclass(frozen=True, slots=True)
class Metrics:
    """Hold the metrics' names for one chip. l2: of sectors read and written; None where they would take a pass more."""

    read: str
    written: str
    l2: tuple[str, str] | None = (L2_READ, L2_WRITTEN)

    @property
    def names(self) -> tuple[str, ...]:
        """Return all names, as ncu's --metrics takes them."""
        return (self.read, self.written, TIME, *(self.l2 or ()))


def metrics_of(capability: str) -> Metrics:
    """Return the names for a chip by its compute capability, such as ``9.0``. Raises CountersFailed."""
    try:
        major, minor = (int(part) for part in capability.split("."))
    except ValueError:
        raise CountersFailed(f"found compute capability {capability!r}, expected one such as 9.0") from None
    if (major, minor) < FIRST_CAPABILITY:
        raise CountersFailed(
            f"Nsight Compute counts from compute capability 7.0 on, this GPU has {capability}: --bandwidth-counters=off"
        )
    if (major, minor) in WITHOUT_DRAM:
        raise CountersFailed(
            f"this chip (compute capability {capability}) has no counters of DRAM: --bandwidth-counters=off"
        )
    op = "op_" if (major, minor) >= NAMES_WITH_OP_FROM else ""
    l2 = None if (major, minor) in WITHOUT_L2 else (L2_READ, L2_WRITTEN)
    return Metrics(f"dram__bytes_{op}read.sum", f"dram__bytes_{op}write.sum", l2)
