"""Declare the columns of the history's table, and turn a run's document into rows, one a measurement."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.values import mapping
from pytest_bandwidth.storage.saved_run import began
from pytest_bandwidth.storage.schema_check import LARGEST_COUNT

TEXT_AT_MOST = 20_000
# A run's id is its file's name.
_RUN_ID = re.compile(r"(?!merged-)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")
_SECTORS = ("load_sectors", "store_sectors", "atomic_sectors")

Document = Mapping[str, Any]
Value = Callable[[Document, Outcome], object]


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one column: its name, its type in SQL, what it means, and where its value comes from."""

    name: str
    type: str
    meaning: str
    value: Value


def _told(name: str, kind: type) -> Value:
    def value(run: Document, _: Outcome) -> object:
        found = run["environment"].get(name)
        return found if isinstance(found, kind) else None

    return value


def _after(name: str) -> Value:
    return lambda _, row: mapping(row.conditions, "after").get(name)


def _dram(name: str) -> Value:
    return lambda _, row: mapping(row.detail, "dram").get(name)


COLUMNS = (
    Column("run_id", "VARCHAR", "the run; sorts by time", lambda run, _: run_id_of(run)),
    Column("started_at", "TIMESTAMP", "when the run started, UTC", lambda run, _: _moment(run)),
    Column("commit", "VARCHAR", "the tests' commit, its full hash", _told("commit", str)),
    Column("uncommitted", "BOOLEAN", "whether what ran may be other than it holds", _told("uncommitted_changes", bool)),
    Column("host", "VARCHAR", "the machine's name", _told("host", str)),
    Column("ci", "BOOLEAN", "whether CI said that it ran", _told("ci", bool)),
    Column("plugin", "VARCHAR", "version of pytest-bandwidth", _told("plugin", str)),
    Column("device_kind", "VARCHAR", "cuda, cpu or traffic", lambda run, _: run["device"]["kind"]),
    Column("device", "VARCHAR", "the device's model", lambda run, _: run["device"]["name"]),
    Column(
        "serial",
        "VARCHAR",
        "of the card or host: distinguishes two of one model",
        lambda run, _: run["device"]["serial"],
    ),
    Column("test", "VARCHAR", "the baseline's key: node id, and label", lambda _, row: row.key),
    Column("status", "VARCHAR", "the verdict", lambda _, row: row.status),
    Column("reason_code", "VARCHAR", "the rule that gave it", lambda _, row: row.reason_code),
    Column("is_valid", "BOOLEAN", "false for what was disturbed or is impossible", lambda _, row: row.is_valid),
    Column("figure", "VARCHAR", "what was judged: relative, gbps or null", lambda _, row: row.verdict.get("figure")),
    Column("gbps", "DOUBLE", "achieved bandwidth, GB/s", lambda _, row: row.gbps),
    Column("probe_gbps", "DOUBLE", "the probe's, GB/s", lambda _, row: row.probe_gbps),
    Column("relative", "DOUBLE", "kernel ÷ probe, median over the rounds", lambda _, row: row.relative),
    Column(
        "utilization",
        "DOUBLE",
        "share of the device's peak, null where that is unknown",
        lambda _, row: row.utilization if row.utilization_of == "peak" else None,
    ),
    Column("seconds", "DOUBLE", "median of one run on the device", lambda _, row: row.seconds),
    Column("noise", "DOUBLE", "IQR ÷ median of the samples", lambda _, row: row.noise),
    Column("samples", "BIGINT", "how many", lambda _, row: len(row.samples)),
    Column("bytes_read", "BIGINT", "declared distinct bytes of one run", lambda _, row: row.bytes_read),
    Column("bytes_written", "BIGINT", "declared distinct bytes of one run", lambda _, row: row.bytes_written),
    Column("sectors", "BIGINT", "32-byte sectors moved (traffic device)", lambda _, row: _sectors(row)),
    Column("method", "VARCHAR", "how time was taken", lambda _, row: row.method),
    Column("drop", "DOUBLE", "against the baseline; negative for a gain", lambda _, row: row.verdict.get("drop")),
    Column("allowed_drop", "DOUBLE", "the drop that is let pass", lambda _, row: row.verdict.get("allowed_drop")),
    Column("sm_clock_mhz", "DOUBLE", "after the samples", _after("sm_clock_mhz")),
    Column("temperature_c", "DOUBLE", "after the samples", _after("temperature_c")),
    Column("dram_read", "BIGINT", "bytes that DRAM read, by hardware counters", _dram("bytes_read")),
    Column("dram_written", "BIGINT", "bytes that DRAM wrote, by hardware counters", _dram("bytes_written")),
    Column("l2_sectors_read", "BIGINT", "32-byte sectors read of L2, by hardware counters", _dram("l2_sectors_read")),
    Column(
        "l2_sectors_written",
        "BIGINT",
        "32-byte sectors written to L2, by hardware counters",
        _dram("l2_sectors_written"),
    ),
    Column(
        "code", "VARCHAR", "hash of what ran and how it was launched, null where unknown", lambda _, row: _code(row)
    ),
)
FORM: tuple[tuple[str, str], ...] = tuple((column.name, column.type) for column in COLUMNS)


def run_id_of(document: Document) -> str:
    """Return the run's id. Raises UsageError for one that could name anything but a file in the history's folder."""
    run_id = document["run_id"]
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise UsageError(f"run_id is {shown(run_id)}, expected letters, digits, dots and dashes, at most 100")
    return run_id


def columns_of(document: Document, outcomes: Sequence[Outcome]) -> list[list[object]]:
    """Return the run's values, a list for each of COLUMNS. Raises UsageError for a run that makes no row.

    document: a whole run in the form that `--bandwidth-json` writes; outcomes: its results.
    """
    return [[_kept(column.value(document, one), column.type) for one in outcomes] for column in COLUMNS]


def _kept(value: object, type_: str) -> object:
    """Return the value where a column of that type can hold it, else None: a gap beats no history."""
    if value is None:
        return None
    if type_ == "VARCHAR":
        return str(value)[:TEXT_AT_MOST].encode("utf-8", "backslashreplace").decode()
    if type_ == "DOUBLE":
        return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
    if type_ == "BIGINT":
        return value if isinstance(value, int) and abs(value) <= LARGEST_COUNT else None
    return value


def _moment(document: Document) -> str:
    return began(document["environment"]).strftime("%Y-%m-%d %H:%M:%S")


def _sectors(outcome: Outcome) -> int | None:
    found = [outcome.counts[name] for name in _SECTORS if name in outcome.counts]
    return sum(found) if found else None


def _code(outcome: Outcome) -> str | None:
    return identity_of_plain(outcome.code_identity).fingerprint(by="ptx" if outcome.counts else "sass")
