"""Publish each device after the last test: the baseline's update, the files asked for, the summary."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.domain.units import drop_of_log, format_percent
from pytest_bandwidth.options.errors import UserHookFailed, called_hook
from pytest_bandwidth.options.reading import plain_options, settings_of
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.devices import unlike_others
from pytest_bandwidth.outcomes.outcome import Outcome, from_plain
from pytest_bandwidth.outcomes.run_findings import (
    ABSENT,
    DEVICE_LOSS,
    MOVED,
    device_loss,
    hidden_finding,
    not_measured_finding,
    shared_causes,
    unjudged_finding,
)
from pytest_bandwidth.reports.json import document
from pytest_bandwidth.reports.terminal import Span, TerminalLine, header_line, summary_lines
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.reports.unmeasured import not_measured_lines, skipped_lines, unmeasured_sentence
from pytest_bandwidth.reports.wording import device_sentence
from pytest_bandwidth.session.collection.stale_entries import elsewhere_sentence, gone_sentence, moved_sentence
from pytest_bandwidth.session.publishing.device_report import (
    DeviceReport,
    names_of,
    suffixes_of,
)
from pytest_bandwidth.session.publishing.environment import describe, new_run_id
from pytest_bandwidth.session.publishing.github_actions import commands, is_github, write_summary
from pytest_bandwidth.session.publishing.redaction import Clean, cleaner, redacted
from pytest_bandwidth.session.publishing.run_files import reporters_of, run_files, write_files
from pytest_bandwidth.session.publishing.update import update_baselines
from pytest_bandwidth.session.xdist import revision_of


def publish(
    config: pytest.Config,
    reports: Sequence[DeviceReport],
    started: float,
    *,
    interrupted: bool = False,
) -> None:
    """Update the baseline and write files; what goes wrong is noted, not raised, so that everything else is done.

    reports: one a device, filled in with what was done; started: when the run did, in seconds since the epoch;
    interrupted: whether a person ended the run: then no baseline is
    updated.
    """
    settings = settings_of(config)
    given = revision_of(config) or settings.baseline
    devices = [report.device for report in reports]
    names, outcomes = names_of(devices), [report.outcomes for report in reports]
    unlike = unlike_others(devices, names, outcomes, settings.tolerance)
    for report, name, other in zip(reports, names, unlike, strict=True):
        report.name, report.unlike, report.baseline = name, other, None if given is None else str(given)
        # What was read from a device's own document says some of it already.
        report.findings += [found for found in _findings(report) if found not in report.findings]
    if settings.writes_baseline:
        update_baselines(config, settings, reports, interrupted=interrupted)
    for report in reports:
        _tell_unmeasurable(report, settings, config.rootpath)
        _tell_device_loss(report, settings)
    if _is_document_wanted(config, settings):
        _write_documents(config, settings, reports, started)
    try:
        called_hook(config, "pytest_bandwidth_finished", reports=reports)
    except UserHookFailed as error:
        reports[0].problems.append(str(error))


def _write_documents(
    config: pytest.Config, settings: Settings, reports: Sequence[DeviceReport], started: float
) -> None:
    run_id, environment = new_run_id(), describe(config.rootpath, started, settings.baseline, settings.commit)
    changed = dict(environment)
    try:
        called_hook(config, "pytest_bandwidth_environment", environment=changed)
        environment = changed
    except UserHookFailed as error:
        reports[0].problems.append(str(error))
    suffixes = suffixes_of([report.device for report in reports]) if len(reports) > 1 else [None]
    for report, suffix in zip(reports, suffixes, strict=True):
        _write(config, settings, environment, run_id, report, suffix)


def _is_document_wanted(config: pytest.Config, settings: Settings) -> bool:
    """Return whether a file, GitHub or somebody's hook takes the run's document: that of many tests takes seconds."""
    hooks = (config.hook.pytest_bandwidth_document, config.hook.pytest_bandwidth_environment)
    hooked = any(hook.get_hookimpls() for hook in hooks)
    outputs = run_files(config) or reporters_of(config) or settings.dir is not None
    return hooked or bool(outputs) or is_github()


def _findings(report: DeviceReport) -> list[dict[str, str]]:
    """Return what the document says of the device's run as a whole."""
    found = [] if report.unlike is None else [asdict(report.unlike)]
    found += [asdict(cause.finding()) for cause in shared_causes(report.outcomes)]
    found += [unjudged_finding(nodeid, said) for nodeid, said in report.unjudged.items()]
    found += [hidden_finding(nodeid, said) for nodeid, said in report.hidden.items()]
    return found + [not_measured_finding(key, why) for key, why in report.not_measured.items()]


