"""Write the CSV table: one line for each result, for spreadsheets and data frames."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from pytest_bandwidth.features.traffic.accesses_text import patterns_text, sectors_text
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.related import PrecisionPair, precision_of, precision_pairs
from pytest_bandwidth.reports.text_safe import clean, printable_sentence
from pytest_bandwidth.reports.values import number, text

Cell = str | int | float | None

# The first nine are the benchmark table that other tools read: their names and order stay.
COLUMNS = (
    *("operation", "precision", "M", "N", "K", "time_ms", "bandwidth_gb_s", "bytes_read", "bytes_written"),
    *("nodeid", "label", "status", "reason_code", "reason"),
    *("utilization", "utilization_of", "relative", "probe_gb_s", "noise", "samples", "method"),
    *("flop", "arithmetic_intensity", "ridge_point", "regime"),
    *("judged_on", "observed", "reference", "drop", "allowed_drop", "detects", "tolerance", "runs"),
    *("fp16_over_fp32_gb_s", "fp16_over_fp32_time", "file", "line"),
    *("dram_read", "dram_written", "dram_ratio", "dram_gb_s", "l2_sectors_read", "l2_sectors_written"),
    *("load_sectors", "store_sectors", "atomic_sectors", "sectors_per_request", "access"),
)
# What a spreadsheet would take for a formula, full-width forms among it (OWASP, CSV Injection), after any white space.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")
_SPACE = ("\t", "\n")


def render_csv(outcomes: Iterable[Outcome]) -> str:
    """Render a header and a line a result; milliseconds, GB/s, bytes and fractions; an empty cell for no figure.

    Every cell is quoted: a spreadsheet that separates by another character must not find cells inside of texts.
    The FP16 half of a pair carries both its ratios to the FP32 half.
    """
    rows = list(outcomes)
    pairs = {id(pair.fp16): pair for pair in precision_pairs(rows)}
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL)
    writer.writerow(COLUMNS)
    for outcome in rows:
        writer.writerow([written(cell) for cell in _cells(outcome, pairs.get(id(outcome)))])
    return buffer.getvalue()


def _cells(outcome: Outcome, pair: PrecisionPair | None) -> Sequence[Cell]:
    verdict, tags = outcome.verdict, outcome.tags
    return (
        _operation(outcome),
        precision_of(outcome),
        *(_whole(tags.get(name)) for name in ("M", "N", "K")),
        None if outcome.seconds is None else outcome.seconds * 1e3,
        outcome.gbps,
        outcome.bytes_read,
        outcome.bytes_written,
        *(outcome.nodeid, outcome.label, outcome.status, outcome.reason_code, outcome.reason),
        *(outcome.valid_utilization, outcome.utilization_of if outcome.valid_utilization is not None else None),
        *(outcome.valid_relative, outcome.probe_gbps, outcome.noise, len(outcome.samples), outcome.method),
        *(outcome.flop, outcome.arithmetic_intensity, outcome.ridge_point, outcome.regime),
        text(verdict, "figure"),
        *(number(verdict, name) for name in ("observed", "reference", "drop", "allowed_drop", "detects", "tolerance")),
        number(verdict, "runs"),
        *((pair.bandwidth_ratio, pair.time_ratio) if pair else (None, None)),
        *(outcome.file, outcome.line),
        *(outcome.dram_read, outcome.dram_written, outcome.dram_ratio, outcome.dram_gbps),
        *(_whole(outcome.dram.get(name)) for name in ("l2_sectors_read", "l2_sectors_written")),
        *(_whole(outcome.counts.get(name)) for name in ("load_sectors", "store_sectors", "atomic_sectors")),
        *(sectors_text(outcome) or None, patterns_text(outcome) or None),
    )


def _operation(outcome: Outcome) -> str:
    named = outcome.tags.get("operation")
    if isinstance(named, str):
        return named
    test = outcome.nodeid.partition("[")[0].rsplit("::", 1)[-1]
    return test.removeprefix("test_")


def _whole(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def line_of(cell: Cell) -> str | int:
    """Return a cell of a table that another program or a log of CI reads: as `written`, on one line."""
    return written(printable_sentence(cell) if isinstance(cell, str) else cell)


def written(cell: Cell) -> str | int:
    """Return a cell as a spreadsheet may have it: no text that it would take for a formula."""
    if cell is None:
        return ""
    if isinstance(cell, float):
        return f"{cell:.9g}"
    if isinstance(cell, int):
        return cell
    shown = clean(cell)
    return f"'{shown}" if shown.startswith(_SPACE) or shown.lstrip().startswith(_FORMULA) else shown
