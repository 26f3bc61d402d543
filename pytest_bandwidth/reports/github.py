"""Write text for GitHub Actions: a job summary in Markdown, and annotations on the lines of tests."""

# Without the usual future import: `annotations` is a name of this module.
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pytest_bandwidth.domain.units import digits
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import FAILED_BEFORE, UNJUDGED
from pytest_bandwidth.reports.columns import columns, with_texts
from pytest_bandwidth.reports.summary import by_attention, severity_in, summary_of_run
from pytest_bandwidth.reports.text_safe import names_among, one_line
from pytest_bandwidth.reports.wording import message_lines
from pytest_bandwidth.storage.saved_run import RunDocument, read_document

# GitHub takes 1 MiB of summary for a step and shows 10 annotations of each kind.
# https://docs.github.com/en/actions/reference/workflows-and-actions/workflow-commands
SUMMARY_BYTES_AT_MOST = 900_000
ROWS_AT_MOST = 300
FAILURES_AT_MOST = 20
ANNOTATIONS_AT_MOST = 10
_SIGNS = {"bad": "❌", "warn": "⚠️", "good": "✅", "plain": "✅"}
# Every character that may have a meaning in Markdown, HTML or GitHub (mentions, references, links without markup).
_NOT_PLAIN = re.compile(r"""(?:(?<![0-9])\.|\.(?![0-9])|[^A-Za-z0-9 ,;%()/?'".\u00a0-\U0010ffff])""")


def job_summary(document: Mapping[str, Any], at_most: int = SUMMARY_BYTES_AT_MOST) -> str:
    """Return Markdown for ``$GITHUB_STEP_SUMMARY``: the verdict, what needs attention, then everything, folded.

    at_most: bytes; parts that do not fit are left out, with a note. Texts are escaped (see `markdown`).
    Raises UsageError for an invalid document.
    """
    run = read_document(document)
    summary = summary_of_run(run)
    facts = [one_line(run.device.name, 120)]
    if run.device.peak_gbps is not None:
        facts.append(f"peak {digits(run.device.peak_gbps)} GB/s ({one_line(run.device.peak_source, 120)})")
    facts.append(f"against {one_line(run.baseline_path, 200)}" if run.baseline_path else "no baseline")
    parts = [f"## {_SIGNS[summary.severity]} {markdown(summary.sentence)}", markdown(", ".join(facts))]
    if summary.counts:
        parts.append(" · ".join(f"**{count.count}** {count.words}" for count in summary.counts))
    if run.findings:
        parts.append("\n".join(f"- {markdown(one_line(note.text or note.code, 500))}" for note in run.findings[:20]))
    outcomes = by_attention(run.outcomes, strict=run.strict)
    attention = [o for o in outcomes if severity_in(o, strict=run.strict) in ("bad", "warn")]
    name_of = names_among(run.outcomes)
    if attention:
        parts.append(_table(run, attention, name_of))
        parts += _messages([o for o in attention if run.fails(o)], name_of)
    rest = [o for o in outcomes if severity_in(o, strict=run.strict) in ("good", "plain")]
    if rest:
        table = _table(run, rest, name_of)
        parts.append(f"<details><summary>{len(rest)} that passed</summary>\n\n{table}\n</details>")
    left_out = max(0, len(attention) - ROWS_AT_MOST) + max(0, len(rest) - ROWS_AT_MOST)
    if left_out:
        parts.append(f"{left_out} more are in the HTML summary.")
    return _bounded(parts, at_most)


def stopped_summary(errors: Sequence[str], at_most: int = SUMMARY_BYTES_AT_MOST) -> str:
    """Return Markdown with the errors that stopped a run before its tests; at_most as for `job_summary`."""
    lines = [f"- {markdown(one_line(error, 500))}" for error in errors[:FAILURES_AT_MOST]]
    more = [f"{len(errors) - FAILURES_AT_MOST} more are in the log."] if len(errors) > FAILURES_AT_MOST else []
    return _bounded([f"## {_SIGNS['bad']} The run stopped before its tests", "\n".join(lines), *more], at_most)


