"""Write what hardware counters saw DRAM move, in a sentence."""

from __future__ import annotations

from pytest_bandwidth.domain.units import counted, format_bytes, format_gbps
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.values import number, text


def dram_text(outcome: Outcome) -> str | None:
    """Return what DRAM moved, and L2's sectors where they were counted; None without counts.

    ``read 268 MB, wrote 134 MB: 1.00× of the declared, 1850 GB/s, L2 sectors 8,388,608 read, 4,194,304 written (1
    kernel, ncu)``
    """
    if outcome.dram_read is None or outcome.dram_written is None:
        return None
    told = [f"{outcome.dram_ratio:.2f}× of the declared"] if outcome.dram_ratio is not None else []
    told += [format_gbps(outcome.dram_gbps)] if outcome.dram_gbps is not None else []
    sectors = [(number(outcome.dram, f"l2_sectors_{verb}"), verb) for verb in ("read", "written")]
    l2 = ", ".join(f"{count:,.0f} {verb}" for count, verb in sectors if count is not None)
    told += [f"L2 sectors {l2}"] if l2 else []
    kernels = counted(int(number(outcome.dram, "kernel_count") or 0), "kernel")
    moved = f"read {format_bytes(outcome.dram_read)}, wrote {format_bytes(outcome.dram_written)}"
    return f"{moved}: {', '.join(told)} ({kernels}, {text(outcome.dram, 'counted_by')})"
