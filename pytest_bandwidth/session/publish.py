"""After the last test, for each device: the baseline's update, the files that were asked for, the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.domain.measurement import Finding
from pytest_bandwidth.domain.outcome import Outcome, from_plain
from pytest_bandwidth.domain.run_findings import device_finding, unjudged_finding
from pytest_bandwidth.reports.json import document
from pytest_bandwidth.reports.terminal import Line, Span, header_line, summary_lines
from pytest_bandwidth.session.device_report import DeviceRun
from pytest_bandwidth.session.environment import describe, new_run_id
from pytest_bandwidth.session.github_actions import commands, is_github, write_summary
from pytest_bandwidth.session.multi_device import fleet_findings, names_of, suffixes_of
from pytest_bandwidth.session.run_files import write_files
from pytest_bandwidth.session.settings import Settings, read_settings
from pytest_bandwidth.session.stale_entries import sentence
from pytest_bandwidth.session.xdist import revision_of


@dataclass(slots=True)
class Published:
    """What was done for one device at the end of a run, for the summary. `problems`: what could not be done.

    name: tells it from the run's other devices. unlike: how it differs from others of its model.
    not_updated: why its baseline could not be. left_out: why this device's figures did not enter; each "" otherwise.
    interrupted: a person ended the run, or the update's further runs, before the baseline was updated.
    notes: lines of no consequence. findings: about the run, for the document. commands: what the CI system reads on
    standard output, one a line.
    """

    device: Mapping[str, Any]
    name: str
    outcomes: list[Outcome]
    baseline: str | None
    unlike: Finding | None = None
    not_updated: str = ""
    left_out: str = ""
    changes: list[Line] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[dict[str, str]] = field(default_factory=list)
    commands: str = ""
    interrupted: bool = False


def publish(
    config: pytest.Config,
    runs: Sequence[DeviceRun],
    started: float,
    absent: Sequence[str] = (),
    *,
    interrupted: bool = False,
) -> list[Published]:
    """Updates the baseline and writes files; what goes wrong is told, not raised, so that everything else is done.

    runs: one a device; started: when the run did, in seconds since the epoch; absent: entries of the baseline that have
    no test any more; interrupted: whether a person ended the run: then no baseline is updated.
    """
    settings = read_settings(config)
    given = revision_of(config) or settings.baseline
    judged_by = None if given is None else str(given)
    devices = [run.device for run in runs]
    published = [
        Published(run.device, name, [from_plain(row) for row in run.rows], judged_by)
        for run, name in zip(runs, names_of(devices), strict=True)
    ]
    for one, unlike in zip(
        published, fleet_findings(devices, [one.outcomes for one in published], settings.tolerance), strict=True
    ):
        if unlike is not None:
            one.unlike = unlike
            one.findings.append(asdict(unlike))
    for one in published:
        changed = device_finding(one.outcomes)
        if changed is not None:
            one.findings.append(asdict(changed))
    for run, one in zip(runs, published, strict=True):
        one.findings += [unjudged_finding(nodeid, said) for nodeid, said in run.unjudged.items()]
    if settings.writes_baseline:
        from pytest_bandwidth.session.update import update_baselines

        update_baselines(config, settings, runs, published, interrupted=interrupted)
    for one in published:
        if absent and one.baseline:
            text = sentence(absent, one.baseline)
            one.findings.append({"code": "absent", "text": text})
            one.notes.append(text)
    run_id, environment = new_run_id(), describe(config.rootpath, started)
    for one, suffix in zip(published, suffixes_of(devices) if len(runs) > 1 else [None], strict=True):
        _write(config, settings, environment, run_id, one, suffix)
    return published


def _write(
    config: pytest.Config,
    settings: Settings,
    environment: Mapping[str, Any],
    run_id: str,
    published: Published,
    suffix: str | None,
) -> None:
    whole = document(
        run_id if suffix is None else f"{run_id}-{suffix}",
        environment,
        published.device,
        {name: str(v) if isinstance(v, Path) else v for name, v in asdict(settings).items()},
        published.outcomes,
        published.baseline,
        published.findings,
    )
    published.written, problems = write_files(settings, config.invocation_params.dir, whole, published.outcomes, suffix)
    published.problems += problems
    if is_github():
        published.commands = commands(whole, config.rootpath)
        if refusal := write_summary(whole):
            published.notes.append(refusal)


def show(reporter: pytest.TerminalReporter, published: Sequence[Published], *, verbose: bool) -> None:
    """The summary, after pytest's own sections."""
    reporter.section("memory bandwidth", sep="=")
    for one in published:
        _show_device(reporter, one, verbose=verbose)
    # Told last and once, where nobody has to look for it among the tables of many devices.
    for text in dict.fromkeys(one.unlike.text for one in published if one.unlike is not None):
        _write_line(reporter, (Span(f"FLEET {text}", ("yellow", "bold")),))


def _show_device(reporter: pytest.TerminalReporter, published: Published, *, verbose: bool) -> None:
    if getattr(reporter.config.option, "dist", "no") != "no":  # the workers' headers were not shown
        peak = published.device.get("peak") or {}
        kind = str(published.device["kind"])
        reporter.write_line(header_line(published.name, peak.get("gbps"), peak.get("source"), published.baseline, kind))
    width = reporter._tw.fullwidth
    for line in (*summary_lines(published.outcomes, width, verbose=verbose), *published.changes):
        _write_line(reporter, line)
    for path in published.written:
        reporter.write_line(f"wrote {path}")
    for note in published.notes:
        reporter.write_line(note)
    for line_of_ci in published.commands.splitlines():
        reporter.write_line(line_of_ci)
    if published.interrupted:
        _write_line(reporter, (Span("interrupted: the baseline was not updated", ("red", "bold")),))
    for problem in published.problems:
        _write_line(reporter, (Span(f"ERROR: {problem}", ("red", "bold")),))


def _write_line(reporter: pytest.TerminalReporter, line: Line) -> None:
    for span in line:
        reporter.write(span.text, **dict.fromkeys(span.markup, True))
    reporter.write("\n")
