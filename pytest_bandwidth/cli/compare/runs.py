"""Judge saved runs of one device by the reference's, and show them as a table."""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from math import exp, log
from pathlib import Path
from statistics import median
from typing import Any

from pytest_bandwidth.cli.compare.sides import Compared, SavedRun, absent, compare_counted, compare_sides
from pytest_bandwidth.cli.output import print_json, terminal_width
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.units import counted, digits, format_percent
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.reports.names import natural
from pytest_bandwidth.reports.tables import aligned
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.reports.wording import sentence_of

DEFAULT_TOLERANCE = Settings().tolerance
MOST_NAMED = 5
_HEADINGS = (
    "test",
    "GB/s before",
    "GB/s after",
    "change",
    "probe",
    "judged on",
    "its change",
    "detects",
    "code",
    "verdict",
)

Loaded = Sequence[tuple[Path, Mapping[str, Any], Sequence[Outcome]]]


def compare_runs(options: argparse.Namespace, loaded: Loaded, tolerance: float | None) -> int:
    """Print table and findings. Raises UsageError where --fail-on asks for a verdict and no test has one."""
    count = 1 if options.baseline is None else options.baseline
    if not 1 <= count < len(loaded):
        raise UsageError(f"--baseline {count}: expected 1 to {len(loaded) - 1} of the {len(loaded)} files")
    runs = [_saved(path, document, outcomes) for path, document, outcomes in loaded]
    reference, fresh = runs[:count], runs[count:]
    timed_on = loaded[0][1]["device"]["timed_on"]
    if timed_on == "nothing":
        compared = compare_counted(reference, fresh, tolerance)
    else:
        default = _default_tolerance(loaded[-1][1])
        compared = compare_sides(reference, fresh, tolerance, default, on_host=timed_on == "host")
    compared.sort(key=_by_attention)
    missing = absent(reference, fresh)
    if options.fail_on and not any(_was_judged(c) for c in compared):
        raise UsageError(f"--fail-on {options.fail_on}: found no test that both sides measured, expected one or more")
    notes = _notes(loaded, compared, missing, count)
    if options.json:
        print_json(_plain(loaded, count, compared, missing, notes))
    else:
        print("\n".join(_lines(loaded, count, compared, notes)))
    return _status(options.fail_on, compared, missing)


def _by_attention(one: Compared) -> tuple[object, ...]:
    return list(Status).index(one.decision.status), -(one.decision.numbers.drop or 0.0), natural(one.key), one.key


def _was_judged(one: Compared) -> bool:
    return one.decision.rule not in (Rule.NO_ENTRY, Rule.NOTHING_VALID)


def _default_tolerance(newest: Mapping[str, Any]) -> float:
    """Return the newest run's --bandwidth-tolerance: a test measured without a baseline has no verdict with its own."""
    found = newest.get("settings", {}).get("tolerance")
    return found if isinstance(found, float) and 0 < found < 1 else DEFAULT_TOLERANCE


