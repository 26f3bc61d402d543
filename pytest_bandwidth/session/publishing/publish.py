"""Publish each device's results after the last test: the baseline's update, files, GitHub Actions, the summary."""

from __future__ import annotations

import copy
import getpass
import hashlib
import os
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from shlex import quote
from typing import Any, Literal

import pytest

from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.text import Address, listed, masked
from pytest_bandwidth.domain.units import counted, drop_of_log, format_percent
from pytest_bandwidth.domain.user_code import UserHookFailed, named_failures
from pytest_bandwidth.options.errors import called_hook
from pytest_bandwidth.options.options import all_options, settings_of
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.outcome import from_plain
from pytest_bandwidth.outcomes.run_findings import (
    ABSENT,
    DEVICE_LOSS,
    MOVED,
    Unmeasurable,
    device_loss,
    failed_finding,
    hidden_finding,
    not_measured_finding,
    shared_causes,
    unjudged_finding,
    unlike_others,
)
from pytest_bandwidth.reports.columns import added_columns, check_figure
from pytest_bandwidth.reports.documents import document
from pytest_bandwidth.reports.terminal import (
    Span,
    TerminalLine,
    header_line,
    named_entries,
    summary_lines,
)
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.reports.wording import device_sentence
from pytest_bandwidth.session.publishing.gathered import (
    Device,
    DeviceReport,
    DeviceResults,
    Remark,
    Row,
    names_of,
    suffixes_of,
)
from pytest_bandwidth.session.publishing.run_files import conftest_hooks, reporters_of, run_files, write_files
from pytest_bandwidth.session.publishing.update import update_baselines
from pytest_bandwidth.session.run import describe, new_run_id, revision_of

# How many entries a remark names.
MOST_NAMED = 10


def publish(
    config: pytest.Config, devices: Sequence[DeviceResults], started: float, *, interrupted: bool = False
) -> list[DeviceReport]:
    """Update the baseline and write files. Errors are recorded in the reports, not raised, so that the rest is done.

    started: the run's start, in seconds since the epoch. interrupted: whether the user ended the run; then no baseline
    is updated.
    """
    settings = settings_of(config)
    given = revision_of(config) or settings.baseline
    names = names_of([one.device for one in devices])
    unlike = unlike_others(
        [one.device for one in devices], names, [one.outcomes for one in devices], settings.tolerance
    )
    judged_by = None if given is None else str(given)
    reports = [
        DeviceReport(results, name, judged_by, other, results.rows)
        for results, name, other in zip(devices, names, unlike, strict=True)
    ]
    if settings.writes_baseline:
        update_baselines(config, settings, reports, interrupted=interrupted)
    for report in reports:
        _add_findings(report, settings, config.rootpath)
    hooks = (config.hook.pytest_bandwidth_document, config.hook.pytest_bandwidth_environment)
    outputs = run_files(config) or reporters_of(config) or settings.dir is not None
    # The document is made only for a file, GitHub or a user's hook: for many tests that takes seconds.
    if outputs or is_github() or any(hook.get_hookimpls() for hook in hooks):
        _write_documents(config, reports, started)
    for report in reports:
        _add_column_problems(report)
        for late in sorted(set(report.results.hooks) - conftest_hooks(config)):
            report.add_problem(f"{late} was not called, since workers alone read this file: move it to the rootdir's")
    try:
        called_hook(config, "pytest_bandwidth_finished", reports=reports)
    except BandwidthError as error:
        reports[0].add_problem(error)
    return reports


def _add_findings(report: DeviceReport, settings: Settings, root: Path) -> None:
    """Add remarks and findings about the device's run as a whole."""
    results = report.results
    report.remarks += _unmeasurable(results.unmeasurable, report.baseline, settings, root)
    report.remarks += _device_loss(report.device, report.rows, settings)
    found = [] if report.unlike is None else [asdict(report.unlike)]
    found += [asdict(cause.finding()) for cause in shared_causes(results.outcomes)]
    found += [unjudged_finding(nodeid, reason) for nodeid, reason in results.unjudged.items()]
    found += [hidden_finding(nodeid, reason) for nodeid, reason in results.hidden.items()]
    found += [failed_finding(nodeid) for nodeid in results.failed_otherwise]
    found += [not_measured_finding(key, why) for key, why in results.not_measured.items()]
    # A device's own document may contain some of these findings already.
    known = [dict(one) for one in results.findings]
    new = [one for one in found if one not in known]
    remarks = ({"code": one.code, "text": one.text} for one in report.remarks if one.code is not None)
    report.findings = (*known, *new, *remarks)


