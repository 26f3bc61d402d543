"""Compare saved runs: of one device by the gate's rule, each file as one fresh process; of several as a table.

Exit status 0: fine, or nothing to fail on was named; 1: what --fail-on names was found; 2: unusable input, among it
runs that allow no verdict although --fail-on asks for one.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, Literal

from pytest_bandwidth.cli.main import checked, device_words, print_json, terminal_width
from pytest_bandwidth.domain.baseline import Run
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.measured.metrics import choose_metric, metrics_of_run, value_of_run
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.text import listed
from pytest_bandwidth.domain.units import counted, digits, format_percent
from pytest_bandwidth.domain.values import positive_fraction
from pytest_bandwidth.domain.verdict import Decision, Rule, Status
from pytest_bandwidth.judging.decide import decide_counts, decide_processes, mismatch_of
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import Outcome
from pytest_bandwidth.outcomes.run_findings import model_of
from pytest_bandwidth.reports.text_safe import aligned, natural, printable
from pytest_bandwidth.reports.wording import sentence_of
from pytest_bandwidth.storage.saved_run import load_run

DEFAULT_TOLERANCE = Settings().tolerance
MOST_NAMED = 5
# The names of the two sides in messages.
REFERENCE, NEW = "the reference", "the new runs"
_HEADINGS = (
    *("test", "GB/s before", "GB/s after", "change", "probe"),
    *("judged on", "its change", "detects", "code", "verdict"),
)

Code = Literal["same", "changed"]
Loaded = Sequence[tuple[Path, Mapping[str, Any], Sequence[Outcome]]]


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN.json", help="documents that --bandwidth-json wrote")
    parser.add_argument(
        "--baseline",
        type=int,
        metavar="N",
        help="how many of the files, from the first, are the reference (default: 1)",
    )
    parser.add_argument(
        "--tolerance",
        type=checked(positive_fraction),
        metavar="P",
        help="smallest slowdown that counts, e.g. 5%% (default: each test's own, from the newest file)",
    )
    parser.add_argument(
        "--fail-on",
        choices=("regressed", "strict"),
        help="exit status 1 for what fails a test (REGRESSED, MISMATCH); strict: and for what was not judged",
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    if len(options.runs) < 2:
        raise UsageError(f"found {len(options.runs)} saved run, expected two or more")
    loaded = [(path, *load_run(path)) for path in options.runs]
    # One run given twice would count as two processes that agree perfectly.
    first: dict[str, Path] = {}
    for path, document, _ in loaded:
        other = first.setdefault(document["run_id"], path)
        if other is not path:
            run_id = document["run_id"]
            raise UsageError(f"{path}: found the run {run_id!r:.60} again, as in {other}, expected another")
    devices = {model_of(document["device"]) for _, document, _ in loaded}
    if len(devices) > 1:
        return compare_devices(options, loaded)
    return compare_runs(options, loaded)


# ---- several devices -------------------------------------------------------------------------------------------------


def compare_devices(options: argparse.Namespace, loaded: Loaded) -> int:
    """Print a table of several devices, without a verdict: another device is no regression.

    Raises UsageError where a verdict was asked for.
    """
    groups: dict[tuple[Any, ...], list[tuple[Mapping[str, Any], Sequence[Outcome]]]] = {}
    for _, document, outcomes in loaded:
        groups.setdefault(model_of(document["device"]), []).append((document["device"], outcomes))
    devices = []
    for group in groups.values():
        device, _ = group[0]
        about = {name: device.get(name) for name in ("name", "memory_gib", "kind")}
        peak_gbps = device["peak"]["gbps"] if device.get("peak") else None
        devices.append({**about, "peak_gbps": peak_gbps, "runs": len(group)})
    names = ", ".join(str(device["name"]) for device in devices)
    for option, value in (("--fail-on", options.fail_on), ("--baseline", options.baseline)):
        if value is not None:
            raise UsageError(f"{option} {value}: found runs of {len(devices)} devices ({names}), expected one device's")
    figures = [_figures(outcomes for _, outcomes in group) for group in groups.values()]
    tests: list[dict[str, Any]] = []
    for key in dict.fromkeys(chain.from_iterable(figures)):
        gbps, shares = zip(*(one.get(key, (None, None)) for one in figures), strict=True)
        ratios = [one / gbps[0] if one is not None and gbps[0] else None for one in gbps]
        tests.append({"key": key, "gbps": gbps, "utilization": shares, "ratio": ratios})
    if options.json:
        print_json({"verdict": None, "devices": devices, "tests": tests})
    else:
        print("\n".join(_lines_of_devices(devices, tests)))
    return 0


def _figures(runs: Iterable[Sequence[Outcome]]) -> dict[str, tuple[float | None, float | None]]:
    """Return the medians of GB/s and of the share of the peak over the runs that measured them, by key."""
    measured: dict[str, list[Outcome]] = {}
    for outcome in chain.from_iterable(runs):
        if outcome.is_valid and outcome.gbps:
            measured.setdefault(outcome.key, []).append(outcome)
    return {
        key: (median_known(one.gbps for one in found), median_known(one.of_peak for one in found))
        for key, found in measured.items()
    }


def _lines_of_devices(devices: Sequence[Mapping[str, Any]], tests: Sequence[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    headings = ["test"]
    rows = [[test["key"]] for test in tests]
    for i, about in enumerate(devices):
        named = f"[{i + 1}]"
        words = device_words(about["name"], about["memory_gib"], about["peak_gbps"])
        lines.append(f"{named} {', '.join([*words, counted(about['runs'], 'run')])}")
        headings += [f"{named} GB/s", f"{named} of peak", *([f"{named} ÷ [1]"] if i else [])]
        for test, cells in zip(tests, rows, strict=True):
            gbps, share, ratio = (test[name][i] for name in ("gbps", "utilization", "ratio"))
            cells += ["" if gbps is None else digits(gbps), "" if share is None else format_percent(share)]
            cells += ["" if ratio is None else f"{ratio:.2f}"] if i else []
    return [*lines, *aligned(headings, rows, width=terminal_width()), "different devices: no verdict"]


# ---- runs of one device ----------------------------------------------------------------------------------------------

# The rule is that of stored figures (`judging.stored`). The new processes were not chosen by their figures, so all of
# them count at once. Counts are exact, so only the newest run of each side is compared.

# The rows of each test, oldest first.
Rows = Mapping[str, Sequence[Outcome]]


@dataclass(frozen=True, slots=True)
class Compared:
    """Hold one test on both sides: GB/s and the probe's GB/s (medians, None where nothing valid was measured)."""

    key: str
    gbps_before: float | None
    gbps_after: float | None
    probe_before: float | None
    probe_after: float | None
    decision: Decision
    code: Code | None = None


