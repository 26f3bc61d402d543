"""Sum a run up in a sentence, with the counts of its statuses."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.outcomes.run_findings import DEVICE_LOSS, HIDDEN, OF_UNMEASURED, UNJUDGED
from pytest_bandwidth.reports.attention import Severity, gravity, severity_of
from pytest_bandwidth.storage.saved_run import RunDocument

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
    if _device_failed(run):
        return RunSummary("The device lost more than it may", f"{_capital(listed)}.", "bad", counts)
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


def _device_failed(run: RunDocument) -> bool:
    """Return whether unchanged tests lost more than --bandwidth-device-tolerance; without it a loss is only told."""
    lost = any(note.code == DEVICE_LOSS for note in run.findings)
    return lost and run.settings.get("device_tolerance") is not None


def signed_percent(fraction: float) -> str:
    """Write a change with its sign: +1.2 %, −4.5 %."""
    shown = f"{abs(fraction) * 100:.1f} %"
    return shown if shown == "0.0 %" else f"{_MINUS if fraction < 0 else '+'}{shown}"


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]