def _add_column_problems(report: DeviceReport) -> None:
    """Add a problem for each column of a conftest.py or plugin that raises for a result; its cell stays empty."""
    for column in added_columns():
        key = ""
        try:
            with named_failures(f"the column {column.key!r}"):
                for outcome in report.outcomes:
                    key = outcome.key
                    check_figure(column, outcome)
        except BandwidthError as error:
            expected = ", expected None for a result without the figure" if isinstance(error, UserHookFailed) else ""
            report.add_problem(f"{error}{expected} ({key})")


def _write_documents(config: pytest.Config, reports: Sequence[DeviceReport], started: float) -> None:
    """Write each device's document in every format; record the written files in the reports."""
    run_id, settings = new_run_id(), settings_of(config)
    environment = describe(config.rootpath, started, settings.baseline, settings.commit)
    changed = dict(environment)
    try:
        called_hook(config, "pytest_bandwidth_environment", environment=changed)
        environment = changed
    except BandwidthError as error:
        reports[0].add_problem(error)
    suffixes = suffixes_of([report.device for report in reports]) if len(reports) > 1 else [None]
    for report, suffix in zip(reports, suffixes, strict=True):
        _write_document(config, environment, run_id, report, suffix)


def _unmeasurable(entries: Unmeasurable, baseline: str | None, settings: Settings, root: Path) -> Iterator[Remark]:
    """Yield remarks about entries that no test measures; with strict they fail the run, since no test can fail."""
    kind: Literal["failure", "note"] = "failure" if settings.strict else "note"
    if (gone := entries.gone) and baseline:
        named = " ".join(quote(key) for key in gone[:MOST_NAMED])
        more = f" (and {len(gone) - MOST_NAMED} more)" if len(gone) > MOST_NAMED else ""
        what = "1 entry has" if len(gone) == 1 else f"{len(gone)} entries have"
        remove = f"pytest-bandwidth baseline prune {quote(baseline)} {named}{more}"
        yield Remark(kind, f"{what} no test any more; rename the key of a renamed test, or: {remove}", ABSENT)
    if elsewhere := entries.elsewhere:
        folders = listed(list(dict.fromkeys(elsewhere.values())), MOST_NAMED)
        what = "1 entry is" if len(elsewhere) == 1 else f"{len(elsewhere)} entries are"
        yield Remark("note", f"{what} of tests of another rootdir; only runs from there measure them: {folders}")
    if entries.moved is not None:
        test, key = entries.moved
        text = (
            f"the baseline has no entry of these tests, but {key} for {test}: node ids begin at the rootdir, which is "
            f"{root}; start pytest in the folder where the baseline was written, or put a pytest.ini there"
        )
        yield Remark(kind, text, MOVED)
    if entries.exempt:
        yield Remark("note", f"left out on the command line: {entries.exempt} of the baseline's entries")
    if entries.not_measured and settings.strict:
        yield Remark(kind, f"no test measured {named_entries(entries.not_measured)}")


def _device_loss(device: Device, rows: Sequence[Row], settings: Settings) -> Iterator[Remark]:
    """Yield remarks about a loss of unchanged tests; a loss above --bandwidth-device-tolerance fails the run."""
    loss, asked = device_loss([row.outcome for row in rows], device.get("facts") or {}), settings.device_tolerance
    matters = settings.tolerance if asked is None else asked
    if loss is None or settings.writes_baseline or drop_of_log(loss.median) <= matters:
        return
    text = device_sentence(loss)
    yield Remark("finding", text, DEVICE_LOSS)
    if asked is None:
        yield Remark("note", f"DEVICE {text}")
    else:
        yield Remark("failure", f"{text}, --bandwidth-device-tolerance is {format_percent(asked, 1)}")


