"""After the last test: the baseline's update, the files that were asked for, the terminal's summary."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pytest

from pytest_bandwidth.absent import sentence
from pytest_bandwidth.distributed import invocation_of, revision_of
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.outcome import Outcome, from_plain
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.environment import describe, new_run_id
from pytest_bandwidth.on_github import commands, is_github, write_summary
from pytest_bandwidth.rendering.json import document, render_json
from pytest_bandwidth.rendering.terminal import Line, Span, header_line, summary_lines
from pytest_bandwidth.settings import Settings, read_settings
from pytest_bandwidth.whole_files import write_whole

BUNDLE_NAME = "bandwidth_report"


@dataclass(slots=True)
class Published:
    """What was done at the end of a run, for the summary. `problems`: what could not be done.

    notes: lines of no consequence. findings: about the run, for the document. commands: what the CI system reads on
    standard output, one a line.
    """

    device: Mapping[str, Any]
    outcomes: list[Outcome]
    baseline: str | None
    changes: list[Line] = field(default_factory=list)
    written: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    findings: list[dict[str, str]] = field(default_factory=list)
    commands: str = ""


def publish(
    config: pytest.Config,
    device: Mapping[str, Any],
    rows: Sequence[Mapping[str, Any]],
    failed: set[str],
    absent: Sequence[str] = (),
) -> Published:
    """Updates the baseline and writes files; what goes wrong is told, not raised, so that everything else is done.

    failed: tests that did; absent: entries of the baseline that have no test any more.
    """
    settings = read_settings(config)
    outcomes = [from_plain(row) for row in rows]
    judged_by = revision_of(config) or settings.baseline
    published = Published(device, outcomes, None if judged_by is None else str(judged_by))
    if settings.writes_baseline:
        _update(config, settings, published, failed)
    if absent and published.baseline:
        text = sentence(absent, published.baseline)
        published.findings.append({"code": "absent", "text": text})
        published.notes.append(text)
    _write_files(config, settings, published)
    return published


def _update(config: pytest.Config, settings: Settings, published: Published, failed: set[str]) -> None:
    from pytest_bandwidth.updates import update_baseline

    updated = [o for o in published.outcomes if o.status == Status.UPDATED.value and o.nodeid not in failed]
    if not updated:
        return
    try:
        summary = update_baseline(
            settings, invocation_of(config), config.rootpath, published.device, updated, _teller(config)
        )
    except (BandwidthError, OSError) as error:
        published.problems.append(f"the baseline was not updated: {error}")
        return
    published.baseline = summary.path
    published.changes = summary.lines


def _teller(config: pytest.Config) -> Callable[[str], None]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return (lambda _: None) if reporter is None else (lambda text: _tell(reporter, text))


def _tell(reporter: pytest.TerminalReporter, text: str) -> None:
    reporter.ensure_newline()
    reporter.write_line(text)


def _write_files(config: pytest.Config, settings: Settings, published: Published) -> None:
    run_id = new_run_id()
    whole = document(
        run_id,
        describe(config.rootpath),
        published.device,
        {name: str(v) if isinstance(v, Path) else v for name, v in asdict(settings).items()},
        published.outcomes,
        published.baseline,
        published.findings,
    )
    targets: list[tuple[str, Path]] = [
        (kind, path) for kind in ("json", "csv", "html") if (path := getattr(settings, kind)) is not None
    ]
    if settings.dir is not None:
        folder = settings.dir / run_id
        targets += [(kind, folder / f"{BUNDLE_NAME}.{kind}") for kind in ("json", "csv", "html")]
    for kind, path in targets:
        target = path if path.is_absolute() else config.invocation_params.dir / path
        try:
            text = _rendered(kind, whole, published.outcomes)
            target.parent.mkdir(parents=True, exist_ok=True)
            write_whole(target, text.encode())
        except (OSError, BandwidthError) as error:
            published.problems.append(f"{path} was not written: {error}")
        else:
            published.written.append(str(path))
    if is_github():
        published.commands = commands(whole, config.rootpath)
        if refusal := write_summary(whole):
            published.notes.append(refusal)
    if settings.history is not None:
        _append_to_history(config, settings.history, whole, published)


def _append_to_history(config: pytest.Config, folder: Path, document: Mapping[str, Any], published: Published) -> None:
    from pytest_bandwidth.storage.history import append

    try:
        added = append(config.invocation_params.dir / folder, document, published.outcomes)
    except (OSError, BandwidthError) as error:
        published.problems.append(f"{folder} was not appended to: {error}")
    else:
        published.written.append(str(folder / added.name))


def _rendered(kind: str, document: Mapping[str, Any], outcomes: Sequence[Outcome]) -> str:
    if kind == "json":
        return render_json(document)
    if kind == "csv":
        from pytest_bandwidth.rendering.csv import render_csv

        return render_csv(outcomes)
    from pytest_bandwidth.rendering.html import render_html

    return render_html(document)


def show(reporter: pytest.TerminalReporter, published: Published, *, verbose: bool) -> None:
    """The summary, after pytest's own sections."""
    reporter.section("memory bandwidth", sep="=")
    if getattr(reporter.config.option, "dist", "no") != "no":  # the workers' headers were not shown
        peak = published.device.get("peak") or {}
        name = str(published.device["name"])
        kind = str(published.device["kind"])
        reporter.write_line(header_line(name, peak.get("gbps"), peak.get("source"), published.baseline, kind))
    width = reporter._tw.fullwidth
    for line in (*summary_lines(published.outcomes, width, verbose=verbose), *published.changes):
        _write_line(reporter, line)
    for path in published.written:
        reporter.write_line(f"wrote {path}")
    for note in published.notes:
        reporter.write_line(note)
    for line_of_ci in published.commands.splitlines():
        reporter.write_line(line_of_ci)
    for problem in published.problems:
        _write_line(reporter, (Span(f"ERROR: {problem}", ("red", "bold")),))


def _write_line(reporter: pytest.TerminalReporter, line: Line) -> None:
    for span in line:
        reporter.write(span.text, **dict.fromkeys(span.markup, True))
    reporter.write("\n")
