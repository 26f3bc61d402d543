"""Sum a run up in a sentence, and sort its results by the attention that they deserve."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Literal

from pytest_bandwidth.domain.outcomes.run_findings import HIDDEN, OF_UNMEASURED, UNJUDGED
from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.storage.saved_run import RunDocument

Severity = Literal["bad", "warn", "good", "plain"]

_MINUS = "\N{MINUS SIGN}"
_WORDS = {
    Status.REGRESSED: "regressed",
    Status.MISMATCH: "not comparable",
    Status.UNDECIDED: "undecided",
    Status.IMPROVED: "improved",
    Status.OK: "OK",
    Status.SAVED: "saved to the baseline",
}


@dataclass(frozen=True, slots=True)
class StatusCount:
    """Hold one status that occurs in the run: how often, and how it ends."""

    status: Status
    count: int
    severity: Severity

    @property
    def words(self) -> str:
        return _WORDS[self.status]


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Hold the verdict on a run (sentence), its grounds (explanation) and counts of statuses, the gravest first."""

    sentence: str
    explanation: str
    severity: Severity
    counts: tuple[StatusCount, ...]


def severity_of(status: Status, *, strict: bool) -> Severity:
    """Grade a status: bad fails its test, warn could not be judged, good is welcome news, plain is as it should be."""
    if status.fails(strict=strict):
        return "bad"
    if status.warns:
        return "warn"
    return "good" if status is Status.IMPROVED else "plain"


def summary_of_run(run: RunDocument) -> RunSummary:
    """Return the verdict on a whole run."""
    found = Counter(Status[outcome.status] for outcome in run.outcomes)
    counts = tuple(
        StatusCount(status, found[status], severity_of(status, strict=run.strict))
        for status in sorted(found, key=lambda s: gravity(s, strict=run.strict))
    )
    total = len(run.outcomes)
    broken = sum(note.code == UNJUDGED for note in run.findings)
    hidden = sum(note.code == HIDDEN for note in run.findings)
    unmeasured = any(note.code in OF_UNMEASURED for note in run.findings)
    failed = sum(c.count for c in counts if c.severity == "bad")
    unjudged = sum(c.count for c in counts if c.severity == "warn")
    listed = ", ".join(f"{c.count} {c.words}" for c in counts)
    if failed:
        and_broken = f", and {counted(broken, 'test')} before being judged" if broken else ""
        return RunSummary(
            f"{failed} of {counted(total, 'measurement')} failed{and_broken}", f"{_capital(listed)}.", "bad", counts
        )
    if broken:
        explanation = f"{_capital(listed)}." if counts else "Nothing else was measured."
        return RunSummary(f"{counted(broken, 'test')} failed before being judged", explanation, "bad", counts)
    if hidden:
        explanation = f"{_capital(listed)}." if counts else "Nothing else was measured."
        return RunSummary(f"{counted(hidden, 'test')} failed and hid it", explanation, "bad", counts)
    if unmeasured and run.strict:
        sentence = "Entries of the baseline were not measured"
        return RunSummary(sentence, f"{_capital(listed)}." if counts else "Nothing was measured.", "bad", counts)
    if total == 0:
        return RunSummary("Nothing was measured", "No test of this run used the bandwidth fixture.", "warn", counts)
    unwritten = next((outcome for outcome in run.outcomes if outcome.reason_code == Rule.NOT_WRITTEN), None)
    if unwritten is not None and found[Status.UNDECIDED] == total:
        return RunSummary(
            f"{counted(total, 'measurement')}, none saved to the baseline",
            f"{_capital(unwritten.reason)}.",
            "bad",
            counts,
        )
    if all(outcome.reason_code == Rule.NO_BASELINE for outcome in run.outcomes):
        return RunSummary(
            f"{counted(total, 'measurement')}, no baseline to compare with",
            "Measured and reported only.",
            "warn",
            counts,
        )
    if unjudged:
        verb = "was" if unjudged == 1 else "were"
        sentence = f"Nothing failed, but {unjudged} of {counted(total, 'measurement')} {verb} not judged"
        return RunSummary(sentence, f"{_capital(listed)}.", "warn", counts)
    if unmeasured:
        sentence = "Nothing failed, but entries of the baseline were not measured"
        return RunSummary(sentence, f"{_capital(listed)}.", "warn", counts)
    if found[Status.SAVED] == total:
        return RunSummary(
            f"{counted(total, 'measurement')} saved to the baseline", "This run set the baseline.", "plain", counts
        )
    whole = "The measurement" if total == 1 else f"All {counted(total, 'measurement')}"
    return RunSummary(f"{whole} passed", f"{_capital(listed)}.", "good", counts)


def gravity(status: Status, *, strict: bool) -> tuple[int, int]:
    """Sort key: what fails first, then what could not be judged, then the rest; inside those by precedence."""
    rank = {"bad": 0, "warn": 1, "good": 2, "plain": 3}[severity_of(status, strict=strict)]
    return rank, list(Status).index(status)


def signed_percent(fraction: float) -> str:
    """Write a change with its sign: +1.2 %, −4.5 %."""
    shown = f"{abs(fraction) * 100:.1f} %"
    return shown if shown == "0.0 %" else f"{_MINUS if fraction < 0 else '+'}{shown}"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
