"""The terminal's summary: a table sorted by what needs attention, and the counts of every status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.device import COUNTING_KINDS
from pytest_bandwidth.domain.judging.device_change import PROBE_ALONE
from pytest_bandwidth.domain.judging.drift import DRIFT
from pytest_bandwidth.domain.outcome import Outcome
from pytest_bandwidth.domain.units import digits, format_gbps, format_percent
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.reports.pairs import PrecisionPair, precision_pairs
from pytest_bandwidth.reports.text_safe import printable

# Colours by meaning, as pytest's terminal writer names them.
_MARKUP = {
    Status.REGRESSED: ("red", "bold"),
    Status.NOT_COMPARABLE: ("red", "bold"),
    Status.INVALID: ("yellow", "bold"),
    Status.DEVICE: ("yellow", "bold"),
    Status.UNCONFIRMED: ("yellow",),
    Status.INSUFFICIENT: ("yellow",),
    Status.NO_BASELINE: ("yellow",),
    Status.IMPROVED: ("cyan",),
    Status.UPDATED: ("cyan",),
    Status.WITHIN: ("green",),
}
_ATTENTION = list(_MARKUP)
# With more rows, those that are fine are counted instead of listed (all of them with -v).
MOST_QUIET_ROWS = 30
NARROWEST_NAME = 20
MOST_REASONS = 4
MOST_PAIRS = 12
_AGAINST_OTHERS = " beside others: end them, or say in ini bandwidth_busy_processors how many processors they may use"


@dataclass(frozen=True, slots=True)
class Span:
    """A piece of a line and how it is marked up (names of pytest's terminal writer)."""

    text: str
    markup: tuple[str, ...] = ()


Line = tuple[Span, ...]


def by_attention(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Failures first, then what could not be judged, then the rest; the larger drop first."""

    def order(outcome: Outcome) -> tuple[int, float, str]:
        return _ATTENTION.index(Status(outcome.status)), -(outcome.verdict.get("drop") or 0.0), outcome.key

    return sorted(outcomes, key=order)


def summary_lines(outcomes: Sequence[Outcome], width: int, *, verbose: bool = False) -> list[Line]:
    """The table and the counts; the table is at most `width` columns wide, but for names that are longer themselves."""
    rows = by_attention(outcomes)
    shown = rows if verbose else _shown(rows)
    heading, names = told_apart([o.short_name for o in shown])
    rows_of_text = [_cells(o, printable(name)) for o, name in zip(shown, names, strict=True)]
    # A device that changed comes first: what it spoilt is not the kernels'.
    lines = _reasons([o for o in shown if o.status == Status.DEVICE.value], verbose=verbose)
    lines += _table(printable(heading), rows_of_text, [Status(o.status) for o in shown], width) if shown else []
    if len(shown) < len(rows):
        lines.append((Span(f"… and {len(rows) - len(shown)} more that are fine (-v lists them)", ("light",)),))
    lines.extend(_pairs(outcomes, verbose=verbose))
    lines.extend(_reasons([o for o in shown if o.status != Status.DEVICE.value], verbose=verbose))
    lines.extend(_evidence(shown) if verbose else ())
    lines.extend(_findings(outcomes, verbose=verbose))
    lines.append(_counts(outcomes))
    return lines


def header_line(
    device: str, peak_gbps: float | None, peak_source: str | None, baseline: str | None, kind: str = "cpu"
) -> str:
    """bandwidth: NVIDIA A100, peak 2039 GB/s (datasheet), baseline baselines/a100.yaml"""
    peak = (
        f"peak {format_gbps(peak_gbps)} ({peak_source})"
        if peak_gbps
        else "peak unknown: shares are of the probe's GB/s"
    )
    if kind in COUNTING_KINDS:
        peak = "counts requests, measures no time"
    judged_by = printable(baseline) if baseline else "none (measuring only)"
    return f"bandwidth: {printable(device)}; {peak}; baseline: {judged_by}"


def _shown(rows: list[Outcome]) -> list[Outcome]:
    quiet = (Status.WITHIN.value, Status.IMPROVED.value, Status.UPDATED.value)
    loud = [o for o in rows if o.status not in quiet]
    return loud + [o for o in rows if o.status in quiet][:MOST_QUIET_ROWS]


_HEADINGS = ("GB/s", "share", "bound by", "sectors/request", "access", "against baseline", "sees", "verdict")


def told_apart(names: Sequence[str]) -> tuple[str, list[str]]:
    """The first column's heading, and what tells the names apart: less the file, or the test, that all of them share.

    Of one parametrized test the heading keeps the name, ``test_operation[…]``, and the rows their parameters.
    """
    if len(names) < 2:
        return "test", list(names)
    tests = {name.partition("[")[0] for name in names}
    if len(tests) == 1 and all("[" in name and name.endswith("]") for name in names):
        (test,) = tests
        return f"{test.rpartition('::')[2]}[…]", [name[len(test) + 1 : -1] for name in names]
    if len({name.partition("::")[0] for name in names}) == 1:
        return "test", [name.partition("::")[2] or name for name in names]
    return "test", list(names)


def _cells(outcome: Outcome, name: str) -> tuple[str, ...]:
    share = "" if outcome.utilization is None else format_percent(outcome.utilization)
    return (
        name,
        "" if outcome.gbps is None else digits(outcome.gbps),
        share and f"{share} of {outcome.utilization_of}",
        printable(outcome.regime or "").removesuffix("-bound"),
        _sectors(outcome),
        _access(outcome),
        _against(outcome),
        _sees(outcome),
        outcome.status,
    )


def _sectors(outcome: Outcome) -> str:
    """Loads and stores of the traffic device: 4.0 + 4.0."""
    found = [_count_of(outcome, kind, "sectors_per_request") for kind in ("loads", "stores")]
    return " + ".join("–" if value is None else f"{value:.1f}" for value in found) if outcome.counts else ""


def _access(outcome: Outcome) -> str:
    """The commonest access pattern of loads and stores, said once where they agree."""
    found = [_count_of(outcome, kind, "pattern") for kind in ("loads", "stores")]
    names = list(dict.fromkeys(printable(str(name)) for name in found if name and name != "none"))
    return " / ".join(names)


def _count_of(outcome: Outcome, kind: str, name: str) -> Any:
    access = outcome.detail.get(kind)
    return access.get(name) if isinstance(access, Mapping) else None


def _against(outcome: Outcome) -> str:
    drop, reference = outcome.verdict.get("drop"), outcome.verdict.get("reference")
    if drop is None or reference is None:
        return ""
    known = (
        f"{digits(reference)} GB/s"
        if outcome.verdict.get("figure") == "gbps"
        else f"{format_percent(reference)} of probe"
    )
    return f"{-drop * 100:+.1f} % on {known}"


def _sees(outcome: Outcome) -> str:
    """The smallest drop that this row could have seen."""
    visible = outcome.verdict.get("visible_drop")
    return "" if visible is None else f"≥ {visible * 100:.1f} %"


def _table(heading: str, rows: list[tuple[str, ...]], statuses: list[Status], width: int) -> list[Line]:
    # A column that says nothing in any row is left out: there may be no baseline, or no peak.
    all_headings = (heading, *_HEADINGS)
    kept = [i for i in range(len(all_headings)) if any(row[i] for row in rows)]
    headings = [all_headings[i] for i in kept]
    cells = [[row[i] for i in kept] for row in rows]
    widths = [max(map(len, column)) for column in zip(headings, *cells, strict=True)]
    spare = width - sum(widths[1:]) - 2 * (len(widths) - 1)
    widths[0] = min(widths[0], max(spare, NARROWEST_NAME))
    lines: list[Line] = []
    for row, span in zip([headings, *cells], [None, *statuses], strict=True):
        markup = ("bold",) if span is None else ()
        name, *others = row
        if len(name) > widths[0]:
            # Names are never cut, for any part of one may be what tells two tests apart: it has a line of its own.
            lines.append((Span(name, markup),))
            name = ""
        figures = _joined((name, *others[:-1], ""), widths)
        lines.append((Span(figures, markup), Span(others[-1], markup if span is None else _MARKUP[span])))
    return lines


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    middle = (cell.rjust(width) for cell, width in zip(cells[1:-1], widths[1:-1], strict=True))
    return "  ".join((cells[0].ljust(widths[0]), *middle, cells[-1]))


def _reasons(rows: Sequence[Outcome], *, verbose: bool) -> list[Line]:
    """Why rows could not be judged: one line for all that share code and reason, few lines for each status."""
    shared: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in rows:
        if Status(outcome.status).warns:
            # One device that is down explains all of its rows.
            reason = "" if outcome.status == Status.DEVICE.value else outcome.reason
            shared.setdefault((outcome.status, reason), []).append(outcome)
    lines: list[Line] = []
    told: Counter[str] = Counter()
    for (status, _), outcomes in shared.items():
        told[status] += 1
        if verbose or told[status] <= MOST_REASONS:
            who = printable(outcomes[0].short_name) if len(outcomes) == 1 else f"{len(outcomes)} tests"
            reason = printable(_in_one_line(outcomes[0].reason))
            lines.append((Span(status, _MARKUP[Status(status)]), Span(f" {who}: {reason}")))
    for status, count in told.items():
        if count > MOST_REASONS and not verbose:
            more = f" … and {count - MOST_REASONS} more reasons (-v lists them)"
            lines.append((Span(status, _MARKUP[Status(status)]), Span(more)))
    if any(map(_beside_others_on_host, rows)):
        lines.append((Span("INVALID", _MARKUP[Status.INVALID]), Span(_AGAINST_OTHERS)))
    return lines


def _in_one_line(reason: str) -> str:
    """Of a reason that quotes what a process printed, the sentence and the last line of it."""
    first, *quoted = reason.splitlines() or [""]
    return " ".join((first, *(line.strip() for line in quoted[-1:])))


def _beside_others_on_host(outcome: Outcome) -> bool:
    """On a GPU nothing is measured of the host's processors."""
    after = outcome.conditions.get("after") or {}
    return not outcome.is_valid and outcome.code == "others" and after.get("others_processors") is not None


def _pairs(outcomes: Sequence[Outcome], *, verbose: bool) -> list[Line]:
    """The same work in FP32 and FP16: GB/s of each, and FP16's share of FP32's time."""
    pairs = precision_pairs(outcomes)
    shown = pairs if verbose else pairs[:MOST_PAIRS]
    lines: list[Line] = [(Span("FP32 against FP16", ("bold",)),)] if pairs else []
    lines += [(Span(f"  {_pair_text(pair)}"),) for pair in shown]
    if len(shown) < len(pairs):
        lines.append((Span(f"  … and {len(pairs) - len(shown)} more pairs (-v lists them)", ("light",)),))
    return lines


def _pair_text(pair: PrecisionPair) -> str:
    rates = f"{digits(pair.fp32.gbps or 0.0)} → {digits(pair.fp16.gbps or 0.0)} GB/s"
    ratio = "" if pair.bandwidth_ratio is None else f" ({pair.bandwidth_ratio:.2f}×)"
    time = "" if pair.time_ratio is None else f", {pair.time_ratio:.2f}× the time"
    return f"{printable(pair.name)}: {rates}{ratio}{time}"


def _evidence(outcomes: Sequence[Outcome]) -> list[Line]:
    """Each regime with the figures that say so, and what keeps a kernel from its bytes."""
    lines: list[Line] = []
    for outcome in outcomes:
        said = [f"{outcome.regime}: {outcome.regime_evidence}"] if outcome.regime else []
        said += [outcome.bottleneck] if outcome.bottleneck else []
        lines += [(Span("WHY", ("bold",)), Span(f" {printable(outcome.short_name)}: {printable(t)}")) for t in said]
    return lines


def _findings(outcomes: Sequence[Outcome], *, verbose: bool) -> list[Line]:
    """What is worth telling beside the verdicts: all of it with -v, else what bears on a verdict or a declaration."""
    lines: list[Line] = []
    for outcome in outcomes:
        told = (outcome.bottleneck, outcome.regime_evidence)
        for finding in outcome.findings:
            code = str(finding.get("code", ""))
            always = code in (DRIFT, PROBE_ALONE) or code.startswith("declared-")
            if always or (verbose and finding.get("text") not in told):
                text = f" {printable(outcome.short_name)}: {printable(str(finding.get('text', '')))}"
                lines.append((Span("DRIFT" if code == DRIFT else "NOTE", ("yellow",)), Span(text)))
    return lines


def _counts(outcomes: Sequence[Outcome]) -> Line:
    counts = Counter(Status(o.status) for o in outcomes)
    spans = [Span(f"{len(outcomes)} measured{': ' if outcomes else ''}")]
    for i, status in enumerate(s for s in _ATTENTION if counts[s]):
        spans.extend([Span(", ")] if i else [])
        spans.append(Span(f"{counts[status]} {status}", _MARKUP[status]))
    return tuple(spans)
