"""Compare what was counted: exact figures, of which any rise of what costs bandwidth matters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.traffic import Traffic

# By so much may a run count more than the baseline's runs did.
TOLERANCE = 0.02

# What costs bandwidth or time when it rises, and what it is called.
COSTS = {
    "load_sectors": "sectors loaded",
    "store_sectors": "sectors stored",
    "atomic_sectors": "sectors of atomics",
    "bank_conflicts": "bank conflicts",
    "local_bytes": "bytes of local memory (spills)",
    "distinct_bytes_read": "distinct bytes read",
    "distinct_bytes_written": "distinct bytes written",
}
# Without these nothing gates what most kernels ask for.
_SECTORS = ("load_sectors", "store_sectors", "atomic_sectors")
# Every name that the traffic device counts by.
COUNT_NAMES = frozenset(COSTS) | {
    "load_requests",
    "load_bytes",
    "store_requests",
    "store_bytes",
    "atomic_requests",
    "divergent_branches",
}


def called(name: str) -> str:
    """Return what a cost is called; one of a device that is plugged in by its own name."""
    return COSTS.get(name, name.replace("_", " "))


# A count's name, what it was and what it is.
Change = tuple[str, int, int]


@dataclass(frozen=True, slots=True)
class CountChanges:
    """Hold how counts differ from known ones.

    risen: costs that rose by more than the tolerance; within: those that rose by less. fallen: costs that fell.
    less_work: the first count of distinct bytes that fell below what was touched before and what is declared, with
    what is declared: a kernel that skips a part of its work asks for less in every count, which is no gain.
    ungated: sectors that the kernel asks for, or a plugged-in device's counts, which the known counts lack.
    uncounted: costs that are known and were not counted.
    """

    risen: tuple[Change, ...] = ()
    within: tuple[Change, ...] = ()
    fallen: tuple[Change, ...] = ()
    less_work: tuple[str, int, int, int] | None = None
    ungated: tuple[str, ...] = ()
    uncounted: tuple[str, ...] = ()


def changes_of(
    counts: Mapping[str, int], known: Mapping[str, int], declared: Traffic, tolerance: float
) -> CountChanges:
    """Compare a kernel's counts with known ones. tolerance: the share by which a cost may rise.

    Counts of other names, by a device that is plugged in, are costs, too.
    """
    plugged = [name for name in counts if name not in COUNT_NAMES]
    both = [(name, known[name], counts[name]) for name in (*COSTS, *plugged) if name in known and name in counts]
    return CountChanges(
        risen=tuple(one for one in both if one[2] > one[1] * (1 + tolerance)),
        within=tuple(one for one in both if one[1] < one[2] <= one[1] * (1 + tolerance)),
        fallen=tuple(one for one in both if one[2] < one[1]),
        less_work=_less_work(counts, known, declared),
        ungated=tuple(name for name in (*_SECTORS, *plugged) if counts.get(name) and name not in known),
        uncounted=tuple(name for name in known if name not in counts and (name in COSTS or name not in COUNT_NAMES)),
    )


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


def _less_work(
    counts: Mapping[str, int], known: Mapping[str, int], declared: Traffic
) -> tuple[str, int, int, int] | None:
    for name, said in (
        ("distinct_bytes_read", declared.bytes_read),
        ("distinct_bytes_written", declared.bytes_written),
    ):
        seen, then = counts.get(name), known.get(name)
        # To touch no longer what was not declared is a gain.
        if seen is not None and then is not None and seen < min(then, said):
            return name, then, seen, said
    return None


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