def _tell_unmeasurable(report: DeviceReport, settings: Settings, root: Path) -> None:
    """Say which entries no test was to measure; with strict they fail the run, for there is no test to fail."""
    entries, told = report.unmeasurable, report.failures if settings.strict else report.notes
    if entries.gone and report.baseline:
        text = gone_sentence(entries.gone, report.baseline)
        report.findings.append({"code": ABSENT, "text": text})
        told.append(text)
    if entries.elsewhere:
        report.notes.append(elsewhere_sentence(entries.elsewhere))
    if entries.moved is not None:
        text = moved_sentence(entries.moved, root)
        report.findings.append({"code": MOVED, "text": text})
        told.append(text)
    if entries.exempt:
        report.notes.append(f"left out on the command line: {entries.exempt} of the baseline's entries")
    if entries.not_measured and settings.strict:
        told.append(unmeasured_sentence(entries.not_measured))


def _tell_device_loss(report: DeviceReport, settings: Settings) -> None:
    """Say what unchanged tests lost, where that matters; past --bandwidth-device-tolerance it fails the run."""
    loss, asked = device_loss(report.outcomes, report.device.get("facts") or {}), settings.device_tolerance
    matters = settings.tolerance if asked is None else asked
    if loss is None or settings.writes_baseline or drop_of_log(loss.median) <= matters:
        return
    text = device_sentence(loss)
    report.findings.append({"code": DEVICE_LOSS, "text": text})
    if asked is None:
        report.notes.append(f"DEVICE {text}")
    else:
        report.failures.append(f"{text}, --bandwidth-device-tolerance is {format_percent(asked, 1)}")


def _write(
    config: pytest.Config,
    settings: Settings,
    environment: Mapping[str, Any],
    run_id: str,
    report: DeviceReport,
    suffix: str | None,
) -> None:
    whole = document(
        run_id if suffix is None else f"{run_id}-{suffix}",
        {**environment, **{name: said for name, said in report.environment.items() if said is not None}},
        report.device,
        plain_options(config),
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
    except UserHookFailed as error:
        report.problems.append(str(error))
    clean = cleaner(config.rootpath, private=settings.private)
    whole = redacted(whole, clean)
    outcomes = [_redacted(outcome, clean) for outcome in report.outcomes]
    report.written, problems = write_files(config, whole, outcomes, suffix)
    report.problems += problems
    if is_github():
        report.commands = commands(whole, config.rootpath)
        if refusal := write_summary(whole):
            report.notes.append(refusal)


def _redacted(outcome: Outcome, clean: Clean) -> Outcome:
    plain = outcome.to_plain()
    cleaned = redacted(plain, clean)
    return outcome if cleaned is plain else from_plain(cleaned)


def show(config: pytest.Config, reporter: pytest.TerminalReporter, reports: Sequence[DeviceReport]) -> None:
    """Show the summary, after pytest's own sections."""
    reporter.write_sep("=", "memory bandwidth")
    verbose, width = config.option.verbose > 0, config.get_terminal_writer().fullwidth
    for report in reports:
        if report.environment or config.getoption("dist", "no") != "no":  # other processes' headers were not shown
            _write_header(reporter, report)
        _show_device(reporter, report, width, verbose=verbose)
    # Told last and once, where nobody has to look for it among the tables of many devices.
    for text in dict.fromkeys(report.unlike.text for report in reports if report.unlike is not None):
        _write_line(reporter, (Span(f"FLEET {printable(text)}", ("yellow", "bold")),))


def _write_header(reporter: pytest.TerminalReporter, report: DeviceReport) -> None:
    peak, timed_on = report.device.get("peak") or {}, report.device["timed_on"]
    reporter.write_line(header_line(report.name, peak.get("gbps"), peak.get("source"), report.baseline, timed_on))


def _show_device(reporter: pytest.TerminalReporter, report: DeviceReport, width: int, *, verbose: bool) -> None:
    for line in (*summary_lines(report.outcomes, width, verbose=verbose), *report.changes):
        _write_line(reporter, line)
    for line in not_measured_lines(report.not_measured):
        _write_line(reporter, line)
    for path in report.written:
        reporter.write_line(f"wrote {printable(path)}")
    for note in (*skipped_lines(report.skipped), *report.notes):
        reporter.write_line(printable(note))
    for line_of_ci in report.commands.splitlines():
        reporter.write_line(line_of_ci)
    if report.interrupted:
        _write_line(reporter, (Span("interrupted: the baseline was not updated", ("red", "bold")),))
    for nodeid, said in report.hidden.items():
        _write_line(reporter, (Span(f"FAILED: {printable(hidden_finding(nodeid, said)['text'])}", ("red", "bold")),))
    for failure in report.failures:
        _write_line(reporter, (Span(f"FAILED: {printable(failure)}", ("red", "bold")),))
    for problem in report.problems:
        _write_line(reporter, (Span(f"ERROR: {printable(problem)}", ("red", "bold")),))


def _write_line(reporter: pytest.TerminalReporter, line: TerminalLine) -> None:
    for span in line:
        reporter.write(span.text, **dict.fromkeys(span.markup, True))
    reporter.write("\n")