def compare_runs(options: argparse.Namespace, loaded: Loaded) -> int:
    """Print table and findings. Raises UsageError where --fail-on asks for a verdict and no test has one."""
    count = 1 if options.baseline is None else options.baseline
    if not 1 <= count < len(loaded):
        raise UsageError(f"--baseline {count}: expected 1 to {len(loaded) - 1} of the {len(loaded)} files")
    reference, fresh = _rows_of(loaded[:count]), _rows_of(loaded[count:])
    found = _compared(reference, fresh, loaded[-1][1], options.tolerance)
    statuses = list(Status)
    compared = sorted(
        found,
        key=lambda one: (
            statuses.index(one.decision.status),
            -(one.decision.numbers.drop or 0.0),
            natural(one.key),
            one.key,
        ),
    )
    missing = [key for key in reference if key not in fresh]
    unjudged = (Rule.NO_ENTRY, Rule.NOTHING_VALID)
    if options.fail_on and all(c.decision.rule in unjudged for c in compared):
        raise UsageError(f"--fail-on {options.fail_on}: found no test that both sides measured, expected one or more")
    notes = _notes(loaded, compared, missing, count)
    if options.json:
        print_json(_plain(loaded, count, compared, missing, notes))
    else:
        print("\n".join(_lines(loaded, count, compared, notes)))
    strict = options.fail_on == "strict"
    failing = any(c.decision.status.fails(strict=strict) for c in compared) or (strict and bool(missing))
    return 1 if options.fail_on and failing else 0


