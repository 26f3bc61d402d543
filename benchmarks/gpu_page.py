"""Sum up gpu.py's documents, and the page that shows it: docs/gpu/DEVICE.md."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from statistics import median, stdev
from typing import Any

# Of the suite's tests the page names the operation alone.
_OF_SUITE = "pytest_bandwidth/suite/test_operations.py::test_operation["


@dataclass(frozen=True)
class Spread:
    """Describe one measurement over new processes: medians, and standard deviations of the logarithms as fractions.

    utilization: of the peak; None where that is unknown.
    """

    key: str
    processes: int
    gbps: float
    utilization: float | None
    relative: float | None
    gbps_sd: float
    relative_sd: float | None


def log_sd(values: Sequence[float]) -> float:
    """Return the standard deviation of ln(value): the relative spread, for small spreads. 0 below two values."""
    return stdev([math.log(value) for value in values]) if len(values) > 1 else 0.0


def spreads(documents: Sequence[Mapping[str, Any]]) -> list[Spread]:
    """Return each measurement that every document holds a valid figure of, in the order of the first."""
    rows: dict[str, list[Mapping[str, Any]]] = {}
    for document in documents:
        for result in document["results"]:
            if result.get("gbps") and result.get("is_valid"):
                rows.setdefault(key_of(result), []).append(result)
    return [_spread(key, found) for key, found in rows.items() if len(found) == len(documents)]


def left_out(documents: Sequence[Mapping[str, Any]], rows: Sequence[Spread]) -> list[str]:
    """Return the keys of what a process measured, and not every one validly."""
    keys = dict.fromkeys(key_of(result) for document in documents for result in document["results"])
    shown = {row.key for row in rows}
    return [key for key in keys if key not in shown]


def key_of(result: Mapping[str, Any]) -> str:
    """Return the node id and label as in baselines."""
    label = result.get("label")
    return f"{result['nodeid']} @ {label}" if label else str(result["nodeid"])


def _spread(key: str, found: Sequence[Mapping[str, Any]]) -> Spread:
    relative = [r["relative"] for r in found if r.get("relative")]
    # Where the peak is unknown a document's utilization is of the probe.
    utilization = [r["utilization"] for r in found if r.get("utilization") and r.get("utilization_of") == "peak"]
    return Spread(
        key=key,
        processes=len(found),
        gbps=median(r["gbps"] for r in found),
        utilization=median(utilization) if len(utilization) == len(found) else None,
        relative=median(relative) if len(relative) == len(found) else None,
        gbps_sd=log_sd([r["gbps"] for r in found]),
        relative_sd=log_sd(relative) if len(relative) == len(found) else None,
    )


def report(
    device: Mapping[str, Any],
    rows: Sequence[Spread],
    comparison: Sequence[Mapping[str, Any]],
    selftest: str,
    command: str,
    absent: Sequence[str] = (),
    failed: int = 0,
    *,
    counted: Sequence[Mapping[str, Any]] | str,
) -> str:
    """Render docs/gpu/DEVICE.md from finished values.

    absent: what the first table leaves out; failed: in how many of the processes a test of the suite failed.
    counted: results that a profiler counted, or why there are none.
    """
    peak = device.get("peak") or {}
    facts = device.get("facts") or {}
    known = f"{peak['gbps']:.0f} GB/s ({peak['source']})" if peak else "unknown"
    lines = [
        f"# {device['name']}",
        "",
        f"Measured {datetime.now(timezone.utc):%Y-%m-%d} by `{command}`.",
        "",
        f"- memory {device.get('memory_gib')} GiB, peak {known}",
        *(f"- {name}: {value}" for name, value in {**(device.get("settings") or {}), **facts}.items()),
        "",
        f"## Achieved against peak, over {rows[0].processes if rows else 0} new processes",
        "",
        "Medians over the processes; spread: standard deviation of the logarithm between identical processes.",
        "",
        "| measurement | GB/s | of peak, % | ÷ probe | spread GB/s, % | spread ÷ probe, % |",
        "|---|---:|---:|---:|---:|---:|",
        *(_row(row) for row in rows),
        "",
        *((f"Left out, since not every process measured it validly: {_names(absent)}.", "") if absent else ()),
        *((f"A test of the suite failed in {failed} of the processes.", "") if failed else ()),
        "## The same copies, timed by others in the same process",
        "",
        "Bytes count in both directions. `cupyx.profiler.benchmark` neither empties the cache nor holds the stream.",
        "",
        "| work | timed by | GB/s |",
        "|---|---|---:|",
        *(_comparison_row(one) for one in comparison),
        "",
        "## What DRAM moved",
        "",
        *_counted(counted),
        "",
        "## Selftest",
        "",
        "```",
        selftest.strip(),
        "```",
        "",
    ]
    return "\n".join(lines)


def _row(row: Spread) -> str:
    cells = (
        _name(row.key),
        f"{row.gbps:.1f}",
        _percent(row.utilization, 1),
        "–" if row.relative is None else f"{row.relative:.3f}",
        _percent(row.gbps_sd, 2),
        _percent(row.relative_sd, 2),
    )
    return f"| {' | '.join(cells)} |"


def _counted(results: Sequence[Mapping[str, Any]] | str) -> list[str]:
    if isinstance(results, str):
        return [f"Not counted: {_cell(results)}."]
    return [
        "By hardware counters, in one run of each.",
        "",
        "| measurement | declared bytes | DRAM read | DRAM written | ÷ declared |",
        "|---|---:|---:|---:|---:|",
        *(_counted_row(result) for result in results),
    ]


def _counted_row(result: Mapping[str, Any]) -> str:
    declared = f"{result['bytes_read'] + result['bytes_written']:,}"
    dram = result.get("detail", {}).get("dram")
    if dram is None:
        said = [finding["text"] for finding in result.get("findings", ()) if finding["code"] == "dram-uncounted"]
        return f"| {_name(key_of(result))} | {declared} | {_cell(said[0] if said else 'not counted')} | – | – |"
    moved = f"{dram['bytes_read']:,} | {dram['bytes_written']:,} | {dram['ratio']:.3f}"
    return f"| {_name(key_of(result))} | {declared} | {moved} |"


def _comparison_row(one: Mapping[str, Any]) -> str:
    why = f" ({_cell(one['why'])})" if one.get("why") else ""
    gbps = "–" if one["gbps"] is None else f"{one['gbps']:.1f}"
    return f"| {one['work']} | {one['timed_by']} | {gbps}{why} |"


def _names(keys: Sequence[str]) -> str:
    return ", ".join(map(_name, keys))


def _name(key: str) -> str:
    return _cell(key.removeprefix(_OF_SUITE).removesuffix("]") if key.startswith(_OF_SUITE) else key)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _percent(fraction: float | None, decimals: int) -> str:
    return "–" if fraction is None else f"{fraction * 100:.{decimals}f}"