def _write_document(
    config: pytest.Config, environment: Mapping[str, Any], run_id: str, report: DeviceReport, suffix: str | None
) -> None:
    facts = report.results.environment.items()
    whole = document(
        run_id if suffix is None else f"{run_id}-{suffix}",
        {**environment, **{name: value for name, value in facts if value is not None}},
        report.device,
        {name: str(one) if isinstance(one, Path | Address) else one for name, one in all_options(config).items()},
        report.outcomes,
        report.baseline,
        report.findings,
    )
    changed = copy.deepcopy(whole)
    try:
        called_hook(config, "pytest_bandwidth_document", document=changed)
        if lost := [key for key in whole if key not in changed]:
            raise UserHookFailed(f"pytest_bandwidth_document removed {', '.join(lost)}, expected them to stay")
        whole = changed
    except BandwidthError as error:
        report.add_problem(error)
    clean = cleaner(config.rootpath, private=settings_of(config).private)
    whole = redacted(whole, clean)
    outcomes = []  # for reporters alone: cleaning many takes time
    for outcome in report.outcomes if reporters_of(config) else ():
        plain = outcome.to_plain()
        cleaned = redacted(plain, clean)
        outcomes.append(outcome if cleaned is plain else from_plain(cleaned))
    report.written, problems = write_files(config, whole, outcomes, suffix)
    for problem in problems:
        report.add_problem(problem)
    if not is_github():
        return
    from pytest_bandwidth.reports.github import annotations, job_summary

    workspace = Path(os.environ.get("GITHUB_WORKSPACE") or config.rootpath).resolve()

    def place(file: str) -> str | None:
        """Return a file's path as GitHub needs it, from the checkout's root; None for a file outside of it."""
        path = (config.rootpath / file).resolve()
        return path.relative_to(workspace).as_posix() if path.is_relative_to(workspace) else None

    refusal = append_to_summary(lambda room: job_summary(whole, room))
    if refusal is not None:
        report.remarks.append(Remark("note", refusal))
    report.commands = annotations(whole, place)


def show(config: pytest.Config, reporter: pytest.TerminalReporter, reports: Sequence[DeviceReport]) -> None:
    """Show the summary, after pytest's own sections."""
    reporter.write_sep("=", "memory bandwidth")
    verbose, width = config.option.verbose > 0, config.get_terminal_writer().fullwidth
    for report in reports:
        if report.results.environment or config.getoption("dist", "no") != "no":
            # pytest does not show the headers of other processes.
            reporter.write_line(header_line(report.device, report.baseline, report.name))
        summary = summary_lines(report.outcomes, width, verbose=verbose)
        for line in (*summary, *report.changes):
            _write_line(reporter, line)
        if unmeasured := report.results.not_measured:
            _write_line(reporter, (Span("NOT MEASURED", ("yellow", "bold")), Span(f" {named_entries(unmeasured)}")))
        for path in report.written:
            reporter.write_line(f"wrote {printable(path)}")
        for reason, number in report.results.skipped.items():
            reporter.write_line(f"skipped on this device: {counted(number, 'test')}: {printable(reason)}")
        for note in report.remarks_of("note"):
            reporter.write_line(printable(note))
        for line_of_ci in report.commands.splitlines():
            reporter.write_line(line_of_ci)
        red = ["interrupted: the baseline was not updated"] if report.interrupted else []
        hidden = (hidden_finding(nodeid, reason)["text"] for nodeid, reason in report.results.hidden.items())
        red += [f"FAILED: {printable(failure)}" for failure in (*hidden, *report.remarks_of("failure"))]
        red += [f"ERROR: {printable(problem)}" for problem in report.remarks_of("problem")]
        for text in red:
            _write_line(reporter, (Span(text, ("red", "bold")),))
    # Shown once and last, so that users find it easily below the tables of many devices.
    for text in dict.fromkeys(report.unlike.text for report in reports if report.unlike is not None):
        _write_line(reporter, (Span(f"FLEET {printable(text)}", ("yellow", "bold")),))


