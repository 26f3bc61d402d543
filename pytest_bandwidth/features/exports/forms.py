"""Render saved runs for other programs: for the trackers that teams have, and as SARIF for code scanning.

For trackers, a function renders each form from each run's timed, valid results. Bencher Metric Format:
https://bencher.dev/docs/reference/bencher-metric-format/. github-action-benchmark: its tool
`customBiggerIsBetter`. Apache Otava: the CSV that it imports. OpenMetrics 1.0, for Prometheus. Long CSV, for SQL.

SARIF 2.1.0, which GitHub shows in a pull request, reports what failed or could not be judged. A result's place is the
kernel's line if the failure names one and the checkout has one file of that name; else the test.
https://docs.github.com/en/code-security/reference/code-scanning/sarif-files/sarif-support
"""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from posixpath import normpath
from typing import Any, Literal
from urllib.parse import quote

from pytest_bandwidth.baseline.locate import slug
from pytest_bandwidth.cli.main import refuse_own_input, write_output
from pytest_bandwidth.devices.base import TEXT_NAME
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.statistics import median_known
from pytest_bandwidth.domain.text import DOCUMENTATION, shown
from pytest_bandwidth.domain.units import counted, format_moment
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.evidence.git import git, tree_of
from pytest_bandwidth.features.exports import SARIF_SCHEMA
from pytest_bandwidth.outcomes.outcome import Outcome, Plain, text
from pytest_bandwidth.outcomes.run_findings import FAILED_BEFORE, HELP, HIDDEN, UNJUDGED
from pytest_bandwidth.reports.documents import csv_text, line_of, render_json
from pytest_bandwidth.reports.summary import by_attention, severity_in
from pytest_bandwidth.reports.text_safe import json_for_log, one_line, printable, printable_sentence
from pytest_bandwidth.reports.wording import detail_of, help_link, message_lines
from pytest_bandwidth.storage.atomic import FileForm, refuse_foreign
from pytest_bandwidth.storage.saved_run import RunDevice, RunDocument, began, load_run, read_document


@dataclass(frozen=True, slots=True)
class Metric:
    """Describe one figure: its name, its unit ("" for a share), and its place in a result."""

    name: str
    unit: str
    value: Callable[[Outcome], float | None]


BANDWIDTH = Metric("bandwidth", "GB/s", lambda outcome: outcome.gbps)
SHARE = Metric("share_of_probe", "", lambda outcome: outcome.valid_relative)
DURATION = Metric("duration", "s", lambda outcome: outcome.seconds)
PROBE = Metric("probe_bandwidth", "GB/s", lambda outcome: outcome.probe_gbps)
UTILIZATION = Metric("utilization", "", lambda outcome: outcome.of_peak)
METRICS = (BANDWIDTH, SHARE, DURATION, PROBE, UTILIZATION)


@dataclass(frozen=True, slots=True)
class TimedRun:
    """Hold one run's timed results. started_at: UTC; commit, host: "" where unknown.

    left_out: keys of results that are not valid, or were not timed.
    """

    name: str
    run_id: str
    started_at: datetime
    commit: str
    host: str
    device: RunDevice
    by_key: Mapping[str, Outcome]
    left_out: tuple[str, ...]


def timed_run(document: RunDocument, name: str) -> TimedRun:
    """Return the run's timings. name: of its file. Raises UsageError for a run without timings, or without a start."""
    timed = {outcome.key: outcome for outcome in document.outcomes if outcome.is_valid and outcome.gbps}
    if not timed:
        results = counted(len(document.outcomes), "result")
        found = f"{results} without valid timings" if document.outcomes else "no results"
        raise UsageError(f"{name}: found {found}, expected a run that took times (the traffic device takes none)")
    try:
        started_at = began(document.environment)
    except UsageError as error:
        raise UsageError(f"{name}: {error}") from None
    return TimedRun(
        name=name,
        run_id=document.run_id,
        started_at=started_at,
        commit=text(document.environment, "commit"),
        host=text(document.environment, "host"),
        device=document.device,
        by_key=timed,
        left_out=tuple(outcome.key for outcome in document.outcomes if outcome.key not in timed),
    )


