"""Hold the values that the fleet's modules exchange: a card, its task, and the outcome.

This module reads what a card's node sent: a saved run, or the reason why it is missing. All of it is checked first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

import pytest

from pytest_bandwidth.domain.code.identity import digest
from pytest_bandwidth.domain.code.ptx_normal_form import ptx_digest
from pytest_bandwidth.domain.code.stored_kernel import cubin_of_text
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import escaped
from pytest_bandwidth.domain.units import counted, format_bytes, format_seconds
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.options.options import read_marker
from pytest_bandwidth.outcomes.outcome import Outcome, Plain
from pytest_bandwidth.reports.summary import by_attention
from pytest_bandwidth.reports.text_safe import one_line
from pytest_bandwidth.session.publishing.gathered import DeviceResults, Row
from pytest_bandwidth.storage.saved_run import check_plain, checked, parsed

LONGEST_REASON, LONGEST_LINE, LONGEST_NAME = 400, 300, 200
_TESTS_FAILED, _NO_TESTS = 1, 5
_ENDS_WITH_RESULTS = (0, _TESTS_FAILED)


@dataclass(frozen=True, slots=True)
class Card:
    """Hold one GPU of the cluster, or one node.

    number: unique within the run. name: for messages, ``host GPU 3`` once Ray has assigned the GPU.
    node: its name for messages. node_id: Ray's. host, address: the node's. model: of its GPUs, from Ray; "" where it is
    unknown. gpus: how many its task reserves.
    """

    number: int
    name: str
    node: str
    node_id: str
    host: str
    address: str
    model: str
    gpus: int


@dataclass(frozen=True, slots=True)
class Task:
    """Hold the task of every card.

    arguments: of pytest. folder: the checkout on the card's node; None for the one that Ray ships. python: the
    interpreter there; None for the one that Ray runs. timeout_seconds: of pytest. baseline: the name of the caller's
    file or folder, None without one; files: what it holds, by path from the folder that it lies in.
    """

    arguments: tuple[str, ...]
    folder: str | None
    python: str | None
    timeout_seconds: float
    baseline: str | None = None
    is_folder: bool = False
    files: Mapping[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Returned:
    """Hold what came back from a card's node: `on_node.Runner.run` describes the fields."""

    status: int | None
    seconds: float
    tail: tuple[str, ...] = ()
    document: bytes | None = None
    document_bytes: int = 0
    evidence: bytes | None = None
    plugin: str | None = None
    python: str = ""
    ray_processors: float | None = None


@dataclass(frozen=True, slots=True)
class Lost:
    """Hold why nothing came back, whether another attempt on that node may succeed, and Ray's last messages."""

    reason: str
    can_retry: bool
    tail: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CardRow:
    """Hold a card's row of the fleet's table and document.

    state: measured, failed (a test did) or missing. reason, tail: why, and the last lines of its output. device: a
    document's. statuses, gbps: of its run, by verdict and by test. ray_processors: what Ray's own processes on its node
    used before it began; None where that is unknown.
    """

    card: Card
    state: str
    seconds: float
    attempts: int
    reason: str = ""
    tail: tuple[str, ...] = ()
    device: Mapping[str, Any] | None = None
    statuses: Mapping[str, int] = field(default_factory=dict)
    gbps: Mapping[str, float] = field(default_factory=dict)
    ray_processors: float | None = None


# ---- what a card's node sent -----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Evidence:
    """Hold what an update needs in addition to the document: further whole runs; by key, markers and code to keep."""

    further: list[list[Plain]] = field(default_factory=list)
    asked: Mapping[str, MarkerOptions] = field(default_factory=dict)
    code: Mapping[str, Any] = field(default_factory=dict)


def read_result(
    card: Card, outcome: Returned | Lost, attempts: int, seconds: float, timeout_seconds: float
) -> tuple[CardRow, DeviceResults | None]:
    """Return a card's row, and its device's results; None for a card that did not report.

    outcome: of the last of so many attempts; seconds: of all of them; timeout_seconds: of pytest.
    """

    def missing(reason: str) -> tuple[CardRow, None]:
        text = one_line(reason, LONGEST_REASON)
        return CardRow(card, "missing", seconds, attempts, text, _lines(outcome)), None

    if isinstance(outcome, Lost):
        return missing(outcome.reason)
    if outcome.document is None or outcome.status not in _ENDS_WITH_RESULTS:
        return missing(_why_nothing(outcome, timeout_seconds))
    try:
        document, outcomes = checked(parsed(outcome.document, "its document"), "its document")
        for name in ("name", "serial"):
            if (length := len(document["device"][name])) > LONGEST_NAME:
                raise UsageError(f"its device's {name} has {length} characters, expected {LONGEST_NAME} at most")
        evidence = _evidence(outcome.evidence, document)
    except UsageError as error:
        return missing(f"refused: {error}")
    results = DeviceResults(
        document["device"],
        tuple(_row(outcome, evidence) for outcome in outcomes),
        further=evidence.further,
        findings=document.get("findings") or (),
        environment=document.get("environment") or {},
    )
    row = CardRow(
        card,
        "measured" if outcome.status == 0 else "failed",
        outcome.seconds,
        attempts,
        "" if outcome.status == 0 else _failed(outcomes),
        _lines(outcome) if outcome.status else (),
        document["device"],
        dict(Counter(o.status for o in outcomes)),
        {o.key: o.gbps for o in outcomes if o.gbps and o.is_valid},
        outcome.ray_processors,
    )
    return row, results


