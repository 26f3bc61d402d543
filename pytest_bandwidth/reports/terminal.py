"""Write the terminal's summary: a table sorted by what needs attention, counts of statuses, what an update changed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import READ_OTHERWISE
from pytest_bandwidth.domain.measured.measurement import NOTE
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.units import counted, digits, format_gbps
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.judging.decide import COUNT_NAMES, SECTORS, called
from pytest_bandwidth.judging.stored import since_anchor
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import shared_causes
from pytest_bandwidth.reports.columns import Column, columns, with_texts
from pytest_bandwidth.reports.summary import by_attention
from pytest_bandwidth.reports.text_safe import (
    GAP,
    NARROWEST_NAME,
    laid_out,
    names_among,
    natural,
    printable,
    width_of,
    without_common_part,
)
from pytest_bandwidth.reports.wording import detail_of, help_line, in_a_line

# Colours by meaning, as pytest's terminal writer names them.
MARKUP = {
    Status.REGRESSED: ("red", "bold"),
    Status.MISMATCH: ("red", "bold"),
    Status.UNDECIDED: ("yellow", "bold"),
    Status.IMPROVED: ("cyan",),
    Status.SAVED: ("cyan",),
    Status.OK: ("green",),
}
_FINE = (Status.OK.value, Status.SAVED.value)
# With more rows, those that are fine are counted instead of listed (all of them with -v).
MOST_QUIET_ROWS = 30
MOST_REASONS = 4
ENTRIES_NAMED = 10
MOST_CHANGES = 40
# From this loss since an entry's anchor on, the entry's line reports it.
LEAST_CREEP = 0.01


@dataclass(frozen=True, slots=True)
class Span:
    """Hold a piece of a line and how it is marked up (names of pytest's terminal writer)."""

    text: str
    markup: tuple[str, ...] = ()


TerminalLine = tuple[Span, ...]
Shown = list[tuple[Column, list[str]]]
# An entry before an update, None where it is new, and after it.
Change = tuple[Entry | None, Entry]


def summary_lines(outcomes: Sequence[Outcome], width: int, *, verbose: bool = False) -> list[TerminalLine]:
    """Write the table and the counts; the table is at most `width` columns wide, except for longer names."""
    rows = by_attention(outcomes, strict=False)
    shown = rows
    if not verbose:
        # Rows that are fine are left out if they are many; improved rows are limited in number.
        fine = [o for o in rows if o.status in _FINE]
        improved = [o for o in rows if o.status == Status.IMPROVED.value]
        loud = [o for o in rows if o.status not in (*_FINE, Status.IMPROVED.value)]
        shown = [*loud, *improved[:MOST_QUIET_ROWS], *(fine if len(fine) <= MOST_QUIET_ROWS else ())]
    name_of = names_among(outcomes)
    heading, names = without_common_part([name_of(o) for o in shown])
    lines = _table(heading, names, shown, width) if shown else []
    if len(shown) < len(rows):
        more = f"… and {len(rows) - len(shown)} more" if shown else f"{len(rows)} rows"
        lines.append((Span(f"{more} that are fine (-v lists them)", ("light",)),))
    lines.extend(_reasons(shown, name_of, verbose=verbose))
    lines.extend(_note("CAUSE", "red", [name_of(o) for o in one.outcomes], one.text) for one in shared_causes(rows))
    lines.extend(_explained(shown, name_of) if verbose else ())
    lines.extend(_findings(rows, name_of, verbose=verbose))
    counts = Counter(Status(o.status) for o in outcomes)
    spans = [Span(f"{len(outcomes)} measured{': ' if outcomes else ''}")]
    for i, status in enumerate(s for s in Status if counts[s]):
        spans.extend([Span(", ")] if i else [])
        spans.append(Span(f"{counts[status]} {status}", MARKUP[status]))
    return [*lines, tuple(spans)]


def header_line(device: Mapping[str, Any], baseline: str | None, name: str | None = None) -> str:
    """Write the run's first line: bandwidth: NVIDIA A100, peak 2039 GB/s (datasheet), baseline baselines/a100.yaml

    device: a document's. name: the device's name among the run's devices.
    """
    known = device.get("peak") or {}
    peak = "peak unknown: shares are of the probe's GB/s"
    if device["timed_on"] == "nothing":
        peak = "counts, measures no time"
    elif known.get("gbps"):
        peak = f"peak {format_gbps(known['gbps'])} ({known.get('source')})"
    judged_by = baseline or "none (measuring only)"
    return printable(f"bandwidth: {name or device['name']}; {peak}; baseline: {judged_by}")


def _verdict(outcome: Outcome) -> str:
    detail = detail_of(Status(outcome.status), outcome.reason_code, outcome.verdict)
    return f"{outcome.status}{GAP}{detail}" if detail else outcome.status


_VERDICT = Column("verdict", "verdict", _verdict)


def _table(heading: str, names: Sequence[str], outcomes: Sequence[Outcome], width: int) -> list[TerminalLine]:
    names_column = Column("name", heading, lambda _: None)
    found = with_texts((*columns("terminal"), _VERDICT), outcomes)
    fitted, below = _fitted([(names_column, list(names)), *found], outcomes, width)
    lines = laid_out(
        [column.heading for column, _ in fitted],
        list(zip(*(texts for _, texts in fitted), strict=True)),
        left=(_VERDICT.heading,),
        width=width,
        names_whole=True,
    )
    spans: list[TerminalLine] = []
    for (name, cells), outcome, more in zip(lines, [None, *outcomes], ["", *below], strict=True):
        markup = ("bold",) if outcome is None else ()
        # Names are never cut, since any part may distinguish two tests: a long name has a line of its own.
        spans += [(Span(name, markup),)] if name is not None else []
        *figures, verdict = cells
        marked = markup if outcome is None else MARKUP[Status(outcome.status)]
        spans.append((Span(GAP.join((*figures, "")), markup), Span(verdict.rstrip(), marked)))
        spans += [(Span(f"  {printable(more)}", ("light",)),)] if more else []
    return spans


def _fitted(found: Shown, outcomes: Sequence[Outcome], width: int) -> tuple[Shown, list[str]]:
    """Move below the rows, leave out or shorten columns that do not fit; return the columns and the lines below.

    By `Column.narrow`, columns move below first; then columns are left out; then shorter ones replace them. The
    verdict's detail moves below last.
    """
    below: list[list[str]] = [[] for _ in outcomes]
    for way in ("below", "out", "shorter"):
        for column, texts in found[1:-1]:
            narrow = column.narrow if isinstance(column.narrow, str) else "shorter"
            if narrow != way or not _too_wide(found, width, without=column if way == "below" else None):
                continue
            if isinstance(column.narrow, Column):
                shorter = (column.narrow, [column.narrow.shown(outcome) for outcome in outcomes])
                found = [shorter if one is column else (one, cells) for one, cells in found]
            else:
                found = [(one, cells) for one, cells in found if one is not column]
            if way == "below":
                for lines, text in zip(below, texts, strict=True):
                    lines += [f"{column.heading} {text}"] if text not in ("", column.usual) else []
    if _too_wide(found, width):
        *others, (verdict, texts) = found
        parted = [text.partition(GAP) for text in texts]
        found = [*others, (verdict, [status for status, _, _ in parted])]
        below = [[detail, *lines] for (_, _, detail), lines in zip(parted, below, strict=True)]
    return found, [", ".join(filter(None, lines)) for lines in below]


def _too_wide(found: Shown, width: int, without: Column | None = None) -> bool:
    """Return whether a table leaves no room for legible names.

    without: a column; the table is also too wide if whole names fit only without this column.
    """
    if _width(found, NARROWEST_NAME) > width:
        return True
    others = [(column, texts) for column, texts in found if column is not without]
    return without is not None and _width(found) > width >= _width(others)


def _width(found: Shown, longest_name: int | None = None) -> int:
    """Return how wide a table of these columns is; longest_name: bounds the first column's width."""
    widths = (max(map(width_of, (column.heading, *map(printable, texts)))) for column, texts in found)
    name, *others = widths
    return min(name, longest_name or name) + sum(others) + len(GAP) * len(others)


def _reasons(rows: Sequence[Outcome], name_of: Callable[[Outcome], str], *, verbose: bool) -> list[TerminalLine]:
    """Report what improved, and why rows could not be judged: a line for each reason, few lines for each status."""
    shared: dict[tuple[str, str], list[Outcome]] = {}
    for outcome in rows:
        if Status(outcome.status).warns or outcome.status == Status.IMPROVED:
            shared.setdefault((outcome.status, outcome.reason), []).append(outcome)
    lines: list[TerminalLine] = []
    reasons: Counter[str] = Counter()
    for (status, _), outcomes in shared.items():
        reasons[status] += 1
        if verbose or reasons[status] <= MOST_REASONS:
            tests = len({outcome.nodeid for outcome in outcomes})
            many = counted(len(outcomes), "test" if tests == len(outcomes) else "measurement")
            who = printable(name_of(outcomes[0])) if len(outcomes) == 1 else many
            reason = printable(in_a_line(outcomes[0].reason))
            lines.append((Span(status, MARKUP[Status(status)]), Span(f" {who}: {reason}")))
            if Status(status).warns:
                lines.append((Span(printable(help_line(outcomes[0].reason_code)), ("light",)),))
    for status, count in reasons.items():
        if count > MOST_REASONS and not verbose:
            more = f" … and {count - MOST_REASONS} more reasons (-v lists them)"
            lines.append((Span(status, MARKUP[Status(status)]), Span(more)))
    return lines


def _explained(outcomes: Sequence[Outcome], name_of: Callable[[Outcome], str]) -> list[TerminalLine]:
    """Return regimes with their evidence, bottlenecks, and the figures that belong below the table."""
    tests_by_text: dict[str, list[str]] = {}
    for outcome in outcomes:
        regime = [f"{outcome.regime}: {outcome.regime_evidence}"] if outcome.regime else []
        for sentence in [*regime, *([outcome.bottleneck] if outcome.bottleneck else [])]:
            tests_by_text.setdefault(sentence, []).append(name_of(outcome))
    notes = [
        _note(column.heading, "bold", [name_of(outcome)], text)
        for column, texts in with_texts(columns("notes"), outcomes)
        for outcome, text in zip(outcomes, texts, strict=True)
        if text
    ]
    return [*(_note("WHY", "bold", names, sentence) for sentence, names in tests_by_text.items()), *notes]


def _findings(outcomes: Sequence[Outcome], name_of: Callable[[Outcome], str], *, verbose: bool) -> list[TerminalLine]:
    """Return lines for findings: all of them with -v, else those that concern a verdict or a declaration.

    Tests with the same finding share a line. Without -v, a finding that changes the meaning of a GPU's figures has one
    line for each kind, with the first test's figures.
    """
    tests_by_text: dict[str, list[str]] = {}
    first: dict[str, str] = {}
    for outcome in outcomes:
        explained = (outcome.bottleneck, outcome.regime_evidence)
        for finding in outcome.findings:
            code, text = str(finding.get("code", "")), str(finding.get("text", ""))
            if code in READ_OTHERWISE and not verbose:
                text = first.setdefault(code, text)
            always = code in READ_OTHERWISE or finding.get("level") == NOTE
            if always or (verbose and text not in explained):
                tests_by_text.setdefault(text, []).append(name_of(outcome))
    return [_note("NOTE", "yellow", names, text) for text, names in tests_by_text.items()]


def _note(word: str, colour: str, names: Sequence[str], text: str) -> TerminalLine:
    return (Span(word, (colour,)), Span(f" {printable(listed(names, 1))}: {printable(text)}"))


def named_entries(not_measured: Mapping[str, str]) -> str:
    """Name the baseline's entries that were not measured. not_measured: why, by key."""
    named = [f"{printable(key)} ({printable(why)})" for key, why in not_measured.items()]
    return f"{counted(len(named), 'entry')} of the baseline: {listed(named, ENTRIES_NAMED)}"


def change_lines(path: str, changes: Sequence[Change]) -> list[TerminalLine]:
    """Write ``+ key  277 GB/s (1 run)`` for new entries, ``~ key  310 → 277 GB/s, −10.6 %`` for changed ones.

    The largest changes come first, and the new entries last.
    """
    new = sum(before is None for before, _ in changes)
    lines: list[TerminalLine] = [(Span(f"baseline {path}: {new} new, {len(changes) - new} updated", ("bold",)),)]
    ordered = sorted(changes, key=lambda one: (one[0] is None, -abs(_change(*one) or 0.0), natural(one[1].key)))
    lines += [_change_line(before, after) for before, after in ordered[:MOST_CHANGES]]
    if len(ordered) > MOST_CHANGES:
        lines.append((Span(f"… and {len(ordered) - MOST_CHANGES} more"),))
    return lines


def _change(before: Entry | None, after: Entry) -> float | None:
    """Return the rise of an entry's figure, GB/s or counts, as a share; None where one side has no figure."""
    old, new = before and _entry_figure(before), _entry_figure(after)
    return new / old - 1 if old and new else None


def _other_changes(before: Entry, after: Entry) -> str:
    """Write an update's changes of an entry other than its figure: a new start, a loss since its anchor."""
    afresh = bool(before.runs) and len(after.runs) <= len(before.runs) and not after.counts
    gained = since_anchor(after, after.judged_on or "gbps")
    crept = "" if gained is None or gained > -LEAST_CREEP else f", {gained * 100:+.1f} % since its anchor"
    return (", started afresh" if afresh else "") + crept


def _entry_figure(entry: Entry) -> float | None:
    return sum(_shown_counts(entry).values()) if entry.counts else entry.gbps


def _shown_counts(entry: Entry) -> dict[str, int]:
    """Return the sum of all sectors; for a plugged-in device, all of its counts."""
    plugged = {called(name): count for name, count in entry.counts.items() if name not in COUNT_NAMES}
    return plugged or {"sectors": sum(entry.counts.get(name, 0) for name in SECTORS)}


def _change_line(before: Entry | None, after: Entry) -> TerminalLine:
    figure, unit = _entry_figure(after), " + ".join(_shown_counts(after)) if after.counts else "GB/s"
    text = "" if figure is None else f"{_entry_digits(after)} {unit}"
    runs = "" if after.counts else f" ({counted(len(after.runs), 'run')})"
    if before is None:
        return (Span("+ ", ("green",)), Span(f"{printable(after.key)}  {text}{runs}".rstrip()))
    change = _change(before, after)
    if change is not None:
        text = f"{_entry_digits(before)} → {text}, {change * 100:+.1f} %"
    line = f"{printable(after.key)}  {text}{runs}{_other_changes(before, after)}"
    return (Span("~ ", ("cyan",)), Span(line.rstrip()))


def _entry_digits(entry: Entry) -> str:
    figure = _entry_figure(entry) or 0.0
    return f"{figure:,.0f}" if entry.counts else digits(figure)