def annotations(document: Mapping[str, Any], place: Callable[[str], str | None] = str) -> str:
    """Return workflow commands, one a line: ``::error`` where a test fails, ``::warning`` where it could not be judged.

    The worst come first, since GitHub shows no more than ten of each. The title is the message's first line, the text
    the test's name and the other lines. Tests that failed before they were judged follow: a compiler's error, a fault.
    place: returns a result's file as a path in the repository, or None for a file outside of it; then the annotation
    belongs to the job instead of a line. Raises UsageError for an invalid document.
    """
    run = read_document(document)
    name_of = names_among(run.outcomes)
    outcomes = by_attention(run.outcomes, strict=run.strict)
    kinds: dict[str, list[str]] = {"bad": [], "warn": []}

    def annotate(severity: str, file: str | None, line: int | None, title: str, text: str) -> None:
        where = place(file) if file else None
        properties = [] if where is None else [f"file={_property(where)}"]
        if where is not None and line is not None and line > 0:
            properties.append(f"line={line}")
        kinds[severity].append(f"{','.join([*properties, f'title={_property(title)}'])}::{_data(text)}")

    for outcome in outcomes:
        severity = severity_in(outcome, strict=run.strict)
        if severity in kinds and outcome.xfail is None:
            title, *others = message_lines(outcome)
            text = "\n".join([one_line(name_of(outcome), 200), *others])
            annotate(severity, outcome.file, outcome.line, title, text)
    for note in run.findings:
        if note.code == UNJUDGED:
            nodeid, _, message = note.text.partition(FAILED_BEFORE)
            annotate("bad", nodeid.partition("::")[0], None, message or note.text, one_line(nodeid, 200))
    lines = [f"::error {text}" for text in kinds["bad"][:ANNOTATIONS_AT_MOST]]
    lines += [f"::warning {text}" for text in kinds["warn"][:ANNOTATIONS_AT_MOST]]
    return "".join(f"{line}\n" for line in lines)


def markdown(value: str) -> str:
    """Escape one line of text for Markdown and HTML: punctuation that could mean more becomes references."""
    return _NOT_PLAIN.sub(lambda match: f"&#{ord(match[0])};", value)


def _data(value: str) -> str:
    """Escape as GitHub's own toolkit does (actions/toolkit, packages/core/src/command.ts)."""
    return value.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: str) -> str:
    return _data(one_line(value, 500)).replace(":", "%3A").replace(",", "%2C")


def _table(run: RunDocument, outcomes: Sequence[Outcome], name_of: Callable[[Outcome], str]) -> str:
    outcomes = outcomes[:ROWS_AT_MOST]
    found = with_texts(columns("markdown"), outcomes)
    heads = [markdown(column.heading) for column, _ in found]
    lines = [_line(["status", "test", *heads]), _line(["---"] * 2 + ["--:"] * len(heads))]
    for i, outcome in enumerate(outcomes):
        status = f"{_SIGNS[severity_in(outcome, strict=run.strict)]} {outcome.status}"
        cells = (status, one_line(name_of(outcome), 160), *(one_line(texts[i], 160) or "–" for _, texts in found))
        lines.append(_line([markdown(cell) for cell in cells]))
    return "\n".join(lines)


def _messages(failed: Sequence[Outcome], name_of: Callable[[Outcome], str]) -> list[str]:
    """Quote the messages of failed tests below the table, each in a fold that shows its first line."""
    parts = []
    for outcome in failed[:FAILURES_AT_MOST]:
        first, *others = map(markdown, message_lines(outcome))
        summary = f"<strong>{markdown(one_line(name_of(outcome), 160))}</strong> {first}"
        text = "\n".join(others)
        parts.append(f"<details><summary>{summary}</summary>\n\n<pre>{text}</pre>\n\n</details>")
    return parts


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _bounded(parts: Sequence[str], at_most: int) -> str:
    """Return the parts that fit: GitHub refuses a summary that is too large."""
    kept: list[str] = []
    size = 0
    for part in parts:
        size += len(part.encode()) + 2
        if size > at_most:
            kept.append("The rest is in the HTML summary.")
            break
        kept.append(part)
    return "\n\n".join(kept) + "\n"