def _saved(path: Path, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> SavedRun:
    """Return a run's rows by key. Raises UsageError where a test was measured twice: two processes, not one."""
    by_key: dict[str, Outcome] = {}
    for outcome in outcomes:
        if by_key.setdefault(outcome.key, outcome) is not outcome:
            raise UsageError(f"{path}: found {outcome.key!r:.100} twice, expected one process of one device")
    return SavedRun(by_key, document["device"].get("settings", {}))


def _status(fail_on: str | None, compared: Sequence[Compared], missing: Sequence[str]) -> int:
    if fail_on is None:
        return 0
    strict = fail_on == "strict"
    failing = any(c.decision.status.fails(strict=strict) for c in compared) or (strict and bool(missing))
    return 1 if failing else 0


def _notes(loaded: Loaded, compared: Sequence[Compared], missing: Sequence[str], count: int) -> list[dict[str, str]]:
    """Collect what the table alone does not show, each with a code for programs."""
    notes = []
    serials = {str(document["device"].get("serial")) for _, document, _ in loaded}
    if len(serials) > 1:
        text = (
            f"{len(serials)} units of this device ({', '.join(sorted(serials))}): their own differences count as drops"
        )
        notes.append({"code": "units", "text": text})
    trouble = _probe_note(compared)
    notes += [{"code": "probe", "text": trouble}] if trouble else []
    blunt = [c for c in compared if c.decision.rule == Rule.TOO_NOISY]
    if blunt:
        notes.append({"code": "noise", "text": _blunt_text(blunt, count, len(loaded) - count)})
    if missing:
        shown = listed(missing, MOST_NAMED)
        text = f"{len(missing)} of the reference's tests were not measured again: {shown}"
        notes.append({"code": "absent", "text": text})
    return notes


def _probe_note(compared: Sequence[Compared]) -> str | None:
    """Say whether the device itself moved: the probe's change, median over the tests, past the smallest tolerance."""
    both = [c for c in compared if c.probe_before and c.probe_after and c.decision.numbers.tolerance]
    if not both:
        return None
    fell = -median(log(c.probe_after / c.probe_before) for c in both if c.probe_after and c.probe_before)
    if fell <= -log(1 - min(c.decision.numbers.tolerance or 1.0 for c in both)):
        return None
    return (
        f"the probes fell by {format_percent(1 - exp(-fell), 1)} (median over the tests): the device is slower, and "
        "what is judged on GB/s shows it"
    )


def _blunt_text(blunt: Sequence[Compared], reference: int, fresh: int) -> str:
    detects = median(c.decision.numbers.detects or 0.0 for c in blunt)
    runs = f"{counted(reference, 'reference run')} and {counted(fresh, 'new run')}"
    return (
        f"{counted(len(blunt), 'test')} could not be judged: {runs} can only see large drops, here of "
        f"{format_percent(detects, 1)} or more (median): save several runs a side, each a fresh process, and give them "
        "with --baseline N"
    )


def _lines(loaded: Loaded, count: int, compared: Sequence[Compared], notes: Sequence[Mapping[str, str]]) -> list[str]:
    device = printable(loaded[0][1]["device"]["name"])
    lines = [f"{device}: {counted(len(loaded) - count, 'run')} against {counted(count, 'run')} before"]
    lines += aligned(
        _HEADINGS, [_cells(c) for c in compared], left=("judged on", "code", "verdict"), width=terminal_width()
    )
    lines += [f"{c.decision.status} {printable(f'{c.key}: {_words(c)}')}" for c in compared if _wants_words(c)]
    lines += [printable(note["text"]) for note in notes]
    counts = Counter(c.decision.status for c in compared)
    told = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    return [*lines, f"{len(compared)} compared: {told}"]


def _words(one: Compared) -> str:
    return (
        f"{sentence_of(one.decision)}; the code is the same on both sides"
        if one.code == "same"
        else sentence_of(one.decision)
    )


def _wants_words(one: Compared) -> bool:
    """Return whether the table leaves open why: of counts it shows none, and what is noisy is said once for all."""
    status, noisy = one.decision.status, one.decision.rule == Rule.TOO_NOISY
    counted_gain = status is Status.IMPROVED and one.decision.numbers.figure is None
    return status.always_fails or counted_gain or (status is Status.UNDECIDED and not noisy)


def _cells(one: Compared) -> tuple[str, ...]:
    numbers = one.decision.numbers
    return (
        one.key,
        "" if one.gbps_before is None else digits(one.gbps_before),
        "" if one.gbps_after is None else digits(one.gbps_after),
        _change(one.gbps_before, one.gbps_after),
        _change(one.probe_before, one.probe_after),
        numbers.figure or "",
        "" if numbers.drop is None else f"{-numbers.drop * 100:+.1f} %",
        "" if numbers.detects is None else f"≥ {format_percent(numbers.detects, 1)}",
        one.code or "",
        one.decision.status.value,
    )


def _change(before: float | None, after: float | None) -> str:
    return f"{(after / before - 1) * 100:+.1f} %" if before and after else ""


def _plain(
    loaded: Loaded,
    count: int,
    compared: Sequence[Compared],
    missing: Sequence[str],
    notes: Sequence[Mapping[str, str]],
) -> dict[str, Any]:
    counts = Counter(c.decision.status.value for c in compared)
    device = loaded[0][1]["device"]
    return {
        "device": {name: device.get(name) for name in ("name", "memory_gib", "kind")},
        "reference": [{"path": str(path), "run_id": document["run_id"]} for path, document, _ in loaded[:count]],
        "runs": [{"path": str(path), "run_id": document["run_id"]} for path, document, _ in loaded[count:]],
        "verdict": "regressed" if any(c.decision.status.always_fails for c in compared) else "fine",
        "counts": dict(counts),
        "findings": [dict(note) for note in notes],
        "absent": list(missing),
        "tests": [_plain_test(c) for c in compared],
    }


def _plain_test(one: Compared) -> dict[str, Any]:
    decision = one.decision
    verdict = {
        "status": decision.status.value,
        "reason_code": decision.rule,
        "reason": sentence_of(decision),
        **asdict(decision.numbers),
    }
    figures = {name: getattr(one, name) for name in ("gbps_before", "gbps_after", "probe_before", "probe_after")}
    return {"key": one.key, **figures, **verdict, "code_of_both": one.code}