def refuse_unlike(runs: Sequence[TimedRun], form: str) -> None:
    """Raise UsageError for runs that a form cannot combine."""
    # One run given twice would count as two that agree.
    seen: dict[str, str] = {}
    for run in runs:
        if run.run_id in seen:
            raise UsageError(f"{run.name} has the same run as {seen[run.run_id]}, expected each run once")
        seen[run.run_id] = run.name
    devices = {(run.device.name, run.device.serial): run.name for run in runs}
    if FORMS[form].of_one_device and len(devices) > 1:
        (one, first), (other, second) = list(devices.items())[:2]
        raise UsageError(
            f"{form} has one figure a test: found runs of two devices, {one[0]} ({first}) and {other[0]} ({second}); "
            "export each device by itself"
        )


def keys_of(runs: Sequence[TimedRun]) -> list[str]:
    """Return the keys that any of the runs timed, in the order in which they first come."""
    return list(dict.fromkeys(key for run in runs for key in run.by_key))


def median_of(runs: Sequence[TimedRun], key: str, metric: Metric) -> float | None:
    """Return a test's figure, the median over the runs; None where no run has it."""
    values = (metric.value(run.by_key[key]) for run in runs if key in run.by_key)
    return median_known(values)


# ---- the forms -------------------------------------------------------------------------------------------------------

LONGEST_NAME = 1024  # bytes
# Bencher's own measure of time is in nanoseconds; the other measures are created when they are first sent.
_MEASURES = (("bandwidth", BANDWIDTH, 1.0), ("share-of-probe", SHARE, 1.0), ("latency", DURATION, 1e9))


def render_bencher(runs: Sequence[TimedRun]) -> str:
    """Return the JSON: by test `bandwidth` (GB/s), `share-of-probe` (a fraction) and `latency` (nanoseconds).

    Raises UsageError for a name that Bencher does not take.
    """
    found: dict[str, dict[str, dict[str, float]]] = {}
    for key in keys_of(runs):
        size = len(key.encode("utf-8", "surrogatepass"))
        if size > LONGEST_NAME:
            raise UsageError(f"{shown(key)} has {size} bytes, Bencher takes names of {LONGEST_NAME} at most")
        figures = ((name, scale, median_of(runs, key, metric)) for name, metric, scale in _MEASURES)
        found[key] = {name: {"value": value * scale} for name, scale, value in figures if value is not None}
    return json_for_log(found) + "\n"


def render_github_benchmark(runs: Sequence[TimedRun]) -> str:
    """Return the JSON: a list of `name`, `unit`, `value` and `extra`; each test by GB/s and by its share.

    On a shared machine, judge by the share of the probe, in percent.
    """
    entries: list[dict[str, str | float]] = []
    extra = f"{len(runs)} runs" if len(runs) > 1 else f"run {runs[0].run_id}"
    extra += f" on {runs[0].device.name}"
    for key in keys_of(runs):
        for metric, name, unit, scale in (
            (BANDWIDTH, key, "GB/s", 1.0),
            (SHARE, f"{key} (share of probe)", "%", 100.0),
        ):
            value = median_of(runs, key, metric)
            if value is not None:
                entries.append({"name": name, "unit": unit, "value": value * scale, "extra": extra})
    return json_for_log(entries) + "\n"


# Otava's importer uses `branch` as a filter of its own; these columns have no branch.
OTAVA_FIXED = ("time", "run_id", "commit", "device")


def columns_of(runs: Sequence[TimedRun]) -> tuple[list[str], list[str]]:
    """Return the tests that every run timed, and those that not every run did: Otava's columns have no gaps."""
    whole = [key for key in keys_of(runs) if all(key in run.by_key for run in runs)]
    return whole, [key for key in keys_of(runs) if key not in whole]


def render_otava(runs: Sequence[TimedRun]) -> str:
    """Return a header and a line for each run, oldest first: time (UTC), run, commit, device, and GB/s by test."""
    keys, _ = columns_of(runs)
    rows = [[*OTAVA_FIXED, *map(line_of, keys)]]
    for run in sorted(runs, key=lambda one: (one.started_at, one.run_id)):
        fixed = (run.started_at.isoformat(), run.run_id, run.commit, run.device.name)
        rows.append([*map(line_of, (*fixed, *(BANDWIDTH.value(run.by_key[key]) for key in keys)))])
    return csv_text(rows)


