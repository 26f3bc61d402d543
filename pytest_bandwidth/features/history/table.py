"""Declare the columns of the history's table, and take their values out of a run's document."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import shown
from pytest_bandwidth.outcomes.outcome import Outcome, mapping
from pytest_bandwidth.storage.saved_run import LARGEST_COUNT, began

TEXT_AT_MOST = 20_000
# A run's id is its file's name.
_RUN_ID = re.compile(r"(?!merged-)[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

Document = Mapping[str, Any]
Value = Callable[[Document, Outcome], object]


@dataclass(frozen=True, slots=True)
class Column:
    """Describe one column: its name, its type in SQL, its meaning, and the source of its value.

    value: None for the field of that name in a row of the document.
    """

    name: str
    type: str
    meaning: str
    value: Value | None = None

    def of(self, document: Document, outcome: Outcome) -> object:
        """Return a row's value if the column can hold it, else None: a gap is better than no history."""
        value = getattr(outcome, self.name) if self.value is None else self.value(document, outcome)
        if self.type == "VARCHAR":
            if not isinstance(value, str):
                return None
            return value[:TEXT_AT_MOST].encode("utf-8", "backslashreplace").decode()
        if self.type == "DOUBLE":
            return float(value) if isinstance(value, int | float) and math.isfinite(value) else None
        if self.type == "BIGINT":
            return value if isinstance(value, int) and abs(value) <= LARGEST_COUNT else None
        return value if self.type != "BOOLEAN" or isinstance(value, bool) else None


def _of_run(name: str) -> Value:
    return lambda run, _: run["environment"].get(name)


def _device(name: str) -> Value:
    return lambda run, _: run["device"][name]


def _verdict(name: str) -> Value:
    return lambda _, row: row.verdict.get(name)


def _after(name: str) -> Value:
    return lambda _, row: mapping(row.conditions, "after").get(name)


def _dram(name: str) -> Value:
    return lambda _, row: mapping(row.detail, "dram").get(name)


def _sectors(_: Document, row: Outcome) -> int | None:
    names = ("load_sectors", "store_sectors", "atomic_sectors")
    found = [row.counts[name] for name in names if name in row.counts]
    return sum(found) if found else None


def _code(_: Document, row: Outcome) -> str | None:
    return identity_of_plain(row.code_identity).fingerprint(by="ptx" if row.counts else "sass")


COLUMNS = (
    Column("run_id", "VARCHAR", "the run; sorts by time", lambda run, _: run_id_of(run)),
    Column(
        "started_at",
        "TIMESTAMP",
        "when the run started, UTC",
        lambda run, _: began(run["environment"]).strftime("%Y-%m-%d %H:%M:%S"),
    ),
    Column("commit", "VARCHAR", "the tests' commit, its full hash", _of_run("commit")),
    Column("uncommitted", "BOOLEAN", "whether what ran may differ from that commit", _of_run("uncommitted_changes")),
    Column("host", "VARCHAR", "the machine's name", _of_run("host")),
    Column("ci", "BOOLEAN", "whether the run was in CI", _of_run("ci")),
    Column("plugin", "VARCHAR", "version of pytest-bandwidth", _of_run("plugin")),
    Column("device_kind", "VARCHAR", "cuda, cpu or traffic", _device("kind")),
    Column("device", "VARCHAR", "the device's model", _device("name")),
    Column("serial", "VARCHAR", "of the card or host: distinguishes two of one model", _device("serial")),
    Column("test", "VARCHAR", "the baseline's key: node id, and label", lambda _, row: row.key),
    Column("status", "VARCHAR", "the verdict"),
    Column("reason_code", "VARCHAR", "the rule that gave it"),
    Column("is_valid", "BOOLEAN", "false for what was disturbed or is impossible"),
    Column("figure", "VARCHAR", "what was judged: relative, gbps or null", _verdict("figure")),
    Column("gbps", "DOUBLE", "achieved bandwidth, GB/s"),
    Column("probe_gbps", "DOUBLE", "the probe's, GB/s"),
    Column("relative", "DOUBLE", "kernel ÷ probe, median over the rounds"),
    Column(
        "utilization", "DOUBLE", "share of the device's peak, null where that is unknown", lambda _, row: row.of_peak
    ),
    Column("seconds", "DOUBLE", "median of one run on the device"),
    Column("noise", "DOUBLE", "IQR ÷ median of the samples"),
    Column("samples", "BIGINT", "how many", lambda _, row: len(row.samples)),
    Column("bytes_read", "BIGINT", "declared distinct bytes of one run"),
    Column("bytes_written", "BIGINT", "declared distinct bytes of one run"),
    Column("sectors", "BIGINT", "32-byte sectors moved (traffic device)", _sectors),
    Column("method", "VARCHAR", "how time was taken"),
    Column("drop", "DOUBLE", "against the baseline; negative for a gain", _verdict("drop")),
    Column("allowed_drop", "DOUBLE", "the allowed drop", _verdict("allowed_drop")),
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
    Column("code", "VARCHAR", "hash of the code and its launch, null where unknown", _code),
)
FORM: tuple[tuple[str, str], ...] = tuple((column.name, column.type) for column in COLUMNS)


def run_id_of(document: Document) -> str:
    """Return the run's id. Raises UsageError for one that could name anything but a file in the history's folder."""
    run_id = document["run_id"]
    if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
        raise UsageError(f"run_id is {shown(run_id)}, expected letters, digits, dots and dashes, at most 100")
    return run_id
