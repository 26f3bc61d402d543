"""Judge what was counted: exact figures, so any rise of what costs bandwidth is a regression at once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.domain.units import format_percent
from pytest_bandwidth.domain.verdict import Status, Verdict

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
# Every name that a baseline's `counts` has.
COUNT_NAMES = frozenset(COSTS) | {
    "load_requests",
    "load_bytes",
    "store_requests",
    "store_bytes",
    "atomic_requests",
    "divergent_branches",
}


def ungated(verdict: Verdict, counts: Mapping[str, int], known: Mapping[str, int]) -> Verdict:
    """Return INSUFFICIENT in place of a verdict that passes where the entry lacks sectors that the kernel asks for."""
    missing = [name for name in _SECTORS if counts.get(name) and name not in known]
    if not missing or verdict.status not in (Status.WITHIN, Status.IMPROVED):
        return verdict
    reason = f"the entry's counts hold no {' and no '.join(missing)}, so that nothing gates them: --bandwidth-update"
    return replace(verdict, status=Status.INSUFFICIENT, code="ungated", reason=reason)


def judge_counts(
    counts: Mapping[str, int],
    known: Mapping[str, int],
    declared: Traffic,
    lines: Sequence[Mapping[str, Any]],
    tolerance: float,
    *,
    advice: str = ": --bandwidth-update keeps it",
) -> Verdict:
    """Return REGRESSED where any cost rose by more than the tolerance (0 unless said), else IMPROVED or WITHIN.

    NOT_COMPARABLE where a part of the declared work is no longer done. A cost that either side lacks is not judged.
    lines: counts by source line of this run, to name the one that asks for most. advice: what ends the sentence of a
    gain; nothing where no baseline is there to be updated.
    """
    both = {name: (known[name], counts[name]) for name in COSTS if name in known and name in counts}
    risen = {name: (then, now) for name, (then, now) in both.items() if now > then * (1 + tolerance)}
    fallen = {name: (then, now) for name, (then, now) in both.items() if now < then}
    if risen:
        changes = ", ".join(_change(name, *values) for name, values in risen.items())
        return Verdict(Status.REGRESSED, "counts", f"{changes}{_worst_line(lines)}", tolerance=tolerance)
    if (less := _less_work(counts, known, declared)) is not None:
        return less
    if fallen:
        changes = ", ".join(_change(name, *values) for name, values in fallen.items())
        return Verdict(Status.IMPROVED, "counts", f"{changes}{advice}", tolerance=tolerance)
    rose = any(now > then for then, now in both.values())
    reason = f"no count rose by more than {format_percent(tolerance, 1)}" if rose else "no count has changed"
    return Verdict(Status.WITHIN, "counts", reason, tolerance=tolerance)


def pattern_of(detail: Mapping[str, Any]) -> str:
    """Describe loads and stores as a baseline entry keeps them: ``loads coalesced, stores strided (32 bytes)``."""
    parts = [
        f"{kind} {detail[kind]['pattern']}" for kind in ("loads", "stores") if detail.get(kind, {}).get("requests")
    ]
    return ", ".join(parts) or "no global access"


def _less_work(counts: Mapping[str, int], known: Mapping[str, int], declared: Traffic) -> Verdict | None:
    """Return NOT_COMPARABLE where the kernel touches fewer bytes than it did, and than are declared; else None.

    A kernel that skips a part of its work asks for less in every count, which is no gain. To touch no longer what
    was not declared is one.
    """
    for name, said in (
        ("distinct_bytes_read", declared.bytes_read),
        ("distinct_bytes_written", declared.bytes_written),
    ):
        seen, then = counts.get(name), known.get(name)
        if seen is not None and then is not None and seen < min(then, said):
            reason = f"{COSTS[name]} {then:,} → {seen:,}, of {said:,} declared: a part of the work is not done"
            return Verdict(Status.NOT_COMPARABLE, "less-work", reason)
    return None


def _change(name: str, then: int, now: int) -> str:
    factor = f", {now / then:.3g}×" if then else ""
    return f"{COSTS[name]} {then:,} → {now:,}{factor}"


def _worst_line(lines: Sequence[Mapping[str, Any]]) -> str:
    """Say which line is furthest from coalesced, as ``; K.cu:12 loads strided (32 bytes), 32.0 sectors a request``."""
    worst: tuple[float, str] | None = None
    for line in lines:
        for kind in ("loads", "stores", "atomics"):
            access = line.get(kind) or {}
            if not access.get("requests") or not access.get("coalescing"):
                continue
            wasted = access["sectors"] * (1 - access["coalescing"])
            text = (
                f"; {line['file']}:{line['line']} {kind} {access['pattern']}, "
                f"{access['sectors_per_request']:.1f} sectors a request"
            )
            if wasted > 0 and (worst is None or wasted > worst[0]):
                worst = wasted, text
    return "" if worst is None else worst[1]
