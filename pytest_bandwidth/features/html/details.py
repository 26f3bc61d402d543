"""Write what the HTML summary shows of one result when its row is opened: finished text, grouped."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Mapping
from typing import Any

from pytest_bandwidth.domain.text import escaped
from pytest_bandwidth.domain.units import digits, format_bytes, format_gbps, format_percent, format_seconds
from pytest_bandwidth.features.html.detail_charts import figure_name, own_figure, reference_name, runs_of, samples_of
from pytest_bandwidth.judging.limits import floor_of
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.columns import Column, SmallTable
from pytest_bandwidth.reports.related import precision_of
from pytest_bandwidth.reports.summary import signed_percent
from pytest_bandwidth.reports.text_safe import clean, one_line, prose, scalar_text
from pytest_bandwidth.reports.values import mapping, number, sequence, text

Facts = list[tuple[str, str]]
ROWS_AT_MOST, FACT_AT_MOST = 100, 400
# How a key names the file of a test that --pyargs found.
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", re.ASCII)
COMMAND_AT_MOST = 300
CODE_AT_MOST = 40_000
_CODE = {"same": "the baseline's", "changed": "changed since the baseline"}


def detail_of(outcome: Outcome, samples_at_most: int, found: Iterable[Column]) -> dict[str, Any]:
    """Return one result's panel. Keys without content are left out; every string is cleaned and bounded.

    found: the columns of details.
    """
    facts, tables = _facts_and_tables(outcome, found)
    panel: dict[str, Any] = {
        "name": clean(outcome.key),
        "reason": prose(outcome.reason),
        "message": prose(outcome.message or ""),
        "source": _source(outcome),
        "command": _command(outcome),
        "findings": [[clean(text(note, "code"), 80), prose(text(note, "text"))] for note in outcome.findings],
        "verdict": _verdict_facts(outcome),
        "measured": _measured_facts(outcome),
        "work": _work_facts(outcome, facts),
        "conditions": _conditions(outcome),
        "tables": tables,
        "code": escaped(outcome.code_diff[:CODE_AT_MOST]),
        "history": runs_of(outcome),
        "samples": samples_of(outcome, samples_at_most),
    }
    return {name: value for name, value in panel.items() if value}


def _verdict_facts(outcome: Outcome) -> Facts:
    verdict, baseline = outcome.verdict, outcome.baseline or {}
    show = _shower(figure_name(outcome))
    # A floor on a share of the peak: its limit and the fresh processes are shares, the row's own figure GB/s.
    compared = _shower("relative") if floor_of(text(verdict, "rule")) == "min_utilization" else show
    tolerance = number(verdict, "tolerance")
    runs, spread = number(verdict, "runs"), number(verdict, "spread")
    facts = [
        ("judged on", _figure_words(verdict)),
        ("this run", _optional(own_figure(outcome), show)),
        ("compared", _optional(number(verdict, "observed"), compared)),
        (reference_name(outcome), _optional(number(verdict, "reference"), compared)),
        ("change", _optional(number(verdict, "drop"), lambda v: signed_percent(-v))),
        ("allowed drop", _percent(number(verdict, "allowed_drop"))),
        ("detects", _percent(number(verdict, "detects"))),
        ("costs at least", _percent(number(verdict, "low"))),
        ("costs at most", _percent(number(verdict, "high"))),
        ("tolerance", _percent(tolerance)),
        ("runs", _optional(runs, lambda v: f"{v:.0f}" if v else "none: written by hand")),
        ("between-run spread", _optional(spread, lambda v: format_percent(v, 2))),
        ("new processes", ", ".join(compared(v) for v in sequence(verdict, "confirmations")[:20])),
        ("expected to fail", one_line(text(baseline, "xfail"), 400)),
        ("note", one_line(text(baseline, "note"), 400)),
        ("profile", one_line(outcome.profile or "", 400)),
    ]
    return _known(facts)


def _measured_facts(outcome: Outcome) -> Facts:
    kept, dropped = len(outcome.samples), list(outcome.dropped)
    codes = sorted({one_line(text(d, "code"), 40) for d in dropped})
    facts = [
        ("achieved", _optional(outcome.gbps, format_gbps)),
        ("of peak", _percent(outcome.valid_utilization) if outcome.utilization_of == "peak" else ""),
        ("class", one_line(outcome.utilization_class or "", 40) if outcome.is_valid else ""),
        ("probe", _probe(outcome)),
        ("of probe", _percent(outcome.valid_relative)),
        ("median time", _optional(outcome.seconds, format_seconds)),
        ("host time", _optional(outcome.host_seconds, format_seconds)),
        ("noise (IQR ÷ median)", _percent(outcome.noise)),
        ("standard error of median", _optional(outcome.median_precision, lambda v: format_percent(v, 2))),
        ("samples", f"{kept} kept, {len(dropped)} dropped" if kept or dropped else ""),
        ("dropped for", ", ".join(codes[:10])),
        ("a thread waited for a processor", _optional(outcome.run_delay, lambda v: f"{format_percent(v)} of the time")),
        ("stopped by", one_line(outcome.stop, 40) if kept else ""),
        ("warm-up", _warmup(outcome)),
        ("timing method", one_line(outcome.method, 60)),
        ("launches in a sample's graph", _optional(number(outcome.detail, "graph_launches"), lambda v: f"{v:.0f}")),
    ]
    return _known(facts)


def _work_facts(outcome: Outcome, facts_of_columns: Facts) -> Facts:
    facts = [
        ("bytes read", format_bytes(outcome.bytes_read)),
        ("bytes written", format_bytes(outcome.bytes_written)),
        ("asked for by loads", _optional(outcome.requested_read, format_bytes)),
        ("asked for by stores", _optional(outcome.requested_written, format_bytes)),
        ("FLOP", digits(float(outcome.flop)) if outcome.flop < 1e6 else f"{float(outcome.flop):.4g}"),
        ("precision", one_line(precision_of(outcome) or "", 40)),
        (
            "arithmetic intensity",
            _optional(outcome.arithmetic_intensity, lambda v: f"{digits(v)} FLOP/byte" if v else ""),
        ),
        ("ridge point", _optional(outcome.ridge_point, lambda v: f"{digits(v)} FLOP/byte")),
        ("regime", _regime(outcome)),
        ("bottleneck", one_line(outcome.bottleneck or "", 400)),
        ("code", _CODE.get(outcome.code_standing or "", "")),
        *facts_of_columns,
        *((one_line(k, 60).replace("_", " "), scalar_text(v)) for k, v in list((outcome.resources or {}).items())[:20]),
        *((one_line(k, 60).replace("_", " "), scalar_text(v)) for k, v in list(outcome.counts.items())[:40]),
        *((one_line(k, 60), scalar_text(v)) for k, v in list(outcome.tags.items())[:20] if k != "precision"),
    ]
    return [(label, value) for label, value in _known(facts) if value != "–"]


_CONDITIONS = (
    ("SM clock", "sm_clock_mhz", "MHz"),
    ("memory clock", "memory_clock_mhz", "MHz"),
    ("temperature", "temperature_c", "°C"),
    ("power", "power_w", "W"),
    ("load average", "load_average", ""),
    ("processors used by others", "others_processors", ""),
)


def _conditions(outcome: Outcome) -> list[tuple[str, str, str]]:
    """Return rows of (what, before, after) for whatever could be read."""
    before, after = (mapping(outcome.conditions, when) for when in ("before", "after"))
    rows = []
    for label, name, unit in _CONDITIONS:
        if name in before or name in after:
            shown = [_with_unit(number(state, name), unit) for state in (before, after)]
            if shown != ["–", "–"]:
                rows.append((label, shown[0], shown[1]))
    for label, name in (("event reasons", "event_reasons"), ("others on the device", "others")):
        listed = [scalar_text(sequence(state, name)) for state in (before, after)]
        if any(listed):
            rows.append((label, listed[0] or "none", listed[1] or "none"))
    return rows


def _with_unit(value: float | None, unit: str) -> str:
    return "–" if value is None else f"{value:.4g} {unit}".rstrip()


def _facts_and_tables(outcome: Outcome, found: Iterable[Column]) -> tuple[Facts, list[dict[str, Any]]]:
    """Return what columns say of a result in its panel: facts, and small tables."""
    facts: Facts = []
    tables: list[dict[str, Any]] = []
    for column in found:
        value = column.value(outcome)
        if isinstance(value, SmallTable):
            rows = [[scalar_text(cell) for cell in row] for row in value.rows[:ROWS_AT_MOST]]
            more = value.more + max(0, len(value.rows) - ROWS_AT_MOST)
            head = [one_line(heading, 40) for heading in value.head]
            tables.append({"title": clean(value.title, FACT_AT_MOST), "head": head, "rows": rows, "more": more})
        elif value is not None:
            facts.append((one_line(column.heading, 60), clean(column.text(value), FACT_AT_MOST)))
    return facts, tables


def _figure_words(verdict: Mapping[str, Any]) -> str:
    return {"relative": "share of the probe", "gbps": "GB/s"}.get(text(verdict, "figure"), "")


def _shower(figure: str) -> Any:
    return (lambda v: format_percent(v, 1)) if figure == "relative" else format_gbps


def _probe(outcome: Outcome) -> str:
    name = one_line(text(outcome.probe, "name"), 60)
    rate = _optional(outcome.probe_gbps, format_gbps)
    return f"{rate} ({name})" if rate and name else rate or name


def _warmup(outcome: Outcome) -> str:
    if not outcome.warmup_runs:
        return ""
    return f"{outcome.warmup_runs} runs in {format_seconds(outcome.warmup_seconds)}"


def _regime(outcome: Outcome) -> str:
    regime, evidence = one_line(outcome.regime or "", 40), one_line(outcome.regime_evidence or "", 400)
    return f"{regime}: {evidence}" if regime and evidence else regime


def _source(outcome: Outcome) -> str:
    if not outcome.file:
        return ""
    return one_line(outcome.file if outcome.line is None else f"{outcome.file}:{outcome.line}", 400)


def _command(outcome: Outcome) -> str:
    """Return how to run the test again; none where its id holds what a terminal would not show as it is."""
    if len(outcome.nodeid) > COMMAND_AT_MOST or not outcome.nodeid.isprintable() or outcome.nodeid.startswith("-"):
        return ""
    if clean(outcome.nodeid) != outcome.nodeid:
        return ""
    module, _, test = outcome.key.removesuffix(f" @ {outcome.label}").partition("::")
    file, _, same = outcome.nodeid.partition("::")
    if module != file and test == same and _MODULE.fullmatch(module):
        return "pytest --pyargs " + shlex.quote(f"{module}::{test}")
    return "pytest " + shlex.quote(outcome.nodeid)


def _optional(value: float | None, show: Any) -> str:
    return "" if value is None else str(show(value))


def _percent(value: float | None) -> str:
    return "" if value is None else format_percent(value, 1)


def _known(facts: Facts) -> Facts:
    return [(label, value) for label, value in facts if value]