def refused(row: CardRow, reason: str) -> CardRow:
    """Return the row of a card whose results were read, but do not count."""
    return CardRow(row.card, "missing", row.seconds, row.attempts, reason, row.tail, row.device)


def _lines(returned: Returned | Lost) -> tuple[str, ...]:
    return tuple(escaped(str(line)[:LONGEST_LINE]) for line in returned.tail)


def _why_nothing(returned: Returned, timeout_seconds: float) -> str:
    if returned.status is None:
        return f"pytest did not end in {format_seconds(timeout_seconds)}, and was ended"
    if returned.document_bytes and returned.document is None:
        return f"refused: its document has {format_bytes(returned.document_bytes)}, expected a saved run"
    if returned.plugin == "":
        return f"{returned.python} finds no pytest-bandwidth: install it there, or name an interpreter with --python"
    if returned.status in (0, _NO_TESTS):
        return "no bandwidth test ran"
    how = f"exit status {returned.status}" if returned.status >= 0 else f"signal {-returned.status}"
    result = "" if returned.document is not None else " and measured nothing"
    # For refused arguments, pytest's output gives the reason.
    is_usage = returned.status == pytest.ExitCode.USAGE_ERROR
    errors = [line.removeprefix("ERROR: ") for line in returned.tail if is_usage and line.startswith("ERROR: ")]
    refusal = f": {escaped(errors[-1])}" if errors else ""
    return f"pytest ended with {how}{result}{refusal}"


def _failed(outcomes: list[Outcome]) -> str:
    """Name the failed tests, the worst first, as far as the document names them."""
    messages = [outcome.short_name for outcome in by_attention(outcomes, strict=False) if outcome.message]
    if not messages:
        return "tests failed"
    others = len(messages) - 1
    return f"{messages[0]} failed" + (f", and {counted(others, 'other')}" if others else "")


def _evidence(data: bytes | None, document: Mapping[str, Any]) -> _Evidence:
    """Read the evidence that an update needs; empty if the card sent no evidence. Raises UsageError."""
    if data is None:
        return _Evidence()
    content = parsed(data, "its evidence")
    if not isinstance(content, dict) or not isinstance(content.get("further"), list):
        raise UsageError("its evidence: found no further runs, expected a list of them")
    check_plain(content)
    further = []
    for rows in content["further"]:
        _, outcomes = checked({**document, "results": rows}, "its further runs")
        further.append([outcome.to_plain() for outcome in outcomes])
    asked, code = content.get("asked"), content.get("code")
    if not isinstance(asked, dict) or not isinstance(code, dict):
        raise UsageError("its evidence: found no markers or no code, expected a mapping of each")
    markers = {}
    for key, marker in asked.items():
        # Arguments that a newer plugin may have added are dropped.
        given = marker if isinstance(marker, dict) else {}
        named = {f.name: given[f.name] for f in fields(MarkerOptions) if given.get(f.name) is not None}
        markers[key] = read_marker([pytest.mark.bandwidth(**named).mark])
    return _Evidence(further, markers, code)


def _row(outcome: Outcome, evidence: _Evidence) -> Row:
    """Return the outcome with the code to keep, without code that does not match the outcome's hashes."""
    asked, code = evidence.asked.get(outcome.key, MarkerOptions()), evidence.code.get(outcome.key)
    given = code if isinstance(code, dict) else {}
    ptx, files, known = given.get("ptx"), given.get("files"), outcome.code_identity
    is_ptx = isinstance(ptx, str) and ptx_digest(ptx) == known.get("ptx")
    is_list = isinstance(files, str) and digest(files) == known.get("function")
    cubin = cubin_of_text(given.get("cubin")) if is_ptx else None
    return Row(outcome, asked, ptx if is_ptx else None, cubin, files if is_list else None)