def _write_line(reporter: pytest.TerminalReporter, line: TerminalLine) -> None:
    for span in line:
        reporter.write(span.text, **dict.fromkeys(span.markup, True))
    reporter.write("\n")


def is_github() -> bool:
    """Return whether this process is a step of a GitHub Actions job.

    Variables: https://docs.github.com/en/actions/reference/workflows-and-actions/variables
    """
    return os.environ.get("GITHUB_ACTIONS") == "true"


def append_to_summary(text: Callable[[int], str]) -> str | None:
    """Append to the step's summary, which may have text of other commands. text: makes it for the number of bytes left.

    Returns a one-line message if that fails. It is no error: the figures are complete without the summary.
    """
    from pytest_bandwidth.reports.github import SUMMARY_BYTES_AT_MOST

    target = os.environ.get("GITHUB_STEP_SUMMARY")
    if not target:
        return None
    try:
        with open(target, "a", encoding="utf-8") as file:
            room = SUMMARY_BYTES_AT_MOST - file.tell()
            file.write("\n" + text(room))
    except OSError as error:
        return f"no job summary: $GITHUB_STEP_SUMMARY cannot be written: {error}"
    return None


Clean = Callable[[str], str]
# Keys that identify a test: their values contain names of hosts or users only by accident.
_NAMES_OF_TESTS = frozenset({"nodeid", "key", "label", "status", "code", "run_id"})
# An absolute path in a text, up to its last name, but not a part of an address, a fraction or a relative path.
_PATH = re.compile(r"(?<![\w.:/~…-])/(?:[^\s/'\"<>|:;,()\[\]{}=]+/)+([^\s/'\"<>|:;,()\[\]{}=]*)")
_HOMES = re.compile(r"(?<![\w.:/~…-])/(?:home|Users)/[^\s/'\"<>|:;,()\[\]{}=]+")


def redacted(value: Any, clean: Clean, name: str = "") -> Any:
    """Return JSON-ready data with all texts cleaned; the same object if no text changed. name: the value's key."""
    if isinstance(value, str):
        return masked(value) if name in _NAMES_OF_TESTS else clean(value)
    if isinstance(value, dict):
        cleaned = {key: redacted(one, clean, str(key)) for key, one in value.items()}
        return cleaned if any(cleaned[key] is not one for key, one in value.items()) else value
    if isinstance(value, list | tuple) and not (value and isinstance(value[0], float)):
        items = [redacted(one, clean, name) for one in value]
        return items if any(new is not one for new, one in zip(items, value, strict=True)) else value
    return value


def cleaner(root: Path, hosts: Iterable[str] = (), *, private: bool) -> Clean:
    """Return the function that cleans a text. root: the rootdir; paths become relative to it. hosts: further names."""
    if not private:
        return masked
    words = {}
    for host in {*hosts, platform.node()}:
        # A substitute for the host's name, the same in every run: devices of different hosts stay distinct.
        words[host] = f"host-{hashlib.sha256(host.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"
    with suppress(KeyError, OSError, ImportError):  # a container whose user has no name
        words[getpass.getuser()] = "user"
    # The longest first: a home may lie in the root, and the root in a home.
    folders = {str(root): ".", str(Path.home()): "~", tempfile.gettempdir(): "…", sys.prefix: "…"}
    pattern = re.compile(
        "|".join(rf"(?<![\w.-]){re.escape(word)}(?![\w-])" for word in sorted(words, key=len, reverse=True) if word)
    )

    def clean(text: str) -> str:
        text = masked(text)
        for folder in sorted(folders, key=len, reverse=True):
            if len(folder) > 1:
                text = re.sub(rf"(?<![\w.-]){re.escape(folder)}(?![\w.-])", folders[folder], text)
        text = _PATH.sub(r"…/\1", _HOMES.sub("~", text))
        return pattern.sub(lambda found: words[found[0]], text)

    return clean
