"""Say which tests gave no figure: entries of the baseline that went unmeasured, and tests that skip on this device."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.reports.terminal import Span, TerminalLine
from pytest_bandwidth.reports.text_safe import printable

MOST_NAMED = 10


def not_measured_lines(not_measured: Mapping[str, str]) -> list[TerminalLine]:
    """Make one line of all entries whose test ran and measured nothing for them; why, by key."""
    if not not_measured:
        return []
    return [(Span("NOT MEASURED", ("yellow", "bold")), Span(f" {_entries(not_measured)}"))]


def unmeasured_sentence(not_measured: Mapping[str, str]) -> str:
    """Say which entries no test was there to measure, and why."""
    return f"no test measured {_entries(not_measured)}"


def _entries(not_measured: Mapping[str, str]) -> str:
    named = [f"{printable(key)} ({printable(why)})" for key, why in list(not_measured.items())[:MOST_NAMED]]
    more = f" and {len(not_measured) - MOST_NAMED} more" if len(not_measured) > MOST_NAMED else ""
    count = "1 entry" if len(not_measured) == 1 else f"{len(not_measured)} entries"
    return f"{count} of the baseline: {', '.join(named)}{more}"


def skipped_lines(skipped: Mapping[str, int]) -> list[str]:
    """Make a line for each reason why tests skip on this device; how many, by reason."""
    return [
        f"skipped on this device: {counted(number, 'test')}: {printable(reason)}" for reason, number in skipped.items()
    ]
