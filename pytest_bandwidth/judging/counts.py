"""Compare what was counted: exact figures, of which any rise of what costs bandwidth matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from statistics import median
from typing import Any

from pytest_bandwidth.domain.baseline import Run

# By so much may a run count more than the baseline's runs did.
TOLERANCE = 0.02

# What costs bandwidth or time when it rises, and what it is called.
COSTS = {
    "load_sectors": "sectors loaded",
    "store_sectors": "sectors stored",
    "atomic_sectors": "sectors of atomics",
    # Of the same sectors: loads and stores became narrower.
    "load_requests": "load requests",
    "store_requests": "store requests",
    "bank_conflicts": "bank conflicts",
    "local_bytes": "bytes of local arrays",
    "distinct_bytes_read": "distinct bytes read",
    "distinct_bytes_written": "distinct bytes written",
    "local_bytes_per_thread": "stack and spill bytes a thread",
}
# What costs when it falls.
GAINS = {"resident_warps": "resident warps an SM"}
JUDGED = COSTS | GAINS
# What another compiler, or another option of it, changes of the same PTX.
COMPILED = ("local_bytes_per_thread", "resident_warps")
# Without these nothing gates what most kernels ask for.
SECTORS = ("load_sectors", "store_sectors", "atomic_sectors")
# Every name that the traffic device counts by.
COUNT_NAMES = frozenset(JUDGED) | {"load_bytes", "store_bytes", "atomic_requests", "divergent_branches"}


def called(name: str) -> str:
    """Return what a count that is judged is called; one of a device that is plugged in by its own name."""
    return JUDGED.get(name, name.replace("_", " "))


def is_worse(name: str, now: int, then: int, tolerance: float = 0.0) -> bool:
    """Return whether a count costs more than it did, by more than the tolerance."""
    return now < then * (1 - tolerance) if name in GAINS else now > then * (1 + tolerance)


def pattern_of(detail: Mapping[str, Any]) -> str | None:
    """Describe loads and stores as a baseline entry keeps them: ``loads coalesced, stores strided (32 bytes)``.

    None where no accesses of memory were counted.
    """
    if not detail.keys() & {"loads", "stores"}:
        return None
    parts = [
        f"{kind} {detail[kind]['pattern']}" for kind in ("loads", "stores") if detail.get(kind, {}).get("requests")
    ]
    return ", ".join(parts) or "no global access"


def continued(old: Sequence[Run], fresh: Sequence[Run]) -> tuple[Run, ...]:
    """Return an entry's old runs, without their bytes of DRAM where fresh ones moved another number of them.

    So the gate holds later runs to what the code moves now.
    """
    for name in ("dram_read", "dram_written"):
        known, new = counts_of(old, name), counts_of(fresh, name)
        if known and new and abs(median(new) - median(known)) > most_allowed(known) - median(known):
            return tuple(replace(run, dram_read=None, dram_written=None) for run in old)
    return tuple(old)


def most_allowed(known: Sequence[int]) -> float:
    """Return the most that may be counted: past the middle by the tolerance, or as far as the runs themselves lie."""
    middle = median(known)
    return middle + max(TOLERANCE * middle, max(known) - middle, middle - min(known))


def counts_of(runs: Sequence[Run], name: str) -> list[int]:
    """Return a count of each run that has it."""
    return [count for run in runs if (count := getattr(run, name)) is not None]