# Base units, as the specification asks for; a family's name ends in its unit.
_FAMILIES = (
    ("bandwidth", "bytes_per_second", BANDWIDTH, 1e9, "Declared bytes of one run over its median time."),
    ("probe_bandwidth", "bytes_per_second", PROBE, 1e9, "The same of the probe, in the same rounds."),
    ("share_of_probe", "ratio", SHARE, 1.0, "Median over the rounds of the work's bandwidth over the probe's."),
    ("utilization", "ratio", UTILIZATION, 1.0, "Share of the device's known peak bandwidth."),
    ("duration", "seconds", DURATION, 1.0, "Median time of one run."),
)
_ESCAPES = str.maketrans({"\\": "\\\\", '"': '\\"'})


def render_openmetrics(runs: Sequence[TimedRun]) -> str:
    """Return gauges by test and device, with the run's start as time stamp.

    Raises UsageError where two runs of one device began in the same second: their samples could not be distinguished.
    """
    seen: dict[tuple[object, ...], str] = {}
    for run in runs:
        one = (run.device.name, run.device.serial, run.host, run.started_at)
        if one in seen:
            raise UsageError(
                f"{seen[one]} and {run.name} began in the same second on {run.device.name}: OpenMetrics identifies "
                "samples by device and time; export one of them"
            )
        seen[one] = run.name
    lines: list[str] = []
    for name, unit, metric, scale, meaning in _FAMILIES:
        # All of one set of labels together, oldest first, as the format wants them.
        samples = sorted(
            (_labels(run, outcome.key), run.started_at.timestamp(), value * scale)
            for run in runs
            for outcome in run.by_key.values()
            if (value := metric.value(outcome)) is not None
        )
        if samples:
            family = f"pytest_bandwidth_{name}_{unit}"
            lines += [f"# TYPE {family} gauge", f"# UNIT {family} {unit}", f"# HELP {family} {meaning}"]
            lines += [f"{family}{{{labels}}} {value:.9g} {moment:.0f}" for labels, moment, value in samples]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _labels(run: TimedRun, key: str) -> str:
    labels = {"test": key, "device": run.device.name, "serial": run.device.serial, "host": run.host}
    return ",".join(f'{name}="{printable_sentence(text).translate(_ESCAPES)}"' for name, text in labels.items())


LONG_COLUMNS = (
    *("run_id", "started_at", "commit", "host", "device_kind", "device", "serial"),
    *("test", "status", "metric", "unit", "value"),
)


def render_csv_long(runs: Sequence[TimedRun]) -> str:
    """Return a header and a line for each figure there is; GB/s, seconds and fractions."""
    rows: list[list[str | int]] = [[*LONG_COLUMNS]]
    for run in runs:
        device, started = run.device, format_moment(run.started_at)
        fixed = (run.run_id, started, run.commit, run.host, device.kind, device.name, device.serial)
        for outcome in run.by_key.values():
            for metric in METRICS:
                if (value := metric.value(outcome)) is not None:
                    row = (*fixed, outcome.key, outcome.status, metric.name, metric.unit, value)
                    rows.append([line_of(cell) for cell in row])
    return csv_text(rows)


@dataclass(frozen=True, slots=True)
class Form:
    """Hold a tracker's form: its renderer, and the form of its files.

    of_one_device: whether it has one figure, or one column, for a test.
    """

    render: Callable[[Sequence[TimedRun]], str]
    file: FileForm
    of_one_device: bool = False


# A file of one form may replace a file of another form with the same ending.
_JSON = FileForm(
    (".json",),
    r'\{\s*(\}|"(?:[^"\\]|\\.)*":\s*\{\s*"(?:bandwidth|share-of-probe|latency)":)|\[\s*(\]|\{\s*"name":)',
)
_CSV = FileForm((".csv",), r'"time","run_id","commit","device"|"run_id","started_at","commit",')
_TEXT = FileForm((".txt", ".prom", ".om"), r"# (?:TYPE pytest_bandwidth_|EOF)")
FORMS = {
    "bencher": Form(render_bencher, _JSON, of_one_device=True),
    "github-action-benchmark": Form(render_github_benchmark, _JSON, of_one_device=True),
    "otava": Form(render_otava, _CSV, of_one_device=True),
    "openmetrics": Form(render_openmetrics, _TEXT),
    "csv-long": Form(render_csv_long, _CSV),
}


MOST_NAMED = 3