def _rows_of(loaded: Loaded) -> Rows:
    """Return the rows of every test of some runs; tests in the order of the newest. Raises UsageError."""
    runs: list[dict[str, Outcome]] = []
    for path, _, outcomes in loaded:
        by_key: dict[str, Outcome] = {}
        for outcome in outcomes:
            # Two measurements in one process are no evidence of two processes.
            if outcome.key in by_key:
                raise UsageError(f"{path}: found {outcome.key!r:.100} twice, expected one process of one device")
            by_key[outcome.key] = outcome
        runs.append(by_key)
    keys = dict.fromkeys(key for run in reversed(runs) for key in run)
    return {key: [run[key] for run in runs if key in run] for key in keys}


def _compared(reference: Rows, fresh: Rows, newest: Mapping[str, Any], tolerance: float | None) -> list[Compared]:
    """Return every test of the new runs judged by the reference's runs.

    newest: the document of the newest run. tolerance: for all tests; None for the tolerance of that run, and
    for 0 with counts.
    """
    timed_on = newest["device"]["timed_on"]
    # The run's --bandwidth-tolerance, since the verdict of a test without a baseline has no tolerance.
    default = newest.get("settings", {}).get("tolerance")
    if not isinstance(default, float) or not 0 < default < 1:
        default = DEFAULT_TOLERANCE
    compared = []
    for key, now in fresh.items():
        then = reference.get(key, ())
        before, after = _side(then), _side(now)
        if not then:
            decision = Decision(Status.UNDECIDED, Rule.NO_ENTRY, facts={"path": REFERENCE})
        elif timed_on == "nothing":
            decision = _by_counts(then, now, tolerance or 0.0)
        else:
            held_to = tolerance or after.tolerance or default
            decision = _by_figures(before, after, held_to, on_host=timed_on == "host")
        code = _code_between(then, now)
        compared.append(Compared(key, before.gbps, after.gbps, before.probe_gbps, after.probe_gbps, decision, code))
    return compared


@dataclass(frozen=True, slots=True)
class _Side:
    """Hold the valid rows of a test on one side, oldest first, and their figures, all positive.

    gbps, probe_gbps: medians. tolerance: of the newest row.
    """

    rows: Sequence[Outcome]
    runs: tuple[Run, ...]
    gbps: float | None
    probe_gbps: float | None
    tolerance: float | None


def _side(rows: Sequence[Outcome]) -> _Side:
    valid = [row for row in rows if row.is_valid and _positive(row.gbps)]
    seen = tuple(Run(one.gbps or 0.0, _positive(one.probe_gbps), _positive(one.relative)) for one in valid)
    tolerance = valid[-1].verdict.get("tolerance") if valid else None
    return _Side(
        valid,
        seen,
        median_known(run.gbps for run in seen),
        median_known(run.probe_gbps for run in seen),
        tolerance if tolerance is not None and 0 < tolerance < 1 else None,
    )


def _positive(figure: float | None) -> float | None:
    return figure if figure is not None and figure > 0 else None


def _by_figures(before: _Side, after: _Side, tolerance: float, *, on_host: bool) -> Decision:
    """Judge by the entry that an update with the reference's processes would have written."""
    if not before.runs or not after.runs:
        return _nothing_valid(NEW if before.runs else REFERENCE)
    judged_on = choose_metric(None, None, metrics_of_run(before.runs[-1]), before.rows[-1].regime)
    entry = before.rows[-1].to_entry(gbps=before.gbps, judged_on=judged_on, runs=before.runs)
    for row in (*before.rows, *after.rows):
        if (mismatch := mismatch_of(row.to_entry(), entry)) is not None:
            return mismatch
    figure = choose_metric(None, entry, metrics_of_run(after.runs[-1]), after.rows[-1].regime)
    values = [value for run in after.runs if (value := value_of_run(run, figure)) is not None]
    if len(values) < len(after.runs):
        figure, values = "gbps", [run.gbps for run in after.runs]
    reference = reference_of(entry, figure, on_host)
    assert reference is not None  # each of its runs has GB/s
    return decide_processes(reference, values, tolerance)


def _by_counts(then: Sequence[Outcome], now: Sequence[Outcome], tolerance: float) -> Decision:
    """Judge the newest run that counted the test by the reference's newest."""
    before, after = (next((row for row in reversed(rows) if row.counts and row.is_valid), None) for rows in (then, now))
    if before is None or after is None:
        return _nothing_valid(NEW if before is not None else REFERENCE)
    same = _code_between([before], [after]) == "same"
    return decide_counts(after.to_entry(), before.to_entry(), tolerance, is_same_code=same)


