"""Grade results and sort them by the attention that they need; summarise a run in a sentence, with its counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_bandwidth.domain.units import counted
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.outcomes.outcome import Outcome, mapping, number, sequence
from pytest_bandwidth.outcomes.run_findings import DEVICE_LOSS, FAILED, HIDDEN, OF_UNMEASURED, UNJUDGED
from pytest_bandwidth.reports.text_safe import natural
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


def severity_of(status: Status, *, strict: bool, expected: bool = False) -> Severity:
    """Grade a status: bad fails its test, warn could not be judged, good is welcome news, plain is as it should be.

    expected: whether the test is expected to fail (xfail): then it does not fail the run, but needs attention.
    """
    if status.fails(strict=strict):
        return "warn" if expected else "bad"
    if status.warns:
        return "warn"
    return "good" if status is Status.IMPROVED else "plain"


def severity_in(outcome: Outcome, *, strict: bool) -> Severity:
    """Grade a row of a run, as `severity_of` does."""
    return severity_of(Status(outcome.status), strict=strict, expected=outcome.xfail is not None)


def gravity(status: Status, severity: Severity) -> tuple[int, int]:
    """Return the sort key: failures first, then results that were not judged, then others; inside by precedence."""
    return ("bad", "warn", "good", "plain").index(severity), list(Status).index(status)


def by_attention(outcomes: Iterable[Outcome], *, strict: bool) -> list[Outcome]:
    """Sort by gravity, then the largest loss first, then names in natural order."""
    return sorted(outcomes, key=lambda outcome: attention_key(outcome, strict=strict))


def attention_key(outcome: Outcome, *, strict: bool) -> tuple[object, ...]:
    """Return the sort key of `by_attention`."""
    grave = gravity(Status(outcome.status), severity_in(outcome, strict=strict))
    return (*grave, -loss_of(outcome), natural(outcome.key), outcome.key)


def loss_of(outcome: Outcome) -> float:
    """Return the share of its figure that a row lost, or the largest rise of a count as a share; 0 where unknown."""
    verdict = outcome.verdict
    drop = number(verdict, "drop")
    if drop is not None:
        return drop
    observed, reference = number(verdict, "observed"), number(verdict, "reference")
    if observed is not None and reference:
        return 1 - observed / reference
    rises = []
    for change in sequence(mapping(verdict, "facts"), "changes"):
        match change:  # 100 → 200 is a half; saved runs may hold anything
            case (_, int(then), int(now)) if now > 0:
                rises.append(1 - then / now)
            case _:
                rises.append(0.0)
    return max(rises, default=0.0)


@dataclass(frozen=True, slots=True)
class StatusCount:
    """Hold one status that occurs in the run: how often, and how it ends. expected: of tests expected to fail."""

    status: Status
    count: int
    severity: Severity
    expected: bool = False

    @property
    def words(self) -> str:
        return _WORDS[self.status] + (", as expected" if self.expected else "")


@dataclass(frozen=True, slots=True)
class RunSummary:
    """Hold the verdict on a run, and counts of statuses, the gravest first."""

    sentence: str
    severity: Severity
    counts: tuple[StatusCount, ...]


def summary_of_run(run: RunDocument) -> RunSummary:
    """Return the verdict on a whole run."""
    found = Counter(
        (
            Status[o.status],
            severity_in(o, strict=run.strict),
            o.xfail is not None and Status[o.status].fails(strict=run.strict),
        )
        for o in run.outcomes
    )
    counts = tuple(
        StatusCount(status, found[status, severity, expected], severity, expected)
        for status, severity, expected in sorted(found, key=lambda one: (*gravity(*one[:2]), one[2]))
    )
    sentence, severity = _failure(run, counts) or _passed(run, counts)
    return RunSummary(sentence, severity, counts)


def _failure(run: RunDocument, counts: Sequence[StatusCount]) -> tuple[str, Severity] | None:
    """Return a sentence on why the run failed; None where it did not."""
    codes = Counter(note.code for note in run.findings)
    failed = sum(count.count for count in counts if count.severity == "bad")
    broken = counted(codes[UNJUDGED], "test")
    if failed:
        and_broken = f", and {broken} before being judged" if codes[UNJUDGED] else ""
        return f"{failed} of {_measurements(run)} failed{and_broken}", "bad"
    if codes[UNJUDGED]:
        return f"{broken} failed before being judged", "bad"
    if codes[HIDDEN]:
        return f"{counted(codes[HIDDEN], 'test')} failed but passed in the report", "bad"
    if codes[FAILED]:
        return f"{counted(codes[FAILED], 'test')} failed for another reason than bandwidth", "bad"
    # Without --bandwidth-device-tolerance a loss is only reported.
    if codes[DEVICE_LOSS] and run.settings.get("device_tolerance") is not None:
        return "The device is slower than allowed", "bad"
    if run.strict and _is_incomplete(run):
        return "Entries of the baseline were not measured", "bad"
    unwritten = any(outcome.reason_code == Rule.NOT_WRITTEN for outcome in run.outcomes)
    if unwritten and [count.status for count in counts] == [Status.UNDECIDED]:
        return f"{_measurements(run)}, none saved to the baseline", "bad"
    return None


def _passed(run: RunDocument, counts: Sequence[StatusCount]) -> tuple[str, Severity]:
    """Return a sentence on how a run ended that did not fail."""
    unjudged = sum(count.count for count in counts if count.severity == "warn" and not count.expected)
    if not run.outcomes:
        return "Nothing was measured", "warn"
    if all(outcome.reason_code == Rule.NO_BASELINE for outcome in run.outcomes):
        return f"{_measurements(run)}, no baseline to compare with", "warn"
    if unjudged:
        verb = "was" if unjudged == 1 else "were"
        return f"Nothing failed, but {unjudged} of {_measurements(run)} {verb} not judged", "warn"
    if _is_incomplete(run):
        return "Nothing failed, but entries of the baseline were not measured", "warn"
    if [count.status for count in counts] == [Status.SAVED]:
        return f"{_measurements(run)} saved to the baseline", "plain"
    if expected := sum(count.count for count in counts if count.expected):
        return f"{expected} of {_measurements(run)} failed, as expected", "good"
    return f"{'The measurement' if len(run.outcomes) == 1 else f'All {_measurements(run)}'} passed", "good"


def _measurements(run: RunDocument) -> str:
    return counted(len(run.outcomes), "measurement")


def _is_incomplete(run: RunDocument) -> bool:
    return any(note.code in OF_UNMEASURED for note in run.findings)


def signed_percent(fraction: float) -> str:
    """Write a change with its sign: +1.2 %, −4.5 %."""
    shown = f"{abs(fraction) * 100:.1f} %"
    return shown if shown == "0.0 %" else f"{_MINUS if fraction < 0 else '+'}{shown}"