def declare(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", type=Path, nargs="+", metavar="RUN.json", help="documents that --bandwidth-json wrote")
    parser.add_argument("--format", required=True, choices=tuple(FORMS), help="the format to write")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="where to (default: printed)")


def run(options: argparse.Namespace) -> int:
    output = options.output
    form = FORMS[options.format]
    if output is not None:
        refuse_own_input(output, options.runs)
        refuse_foreign("-o", output, form.file)
    runs = [timed_run(read_document(load_run(path)[0]), str(path)) for path in options.runs]
    refuse_unlike(runs, options.format)
    rendered = form.render(runs)
    if output is None:
        sys.stdout.write(rendered)
    else:
        write_output(output, rendered, form.file)
    for one in runs:
        _print_left_out(one.name, one.left_out, "not timed, or not valid")
    if options.format == "otava":
        _print_left_out("otava", columns_of(runs)[1], "not in every run, and Otava's columns have no gaps")
    return 0


def _print_left_out(where: str, left_out: Sequence[str], why: str) -> None:
    """Print on standard error what was left out, since standard output is for results."""
    if left_out:
        named = ", ".join(left_out[:MOST_NAMED]) + (" …" if len(left_out) > MOST_NAMED else "")
        print(printable(f"{where}: {counted(len(left_out), 'result')} left out ({why}): {named}"), file=sys.stderr)


# ---- SARIF -----------------------------------------------------------------------------------------------------------

_TROUBLESHOOTING = f"{DOCUMENTATION}/troubleshooting.html"
_LEVELS: Mapping[str, Literal["error", "warning"]] = {"bad": "error", "warn": "warning"}
# The row of a failure's message that names a source line (`wording`), and its likely cause.
_AT = re.compile(r"\s+(?:most )?at\s+(\S.*?):(\d{1,9})\b")
_CAUSE = re.compile(r"\s+likely cause\s+(\S.*)")
# `scale.cu:6: ` of a test's failure and of a fault, `scale.cu(6): error` of the compiler.
_PLACE = re.compile(r"([^\s:;,()]+\.\w+)(?::(\d{1,9}): |\((\d{1,9})\): )")
LONGEST_SEARCHED = 4000
LONGEST_RULE = 255  # SARIF's limit of an id, as GitHub checks it
_Place = tuple[str, int]
_FileOf = Callable[[str, str], str | None]


@dataclass(frozen=True, slots=True)
class _Result:
    """Hold one result. test: its name; own: the test's place; at: the kernel's, from the top of the checkout."""

    rule: str
    short: str
    help: str
    level: Literal["error", "warning"]
    message: str
    test: str
    own: _Place
    at: _Place | None = None
    kernel: str = ""

    def to_plain(self) -> Plain:
        place = self.at or self.own
        # Without a line, so that it stays the same result where lines move. GitHub adds a hash of the line's text.
        known = "\0".join((self.test, self.rule, self.kernel, place[0]))
        return {
            "ruleId": self.rule,
            "level": self.level,
            # GitHub shows a related location that the message links to.
            "message": {"text": f"{self.message}\n[test](1): {self.test}"},
            "locations": [_location(place)],
            "relatedLocations": [{"id": 1, "message": {"text": self.test}, **_location(self.own)}],
            "partialFingerprints": {
                "bandwidth/v1": hashlib.sha256(known.encode("utf-8", "surrogatepass")).hexdigest()[:32]
            },
        }

    def rule_plain(self) -> Plain:
        description = {"text": self.short}
        return {
            "id": self.rule,
            "shortDescription": description,
            "fullDescription": description,
            "help": {"text": f"{self.short}: {self.help}", "markdown": f"[{self.short}]({self.help})"},
            "helpUri": self.help,
        }


