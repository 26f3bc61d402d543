"""Read datasheet figures from `datasheets.csv`: memory bandwidth and dense FLOP/s of each card."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

# The table's names of precisions, by the names of dtypes.
PRECISION_OF_DTYPE = {"float64": "fp64", "float32": "fp32", "float16": "fp16", "bfloat16": "bf16", "half": "fp16"}


@dataclass(frozen=True, slots=True)
class Datasheet:
    """Describe one card. name: regular expression for the whole device name; gfx: AMD's architecture, used instead.

    gbps in GB/s (10⁹ bytes/s); tflops in 10¹² FLOP/s by precision, operations/s of `int8-tensor`; memory_gib where
    cards of one name differ in it.
    """

    name: str
    gbps: float
    source: str
    tflops: Mapping[str, float] = field(default_factory=dict)
    gfx: str | None = None
    memory_gib: float | None = None


@cache
def datasheets() -> tuple[Datasheet, ...]:
    """Return all cards in the table."""
    lines = Path(__file__).with_suffix(".csv").read_text(encoding="utf-8").splitlines()
    found = []
    for row in csv.DictReader(line for line in lines if not line.startswith("#")):
        name, gbps, source, gfx, gib = (row.pop(column) for column in ("name", "gbps", "source", "gfx", "memory_gib"))
        tflops = {precision: float(rate) for precision, rate in row.items() if rate}
        found.append(Datasheet(name, float(gbps), source, tflops, gfx or None, float(gib) if gib else None))
    return tuple(found)


def precisions() -> tuple[str, ...]:
    """Return the precisions for which the table has some card's FLOP/s."""
    return tuple(sorted({precision for sheet in datasheets() for precision in sheet.tflops}))
