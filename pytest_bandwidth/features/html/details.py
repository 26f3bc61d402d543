"""Write the panel of one result, which the HTML summary shows when its row is opened: finished text, grouped."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pytest_bandwidth.domain.text import escaped
from pytest_bandwidth.domain.units import digits, format_bytes, format_gbps, format_percent, format_seconds
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.judging.limits import OF_PEAK, floor_of, is_of_resources
from pytest_bandwidth.outcomes.outcome import Outcome, mapping, number, sequence, text
from pytest_bandwidth.reports.columns import Column, SmallTable, percent, precision_of, sol_text
from pytest_bandwidth.reports.text_safe import clean, one_line, prose, scalar_text

Facts = list[tuple[str, str]]
ROWS_AT_MOST, FACT_AT_MOST = 100, 400
CODE_AT_MOST = 40_000
_CODE = {"same": "the baseline's", "changed": "changed since the baseline"}
_FIGURES = {"relative": "share of the probe", "gbps": "GB/s"}


def detail_of(outcome: Outcome, found: Iterable[Column]) -> dict[str, Any]:
    """Return one result's panel. Keys without content are left out; every string is cleaned and bounded.

    found: the columns of details.
    """
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
    source = outcome.file if outcome.line is None or not outcome.file else f"{outcome.file}:{outcome.line}"
    panel: dict[str, Any] = {
        "name": clean(outcome.key),
        "reason": prose(outcome.reason),
        "message": prose(outcome.message or ""),
        "source": one_line(source or "", 400),
        "findings": [prose(text(note, "text")) or clean(text(note, "code"), 80) for note in outcome.findings],
        "verdict": _verdict_facts(outcome),
        "measured": _measured_facts(outcome),
        "work": _work_facts(outcome, facts),
        "conditions": _conditions(outcome),
        "tables": tables,
        "code": escaped(outcome.code_diff[:CODE_AT_MOST]),
    }
    return {name: value for name, value in panel.items() if value}


def _verdict_facts(outcome: Outcome) -> Facts:
    verdict, baseline = outcome.verdict, outcome.baseline or {}
    show = _shower(figure_name(outcome))
    # A floor on a share of the peak: its limit and the fresh processes are shares, the row's own figure GB/s.
    floor = floor_of(text(verdict, "rule"))
    compared = _shower("relative") if floor in OF_PEAK else digits if is_of_resources(floor) else show
    facts = [
        ("judged on", _FIGURES.get(text(verdict, "figure"), "")),
        ("this run", _optional(own_figure(outcome), show)),
        ("compared", _optional(number(verdict, "observed"), compared)),
        (reference_name(outcome), _optional(number(verdict, "reference"), compared)),
        ("allowed drop", _optional(number(verdict, "allowed_drop"), percent)),
        ("costs at least", _optional(number(verdict, "low"), percent)),
        ("costs at most", _optional(number(verdict, "high"), percent)),
        ("tolerance", _optional(number(verdict, "tolerance"), percent)),
        ("runs", _optional(number(verdict, "runs"), lambda v: f"{v:.0f}" if v else "none: written by hand")),
        ("between-run spread", _optional(number(verdict, "spread"), lambda v: format_percent(v, 2))),
        ("new processes", ", ".join(compared(v) for v in sequence(verdict, "confirmations")[:20])),
        ("expected to fail", one_line(text(baseline, "xfail"), 400)),
        ("note", one_line(text(baseline, "note"), 400)),
        ("profile", one_line(outcome.profile or "", 400)),
    ]
    return _known(facts)


def _measured_facts(outcome: Outcome) -> Facts:
    kept, dropped, runs = len(outcome.samples), list(outcome.dropped), outcome.warmup_runs
    name, rate = one_line(text(outcome.probe, "name"), 60), _optional(outcome.probe_gbps, format_gbps)
    codes = sorted({one_line(text(d, "code"), 40) for d in dropped})
    facts = [
        ("of the speed of light", one_line(sol_text(outcome) or "", 60)),
        ("class", one_line(outcome.utilization_class or "", 40) if outcome.is_valid else ""),
        ("probe", f"{rate} ({name})" if rate and name else rate or name),
        ("host time", _optional(outcome.host_seconds, format_seconds)),
        ("noise (IQR ÷ median)", _optional(outcome.noise, percent)),
        ("standard error of median", _optional(outcome.median_precision, lambda v: format_percent(v, 2))),
        ("samples", f"{kept} kept, {len(dropped)} dropped" if kept or dropped else ""),
        ("dropped for", ", ".join(codes[:10])),
        ("a thread waited for a processor", _optional(outcome.run_delay, lambda v: f"{format_percent(v)} of the time")),
        ("stopped by", one_line(outcome.stop, 40) if kept else ""),
        ("warm-up", f"{runs} runs in {format_seconds(outcome.warmup_seconds)}" if runs else ""),
        ("timing method", one_line(outcome.method, 60)),
        ("launches in a sample's graph", _optional(number(outcome.detail, "graph_launches"), lambda v: f"{v:.0f}")),
    ]
    return _known(facts)


def _work_facts(outcome: Outcome, facts_of_columns: Facts) -> Facts:
    regime, evidence = one_line(outcome.regime or "", 40), one_line(outcome.regime_evidence or "", 400)
    facts = [
        ("bytes read", format_bytes(outcome.bytes_read)),
        ("bytes written", format_bytes(outcome.bytes_written)),
        ("asked for by loads", _optional(outcome.requested_read, format_bytes)),
        ("asked for by stores", _optional(outcome.requested_written, format_bytes)),
        ("FLOP", digits(float(outcome.flop)) if outcome.flop < 1e6 else f"{float(outcome.flop):.4g}"),
        ("precision", one_line(precision_of(outcome) or "", 40)),
        ("arithmetic intensity", _optional(outcome.arithmetic_intensity or None, lambda v: f"{digits(v)} FLOP/byte")),
        ("ridge point", _optional(outcome.ridge_point, lambda v: f"{digits(v)} FLOP/byte")),
        ("regime", f"{regime}: {evidence}" if regime and evidence else regime),
        ("bottleneck", one_line(outcome.bottleneck or "", 400)),
        ("code", _CODE.get(outcome.code_state or "", "")),
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
    """Return rows of (label, before, after) for all conditions that could be read."""
    before, after = (mapping(outcome.conditions, when) for when in ("before", "after"))
    rows = []
    for label, name, unit in _CONDITIONS:
        known = [number(state, name) for state in (before, after)]
        if any(value is not None for value in known):
            first, last = ("–" if value is None else f"{value:.4g} {unit}".rstrip() for value in known)
            rows.append((label, first, last))
    for label, name in (("event reasons", "event_reasons"), ("others on the device", "others")):
        listed = [scalar_text(sequence(state, name)) for state in (before, after)]
        if any(listed):
            rows.append((label, listed[0] or "none", listed[1] or "none"))
    return rows


def _shower(figure: str) -> Any:
    return percent if figure == "relative" else format_gbps


def _optional(value: float | None, show: Any) -> str:
    return "" if value is None else str(show(value))


def _known(facts: Facts) -> Facts:
    return [(label, value) for label, value in facts if value]


def own_figure(outcome: Outcome) -> float | None:
    """Return this run's value of the figure that was judged: GB/s, or a share of the probe."""
    return outcome.relative if figure_name(outcome) == "relative" else outcome.gbps


def reference_name(outcome: Outcome) -> str:
    """Name what a row was compared with: a floor, old code that ran here, or the baseline's stored figures."""
    rule, by = text(outcome.verdict, "rule"), mapping(outcome.verdict, "facts").get("by")
    if (floor := floor_of(rule)) is not None:
        return "limit" if is_of_resources(floor) else "floor"
    with_old_code = (Rule.OLD_KERNEL, Rule.PAIRS)
    return "old code" if rule in with_old_code or by in with_old_code else "baseline"


def figure_name(outcome: Outcome) -> str:
    """Return ``relative`` or ``gbps``; floors on a share of the peak are shown in GB/s."""
    verdict = outcome.verdict
    on_probe = text(verdict, "figure") == "relative" or floor_of(text(verdict, "rule")) == "min_relative"
    return "relative" if on_probe else "gbps"
