"""Write the terminal's summary: a table sorted by what needs attention, and the counts of every status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from pytest_bandwidth.domain.device import COUNTING_KINDS, READ_OTHERWISE
from pytest_bandwidth.domain.measured.measurement import MISREAD_ARRAY, NO_GRAPHS, XPASS
from pytest_bandwidth.domain.measured.validity import OF_OTHERS
from pytest_bandwidth.domain.units import digits, format_gbps, format_percent
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.features.counters.dram_traffic import DIFFERS, RISEN, UNCOUNTED, UNPROFILED
from pytest_bandwidth.features.counters.text import dram_text
from pytest_bandwidth.features.explain.explanation import LEAST_DIFFERENCE, MATERIALISED
from pytest_bandwidth.features.traffic.accesses_text import patterns_text, sectors_text
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import shared_causes
from pytest_bandwidth.reports.attention import by_attention
from pytest_bandwidth.reports.names import names_among, without_common_part
from pytest_bandwidth.reports.related import PrecisionPair, precision_pairs
from pytest_bandwidth.reports.text_safe import padded, printable, width_of
from pytest_bandwidth.reports.wording import detail_of, in_a_line

# Colours by meaning, as pytest's terminal writer names them.
_MARKUP = {
    Status.REGRESSED: ("red", "bold"),
    Status.MISMATCH: ("red", "bold"),
    Status.UNDECIDED: ("yellow", "bold"),
    Status.IMPROVED: ("cyan",),
    Status.SAVED: ("cyan",),
    Status.OK: ("green",),
}
_ATTENTION = list(_MARKUP)
_FINE = (Status.OK.value, Status.SAVED.value)
# With more rows, those that are fine are counted instead of listed (all of them with -v).
MOST_QUIET_ROWS = 30
NARROWEST_NAME = 20
MOST_REASONS = 4
MOST_PAIRS = 12
# Findings that every run tells.
_ALWAYS = (
    *(MISREAD_ARRAY, MATERIALISED, NO_GRAPHS, DIFFERS, RISEN, UNCOUNTED, UNPROFILED, XPASS),
    *READ_OTHERWISE,
)
# A larger one is told as a multiple.
_LARGEST_GAIN = 100.0
_AGAINST_OTHERS = " since other processes ran: end them, or set bandwidth_busy_processors in the ini file"


@dataclass(frozen=True, slots=True)
class Span:
    """Hold a piece of a line and how it is marked up (names of pytest's terminal writer)."""

    text: str
    markup: tuple[str, ...] = ()


TerminalLine = tuple[Span, ...]


def summary_lines(outcomes: Sequence[Outcome], width: int, *, verbose: bool = False) -> list[TerminalLine]:
    """Write the table and the counts; the table is at most `width` columns wide, but for names that are longer."""
    rows = by_attention(outcomes, strict=False)
    shown = rows if verbose else _shown(rows)
    name_of = names_among(outcomes)
    heading, names = without_common_part([name_of(o) for o in shown])
    rows_of_text = [_cells(o, printable(name)) for o, name in zip(shown, names, strict=True)]
    lines = _table(printable(heading), rows_of_text, [Status(o.status) for o in shown], width) if shown else []
    if len(shown) < len(rows):
        more = f"… and {len(rows) - len(shown)} more" if shown else f"{len(rows)} rows"
        lines.append((Span(f"{more} that are fine (-v lists them)", ("light",)),))
    lines.extend(_pairs(outcomes, verbose=verbose))
    lines.extend(_reasons(shown, name_of, verbose=verbose))
    lines.extend(_note("CAUSE", "red", [name_of(o) for o in one.outcomes], one.text) for one in shared_causes(rows))
    lines.extend((*_evidence(shown, name_of), *_dram(shown, name_of)) if verbose else ())
    lines.extend(_findings(rows, name_of, verbose=verbose))
    lines.append(_counts(outcomes))
    return lines


def header_line(
    device: str, peak_gbps: float | None, peak_source: str | None, baseline: str | None, kind: str = "cpu"
) -> str:
    """Write the run's first line: bandwidth: NVIDIA A100, peak 2039 GB/s (datasheet), baseline baselines/a100.yaml"""
    peak = (
        f"peak {format_gbps(peak_gbps)} ({peak_source})"
        if peak_gbps
        else "peak unknown: shares are of the probe's GB/s"
    )
    if kind in COUNTING_KINDS:
        peak = "counts requests, measures no time"
    judged_by = baseline or "none (measuring only)"
    return printable(f"bandwidth: {device}; {peak}; baseline: {judged_by}")


def uncommitted_line(files: Sequence[str]) -> str:
    """Say, before an update measures, that its runs will belong to no commit."""
    more = f" and {len(files) - 1} more" if len(files) > 1 else ""
    return (
        f"bandwidth: {printable(files[0])}{more} is not committed: commit it before this update, so that later "
        "runs can compare with this code"
    )


def disabled_line(device: str, kind: str) -> str:
    """Write the first line of a run that measures nothing (--bandwidth-disable)."""
    once = "kernels are executed once, uncounted" if kind in COUNTING_KINDS else "bodies run once, untimed"
    return f"bandwidth: {printable(device)}; disabled: {once}; nothing is judged"


def _shown(rows: list[Outcome]) -> list[Outcome]:
    """Return the rows to list: of those that are fine none where they are many, of improved ones so many at most."""
    fine = [o for o in rows if o.status in _FINE]
    improved = [o for o in rows if o.status == Status.IMPROVED.value]
    loud = [o for o in rows if o.status not in (*_FINE, Status.IMPROVED.value)]
    return [*loud, *improved[:MOST_QUIET_ROWS], *(fine if len(fine) <= MOST_QUIET_ROWS else ())]


_AGAINST = "against baseline"
_HEADINGS = ("GB/s", "share", "bound by", "sectors/request", "access", _AGAINST, "detects", "verdict")
_GAP = "  "


def _cells(outcome: Outcome, name: str) -> tuple[str, ...]:
    # Of the probe the share that is judged, by rounds, as all other reports show it.
    shown = outcome.valid_relative if outcome.utilization_of == "probe" else outcome.valid_utilization
    share = "" if shown is None else format_percent(shown)
    return (
        name,
        "" if outcome.gbps is None else digits(outcome.gbps),
        share and f"{share} of {outcome.utilization_of}",
        printable(outcome.regime or "").removesuffix("-bound"),
        sectors_text(outcome),
        patterns_text(outcome),
        _against(outcome),
        _detects(outcome),
        _verdict(outcome),
    )


def _against(outcome: Outcome) -> str:
    drop, reference = outcome.verdict.get("drop"), outcome.verdict.get("reference")
    if drop is None or reference is None:
        return ""
    known = (
        f"{digits(reference)} GB/s"
        if outcome.verdict.get("figure") == "gbps"
        else f"{format_percent(reference)} of probe"
    )
    # What a slip of the pen in a file makes of it has no more digits than others have.
    gained = f"{-drop * 100:+.1f} %" if -drop < _LARGEST_GAIN else f"{1 - drop:.3g}×"
    return f"{gained} on {known}"


def _detects(outcome: Outcome) -> str:
    """Write the smallest drop that would have been found 95 times in 100."""
    detects = outcome.verdict.get("detects")
    return "" if detects is None else f"≥ {detects * 100:.1f} %"


def _verdict(outcome: Outcome) -> str:
    detail = detail_of(Status(outcome.status), outcome.reason_code, outcome.verdict)
    return f"{outcome.status}{_GAP}{detail}" if detail else outcome.status


def _table(heading: str, rows: list[tuple[str, ...]], statuses: list[Status], width: int) -> list[TerminalLine]:
    # A column that says nothing in any row is left out: there may be no baseline, or no peak.
    filled = zip((heading, *_HEADINGS), zip(*rows, strict=True), strict=True)
    columns, below = _fitted({title: cells for title, cells in filled if any(cells)}, width)
    widths = _widths(columns)
    spare = width - sum(widths[1:]) - len(_GAP) * (len(widths) - 1)
    widths[0] = min(widths[0], max(spare, NARROWEST_NAME))
    lines: list[TerminalLine] = []
    for row, span, more in zip(
        [tuple(columns), *zip(*columns.values(), strict=True)], [None, *statuses], ["", *below], strict=True
    ):
        markup = ("bold",) if span is None else ()
        name, *others = row
        if width_of(name) > widths[0]:
            # Names are never cut, for any part of one may be what tells two tests apart: it has a line of its own.
            lines.append((Span(name, markup),))
            name = ""
        figures = _joined((name, *others[:-1], ""), widths)
        lines.append((Span(figures, markup), Span(others[-1], markup if span is None else _MARKUP[span])))
        lines += [(Span(f"  {more}", ("light",)),)] if more else []
    return lines


def _fitted(columns: Mapping[str, Sequence[str]], width: int) -> tuple[Mapping[str, Sequence[str]], list[str]]:
    """Move below its row, leave out or shorten what does not fit, the least missed first; return the lines below, too.

    Access patterns but the plain one go below, what bounds a row is told by -v, too, a change without its reference is
    one still, and the verdict's detail goes below last.
    """
    below = [""] * max(map(len, columns.values()))
    without = {title: cells for title, cells in columns.items() if title != "access"}
    # Where names have room beside the other columns then, or the others themselves would have none.
    if without != columns and (_too_wide(columns, width) or _width(columns) > width >= _width(without)):
        below = ["" if cell == "coalesced" else cell for cell in columns["access"]]
        columns = without
    if _too_wide(columns, width):
        columns = {title: cells for title, cells in columns.items() if title != "bound by"}
    if _too_wide(columns, width):
        columns = {
            "change" if title == _AGAINST else title: [cell.partition(" on ")[0] for cell in cells]
            if title == _AGAINST
            else cells
            for title, cells in columns.items()
        }
    if _too_wide(columns, width):
        parted = [cell.partition(_GAP) for cell in columns["verdict"]]
        columns = {**columns, "verdict": [status for status, _, _ in parted]}
        below = [", ".join(filter(None, (detail, more))) for (_, _, detail), more in zip(parted, below, strict=True)]
    return columns, below


def _too_wide(columns: Mapping[str, Sequence[str]], width: int) -> bool:
    return _width(columns, NARROWEST_NAME) > width


def _width(columns: Mapping[str, Sequence[str]], longest_name: int | None = None) -> int:
    name, *others = _widths(columns)
    return min(name, longest_name or name) + sum(others) + len(_GAP) * len(others)


def _widths(columns: Mapping[str, Sequence[str]]) -> list[int]:
    return [max(map(width_of, (title, *cells))) for title, cells in columns.items()]


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    middle = (padded(cell, width, left=False) for cell, width in zip(cells[1:-1], widths[1:-1], strict=True))
    return _GAP.join((padded(cells[0], widths[0]), *middle, cells[-1]))


def _reasons(rows: Sequence[Outcome], name_of: Callable[[Outcome], str], *, verbose: bool) -> list[TerminalLine]:
    """Say why rows could not be judged: one line for all that share code and reason, few lines for each status."""
    shared: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in rows:
        if Status(outcome.status).warns:
            shared.setdefault((outcome.status, outcome.reason), []).append(outcome)
    lines: list[TerminalLine] = []
    told: Counter[str] = Counter()
    for (status, _), outcomes in shared.items():
        told[status] += 1
        if verbose or told[status] <= MOST_REASONS:
            who = printable(name_of(outcomes[0])) if len(outcomes) == 1 else f"{len(outcomes)} tests"
            reason = printable(in_a_line(outcomes[0].reason))
            lines.append((Span(status, _MARKUP[Status(status)]), Span(f" {who}: {reason}")))
    for status, count in told.items():
        if count > MOST_REASONS and not verbose:
            more = f" … and {count - MOST_REASONS} more reasons (-v lists them)"
            lines.append((Span(status, _MARKUP[Status(status)]), Span(more)))
    if any(map(_beside_others_on_host, rows)):
        lines.append((Span("UNDECIDED", _MARKUP[Status.UNDECIDED]), Span(_AGAINST_OTHERS)))
    return lines


def _beside_others_on_host(outcome: Outcome) -> bool:
    """Return whether others kept a host's processors busy; on a GPU nothing is measured of those."""
    after = outcome.conditions.get("after") or {}
    return not outcome.is_valid and outcome.reason_code in OF_OTHERS and after.get("others_processors") is not None


def _pairs(outcomes: Sequence[Outcome], *, verbose: bool) -> list[TerminalLine]:
    """Compare the same work in FP32 and FP16: GB/s of each, and FP16's share of FP32's time."""
    pairs = precision_pairs(outcomes)
    shown = pairs if verbose else pairs[:MOST_PAIRS]
    lines: list[TerminalLine] = [(Span("FP32 against FP16", ("bold",)),)] if pairs else []
    lines += [(Span(f"  {_pair_text(pair)}"),) for pair in shown]
    if len(shown) < len(pairs):
        lines.append((Span(f"  … and {len(pairs) - len(shown)} more pairs (-v lists them)", ("light",)),))
    return lines


def _pair_text(pair: PrecisionPair) -> str:
    rates = f"{digits(pair.fp32.gbps or 0.0)} → {digits(pair.fp16.gbps or 0.0)} GB/s"
    ratio = "" if pair.bandwidth_ratio is None else f" ({pair.bandwidth_ratio:.2f}×)"
    time = "" if pair.time_ratio is None else f", {pair.time_ratio:.2f}× the time"
    return f"{printable(pair.name)}: {rates}{ratio}{time}"


def _evidence(outcomes: Sequence[Outcome], name_of: Callable[[Outcome], str]) -> list[TerminalLine]:
    """Return each regime with the figures that say so, and what keeps a kernel from its bytes."""
    said: dict[str, list[str]] = {}
    for outcome in outcomes:
        told = [f"{outcome.regime}: {outcome.regime_evidence}"] if outcome.regime else []
        for sentence in [*told, *([outcome.bottleneck] if outcome.bottleneck else [])]:
            said.setdefault(sentence, []).append(name_of(outcome))
    return [_note("WHY", "bold", names, sentence) for sentence, names in said.items()]


def _dram(outcomes: Sequence[Outcome], name_of: Callable[[Outcome], str]) -> list[TerminalLine]:
    """Return what hardware counters saw of each."""
    told = [(outcome, dram_text(outcome)) for outcome in outcomes]
    return [_note("DRAM", "bold", [name_of(outcome)], text) for outcome, text in told if text is not None]


def _findings(outcomes: Sequence[Outcome], name_of: Callable[[Outcome], str], *, verbose: bool) -> list[TerminalLine]:
    """Return what is worth telling beside the verdicts: all of it with -v, else what bears on a verdict or declaration.

    Tests of which the same is to be said share a line; what changes how a GPU's figures are to be read has one for each
    kind, with the first test's figures.
    """
    said: dict[tuple[str, str], list[str]] = {}
    first: dict[str, str] = {}
    for outcome in outcomes:
        told = (outcome.bottleneck, outcome.regime_evidence)
        for finding in outcome.findings:
            code, text = str(finding.get("code", "")), str(finding.get("text", ""))
            if code in READ_OTHERWISE and not verbose:
                text = first.setdefault(code, text)
            always = code in _ALWAYS or _declared_otherwise(outcome, code)
            if always or (verbose and text not in told):
                said.setdefault(("NOTE", text), []).append(name_of(outcome))
    return [_note(word, "yellow", names, text) for (word, text), names in said.items()]


def _declared_otherwise(outcome: Outcome, code: str) -> bool:
    """Return whether a finding tells declared bytes that differ by so much that it shows (`LEAST_DIFFERENCE`)."""
    if not code.startswith("declared-"):
        return False
    verb = code.rpartition("-")[2]
    declared, touched = getattr(outcome, f"bytes_{verb}", None), outcome.counts.get(f"distinct_bytes_{verb}")
    if declared is None or touched is None:
        return True
    return bool(abs(declared - touched) >= LEAST_DIFFERENCE * max(declared, touched))


def _note(word: str, colour: str, names: Sequence[str], text: str) -> TerminalLine:
    others = f" and {len(names) - 1} more" if len(names) > 1 else ""
    return (Span(word, (colour,)), Span(f" {printable(names[0])}{others}: {printable(text)}"))


def _counts(outcomes: Sequence[Outcome]) -> TerminalLine:
    counts = Counter(Status(o.status) for o in outcomes)
    spans = [Span(f"{len(outcomes)} measured{': ' if outcomes else ''}")]
    for i, status in enumerate(s for s in _ATTENTION if counts[s]):
        spans.extend([Span(", ")] if i else [])
        spans.append(Span(f"{counts[status]} {status}", _MARKUP[status]))
    return tuple(spans)