def render_sarif(document: Mapping[str, Any]) -> str:
    """Return a SARIF log of one run: an error where a test fails, a warning where it could not be judged.

    Kernels' files are looked up in the checkout of the current folder.
    Raises UsageError for an invalid document.
    """
    run = read_document(document)
    results = list(_results(run))
    rules = {one.rule: one.rule_plain() for one in reversed(results)}
    driver = {
        "name": "pytest-bandwidth",
        "informationUri": DOCUMENTATION,
        "version": text(run.environment, "plugin") or "unknown",
        "rules": [rules[name] for name in sorted(rules)],
    }
    one_run = {
        "tool": {"driver": driver},
        # GitHub takes one run of a tool for each category.
        "automationDetails": {"id": f"pytest-bandwidth/{slug(run.device.name)}/"},
        "originalUriBaseIds": {"%SRCROOT%": {"description": {"text": "the top of the repository"}}},
        "columnKind": "utf16CodeUnits",
        "results": [one.to_plain() for one in results],
    }
    return render_json({"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [one_run]})


def _results(run: RunDocument) -> Iterator[_Result]:
    """Yield the run's results, the worst first."""
    file_of = _files_of_checkout()
    root = text(run.environment, "root") or ""

    def own(file: str, line: int | None) -> _Place:
        return normpath(f"{root}/{file}").lstrip("/") or ".", max(line or 1, 1)

    for note in run.findings:
        if note.code == UNJUDGED:
            yield _unjudged(note.text, own, file_of)
        elif note.code == HIDDEN:
            test = note.text.partition(" failed by ")[0]
            place = own(test.partition("::")[0], None)
            link = f"{_TROUBLESHOOTING}#surprises"
            yield _Result(HIDDEN, "failed, and was not reported as failed", link, "error", note.text, test, place)
    for outcome in by_attention(run.outcomes, strict=run.strict):
        place = own(outcome.file or outcome.nodeid.partition("::")[0], outcome.line)
        if outcome.xfail is None and (level := _LEVELS.get(severity_in(outcome, strict=run.strict))):
            yield _judged(outcome, level, place, file_of)


def _judged(outcome: Outcome, level: Literal["error", "warning"], own: _Place, file_of: _FileOf) -> _Result:
    rule, lines = outcome.reason_code[:LONGEST_RULE], message_lines(outcome)
    found = next(filter(None, map(_AT.match, lines)), None)
    file = None if found is None else file_of(found[1], own[0])
    at = None if found is None or file is None else (file, int(found[2]))
    causes = [f"likely cause: {cause[1]}" for cause in map(_CAUSE.match, lines) if cause]
    detail = detail_of(Status(outcome.status), rule, outcome.verdict)
    short = f"{outcome.status}: {detail}" if detail else outcome.status
    kernel = text(outcome.detail, "kernel") or ""
    message = "\n".join([lines[0], *causes])
    return _Result(rule, short, help_link(rule), level, message, outcome.key, own, at, kernel)


def _unjudged(finding: str, own: Callable[[str, int | None], _Place], file_of: _FileOf) -> _Result:
    """Make the result of a test that failed before it was judged: by a fault, or by an error of the compiler."""
    test, _, failure = finding.partition(FAILED_BEFORE)
    file = test.partition("::")[0]
    place, at = own(file, None), None
    # The first is the user's line that failed, in the test's file most often; the second is the kernel's.
    for name, line, of_compiler in _PLACE.findall(failure[:LONGEST_SEARCHED])[:2]:
        found, number = file_of(name, place[0]), int(line or of_compiler)
        if found == place[0] and at is None:
            place = own(file, number)
        at = at if found is None else (found, number)
    kind = HELP.search(failure)
    rule = UNJUDGED if kind is None else kind[1]
    link = _TROUBLESHOOTING if kind is None else help_link(rule)
    message = one_line(HELP.sub("", failure).removeprefix("Failed: "), 500)
    return _Result(rule, "failed before it was judged", link, "error", message, test, place, at)


def _location(place: _Place) -> Plain:
    file, line = place
    uri = {"uri": quote(file, errors="replace"), "uriBaseId": "%SRCROOT%"}
    return {"physicalLocation": {"artifactLocation": uri, "region": {"startLine": line}}}


def _files_of_checkout() -> _FileOf:
    """Return a function that finds the file that a failure names, as a path from the checkout's top.

    It is the test's own file, or the only one of that name in the checkout; None without one.
    """
    known: dict[str, list[str]] = {}
    try:
        listed = git(tree_of(Path.cwd()), "ls-files", "-z", "--cached", "--others", "--exclude-standard")
    except UsageError:
        listed = ""
    for path in filter(None, listed.split("\0")):
        known.setdefault(PurePosixPath(path).name, []).append(path)

    def find(named: str, test_file: str) -> str | None:
        name = PurePosixPath(named).name
        if name == PurePosixPath(test_file).name:
            return test_file
        # A source text in a test has this name.
        found = [] if name == TEXT_NAME else known.get(name, [])
        return found[0] if len(found) == 1 else None

    return find
