"""Turn an execution's counts into plain figures, compare them with the declaration, and model a floor time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from pytest_bandwidth.devices.base import Workload
from pytest_bandwidth.devices.datasheets import datasheets
from pytest_bandwidth.domain.measured.measurement import DETAIL, NOTE, UNTOUCHED, Finding
from pytest_bandwidth.domain.traffic import Traffic, differ
from pytest_bandwidth.domain.units import format_bytes, format_bytes_against
from pytest_bandwidth.features.traffic.ptx.counts import Counts, Execution
from pytest_bandwidth.frameworks.arrays import framework_of
from pytest_bandwidth.frameworks.base import span_of

LINE_AT_MOST = 120
LINES_AT_MOST = 8
# Limits of a document.
ARRAYS_AT_MOST = LAUNCHES_AT_MOST = 100
# Floor times are modelled for these cards: distinct bytes ÷ the datasheet's peak bandwidth.
MODELLED_CARDS = ("NVIDIA A100-SXM4-80GB", "NVIDIA H100 80GB HBM3", "NVIDIA H200", "NVIDIA GeForce RTX 4090")


def plain_counts(execution: Execution) -> dict[str, int]:
    """Return the counts that a baseline keeps, over the whole grid. Sectors are of 32 bytes."""
    counts, scale = execution.counts, execution.scale
    whole = {
        "load_requests": counts.loads.requests,
        "load_sectors": counts.loads.sectors,
        "load_bytes": counts.loads.bytes_requested,
        "store_requests": counts.stores.requests,
        "store_sectors": counts.stores.sectors,
        "store_bytes": counts.stores.bytes_requested,
        "atomic_requests": counts.atomics.requests,
        "atomic_sectors": counts.atomics.sectors,
        "bank_conflicts": counts.bank_conflicts,
        "local_bytes": counts.local_loads.bytes_requested + counts.local_stores.bytes_requested,
        "divergent_branches": counts.divergent_branches,
    }
    scaled = {name: round(value * scale) for name, value in whole.items()}
    return {**scaled, "distinct_bytes_read": execution.bytes_read, "distinct_bytes_written": execution.bytes_written}


_OF_ARRAY = ("name", "nbytes", "bytes_read", "bytes_written", "role")
_OF_EXECUTION = ("kernel", "blocks", "blocks_run", "sample_spread", "thread_instructions", "lane_occupancy")


def plain_lines(execution: Execution) -> dict[str, Any]:
    """Return loads, stores, arrays and source lines as JSON-ready values."""
    return {
        **_accesses(execution.counts),
        **{name: getattr(execution, name) for name in _OF_EXECUTION},
        "lines": [
            {
                "file": line.file,
                "line": line.line,
                "text": line.text[:LINE_AT_MOST],
                **_accesses(line.counts),
                "bank_conflicts": line.counts.bank_conflicts,
                "divergent_branches": line.counts.divergent_branches,
            }
            for line in execution.lines
            if any(kind.requests for kind in (line.counts.loads, line.counts.stores, line.counts.atomics))
            or line.counts.bank_conflicts
        ],
        "arrays": [
            {name: getattr(array, name) for name in _OF_ARRAY if name != "role" or array.role}
            for array in execution.arrays[:ARRAYS_AT_MOST]
        ],
    }


def plain_launches(executions: Sequence[Execution]) -> dict[str, Any]:
    """Return the first launches as JSON-ready values; consecutive launches that are alike are one row."""
    if len(executions) == 1:
        return {}
    each = ({"kernel": one.kernel, "blocks": one.blocks, **plain_counts(one)} for one in executions)
    found = [{**one, "times": len(list(alike))} for one, alike in groupby(each)]
    return {"launches": found[:LAUNCHES_AT_MOST], "launch_count": len(executions)}


def floor_seconds(execution: Execution) -> dict[str, float]:
    """Return the floor time on each card: distinct bytes ÷ datasheet peak. No kernel can move the bytes faster."""
    moved = execution.bytes_read + execution.bytes_written
    sheets = ((card, sheet) for card in MODELLED_CARDS for sheet in datasheets() if re.fullmatch(sheet.name, card))
    return {card: moved / sheet.gbps / 1e9 for card, sheet in sheets}


def declared_against_seen(declared: Traffic, execution: Execution) -> tuple[Finding, ...]:
    """Report each direction whose declared bytes are not the distinct bytes that the kernel touched.

    If only some blocks were executed, report that instead: their bytes are not those of the grid.
    """
    if execution.sample_spread is not None:
        text = f"{execution.blocks_run} of {execution.blocks} blocks ran: all counts but distinct bytes are scaled"
        return (Finding("sampled-blocks", text),)
    findings = []
    for verb, stated, seen in (
        ("read", declared.bytes_read, execution.bytes_read),
        ("written", declared.bytes_written, execution.bytes_written),
    ):
        if stated != seen:
            of_arrays = [(array.name, getattr(array, f"bytes_{verb}")) for array in execution.arrays]
            touched = [f"{format_bytes(nbytes)} of `{name}`" for name, nbytes in of_arrays if nbytes]
            outside = seen - sum(nbytes for _, nbytes in of_arrays)
            if outside > 0:  # bytes of an allocation outside the view that was passed
                touched.append(f"{format_bytes(outside)} outside the views that it was given")
            shown, touches = format_bytes_against(stated, seen), format_bytes_against(seen, stated)
            text = f"declared {shown} {verb}, the kernel touches {touches}"
            level = NOTE if differ(stated, seen) else DETAIL
            findings.append(Finding(f"declared-bytes-{verb}", f"{text}: {', '.join(touched) or 'nothing'}", level))
    return tuple(findings)


def untouched_arrays(workload: Workload, execution: Execution) -> tuple[Finding, ...]:
    """Report each array that no launch read, or wrote, though it is declared. The total bytes may still agree.

    Returns () where only some blocks were executed: those may leave arrays untouched.
    """
    if execution.sample_spread is not None:
        return ()
    texts = []
    for verb, keyword, arrays in (("read", "reads", workload.reads), ("written", "writes", workload.writes)):
        touched = [(a.address, a.address + a.nbytes) for a in execution.arrays if getattr(a, f"bytes_{verb}")]
        for number, array in enumerate(arrays, start=1):
            framework = framework_of(array)
            extent = None if framework is None else framework.extent(array, f"{keyword}=")
            if extent is None or extent.space != "host":
                continue
            start, end = span_of(extent)
            if start < end and not any(low < end and start < high for low, high in touched):
                texts.append(
                    f"array {number} of {keyword}= ({array.dtype}, {tuple(array.shape)}) is {verb} by no kernel"
                )
    return tuple(Finding(UNTOUCHED, text, NOTE) for text in texts)


def by_line(execution: Execution) -> tuple[Finding, ...]:
    """Report lines that may access global memory before cudaGridDependencySynchronize(), while the previous kernel may
    still run; and lines that called printf().
    """
    early = "global memory is accessed before griddepcontrol.wait, while the kernel launched before may write it"
    found = (
        ("before-wait", early, execution.before_wait),
        ("printf", "printf was called and printed nothing", execution.printed),
    )
    return tuple(
        Finding(code, f"{text}: {', '.join(lines[:LINES_AT_MOST])}", NOTE) for code, text, lines in found if lines
    )


def _accesses(counts: Counts) -> dict[str, Any]:
    names = ("accesses", "requests", "bytes_requested", "sectors", "sectors_per_request", "coalescing")
    return {
        kind: {**{name: getattr(of, name) for name in names}, "pattern": of.describe()}
        for kind, of in (("loads", counts.loads), ("stores", counts.stores), ("atomics", counts.atomics))
    }