def _nothing_valid(where: str) -> Decision:
    """Return UNDECIDED for a test that one side did not measure validly."""
    return Decision(Status.UNDECIDED, Rule.NOTHING_VALID, facts={"text": where})


def _code_between(then: Sequence[Outcome], now: Sequence[Outcome]) -> Code | None:
    """Return "same" if all runs had the same code, "changed" if the newest of each side surely differ, else None."""
    if not then or not now:
        return None
    before, after = ([identity_of_plain(row.code_identity) for row in rows] for rows in (then, now))
    by = "ptx" if now[-1].counts else "sass"
    if all(one.is_same(before[0], by=by) for one in (*before[1:], *after)):
        return "same"
    return "changed" if after[-1].compared_with(before[-1], by=by) == "changed" else None


def _notes(loaded: Loaded, compared: Sequence[Compared], missing: Sequence[str], count: int) -> list[dict[str, str]]:
    """Return notes on what the table does not show, each with a code for programs."""
    notes = []
    serials = {str(document["device"].get("serial")) for _, document, _ in loaded}
    if len(serials) > 1:
        text = (
            f"{len(serials)} units of this device ({', '.join(sorted(serials))}): their own differences count as drops"
        )
        notes.append({"code": "units", "text": text})
    blunt = [c.decision.numbers.allowed_drop or 0.0 for c in compared if c.decision.rule == Rule.TOO_NOISY]
    if blunt:
        runs = f"{counted(count, 'reference run')} and {counted(len(loaded) - count, 'new run')}"
        text = (
            f"{counted(len(blunt), 'test')} could not be judged: {runs} can only detect large drops, here of "
            f"{format_percent(median(blunt), 1)} or more (median): save several runs of each side, each of a new "
            "process, and give them with --baseline N"
        )
        notes.append({"code": "noise", "text": text})
    if missing:
        shown = listed(missing, MOST_NAMED)
        text = f"{len(missing)} of the reference's tests were not measured again: {shown}"
        notes.append({"code": "absent", "text": text})
    return notes


def _lines(loaded: Loaded, count: int, compared: Sequence[Compared], notes: Sequence[Mapping[str, str]]) -> list[str]:
    device = printable(loaded[0][1]["device"]["name"])
    lines = [f"{device}: {counted(len(loaded) - count, 'run')} against {counted(count, 'run')} before"]
    lines += aligned(
        _HEADINGS, [_cells(c) for c in compared], left=("judged on", "code", "verdict"), width=terminal_width()
    )
    for one in compared:
        status, decision = one.decision.status, one.decision
        # The table shows neither reasons nor counts. One note covers all noisy tests.
        counted_gain = status is Status.IMPROVED and decision.numbers.figure is None
        unjudged = status is Status.UNDECIDED and decision.rule != Rule.TOO_NOISY
        if status.always_fails or counted_gain or unjudged:
            same = "; the code is the same on both sides" if one.code == "same" else ""
            lines.append(f"{status} {printable(f'{one.key}: {sentence_of(decision)}{same}')}")
    lines += [printable(note["text"]) for note in notes]
    counts = Counter(c.decision.status for c in compared)
    totals = ", ".join(f"{counts[status]} {status}" for status in Status if counts[status])
    return [*lines, f"{len(compared)} compared: {totals}"]


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
    device = loaded[0][1]["device"]
    runs = [{"path": str(path), "run_id": document["run_id"]} for path, document, _ in loaded]
    tests = [
        {
            "key": one.key,
            **{name: getattr(one, name) for name in ("gbps_before", "gbps_after", "probe_before", "probe_after")},
            "status": one.decision.status.value,
            "reason_code": one.decision.rule,
            "reason": sentence_of(one.decision),
            **asdict(one.decision.numbers),
            "code_of_both": one.code,
        }
        for one in compared
    ]
    return {
        "device": {name: device.get(name) for name in ("name", "memory_gib", "kind")},
        "reference": runs[:count],
        "runs": runs[count:],
        "verdict": "regressed" if any(c.decision.status.always_fails for c in compared) else "fine",
        "counts": dict(Counter(c.decision.status.value for c in compared)),
        "findings": [dict(note) for note in notes],
        "absent": list(missing),
        "tests": tests,
    }
