"""Write what was measured to the baseline: this run, and as many fresh whole runs as were asked for.

A file belongs to a model: what its devices showed in one run is written together, but for outliers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from types import MappingProxyType

import pytest

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline.locate import is_folder
from pytest_bandwidth.domain.baseline import Baseline, Entry
from pytest_bandwidth.domain.device import DeviceIdentity, Peak, identity_of
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.verdict import Rule, Status
from pytest_bandwidth.evidence.fresh_processes.whole_runs import further_runs
from pytest_bandwidth.evidence.git import current_commit
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed
from pytest_bandwidth.judging.limits import MarkerOptions, tolerance_of
from pytest_bandwidth.judging.stored import reference_of
from pytest_bandwidth.judging.update import joined, merged, metric_of_update
from pytest_bandwidth.measuring.progress import begin_line
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.outcomes.devices import OUTLIER, model_of
from pytest_bandwidth.outcomes.evidence import entries_of
from pytest_bandwidth.outcomes.outcome import Outcome, Plain
from pytest_bandwidth.reports.changes import change_lines
from pytest_bandwidth.reports.terminal import TerminalLine
from pytest_bandwidth.reports.text_safe import printable
from pytest_bandwidth.session.publishing.device_report import DeviceReport, Row
from pytest_bandwidth.session.publishing.environment import commit_of_run, now, uncommitted_beside
from pytest_bandwidth.session.publishing.kept_code import KeptCode, kept_code
from pytest_bandwidth.session.xdist import invocation_of

# So many entries are named in a line.
MOST_NAMED = 3
KEEPS_NOTHING = KeptCode()


@dataclass(frozen=True, slots=True)
class Update:
    """Say what an update did, for the summary."""

    path: str
    lines: list[TerminalLine]


def update_baselines(
    config: pytest.Config, settings: Settings, reports: Sequence[DeviceReport], *, interrupted: bool = False
) -> None:
    """Write each model's file; what was done, and what could not be, is noted in the devices' reports.

    interrupted: whether the run was: then its files stay as they are.
    """
    if interrupted:
        _interrupted(reports)
    else:
        _update_files(config, settings, reports)
    for report in reports:
        report.rows = [replace(row, outcome=_as_written(row.outcome, report)) for row in report.rows]


def _update_files(config: pytest.Config, settings: Settings, reports: Sequence[DeviceReport]) -> None:
    models = dict.fromkeys(model_of(report.device) for report in reports)
    if len(models) > 1 and settings.baseline is not None and not is_folder(settings.baseline):
        names = ", ".join(name for _, name, _ in models)
        _not_updated(
            reports,
            f"found {settings.baseline}, one file, and the devices {names}, "
            "expected a folder, which holds a file for each",
        )
        return
    for model in models:
        of_model = [report for report in reports if model_of(report.device) == model]
        _update_model(config, settings, of_model, alone=len(reports) == 1)


def _update_model(config: pytest.Config, settings: Settings, reports: Sequence[DeviceReport], *, alone: bool) -> None:
    known_commit = commit_of_run(config.rootpath, settings.commit)
    # Where git does not answer in time, the commit may not be what ran.
    dirty = current_commit(config.rootpath) is not None and uncommitted_beside(config.rootpath, settings.baseline) != []
    evidence: list[Mapping[str, Entry]] = []
    asked: dict[str, MarkerOptions] = {}
    rows: list[Row] = []
    written: list[DeviceReport] = []
    for report in reports:
        updated = [o for o in report.succeeded if o.status == Status.SAVED.value]
        if not updated:
            continue
        if report.unlike is not None and report.unlike.code == OUTLIER:
            report.left_out = "it is an outlier"
            report.notes.append(f"{report.name} was left out of the baseline's update: {report.left_out}")
            continue
        identity = identity_of(report.device)
        try:
            further = _further(config, settings, report, identity, alone=alone)
        except (BandwidthError, OSError) as error:
            _not_updated([report], str(error))
            continue
        except KeyboardInterrupt:  # pytest is past its own care for it, and what was measured is still to be shown
            _interrupted([report, *reports])
            return
        entries = entries_of(identity, updated, further, known_commit, now(), dirty=dirty)
        if (fewer := _fewer_runs(entries, 1 + len(further))) is not None:
            report.notes.append(fewer)
        if (fewer := _fewer_counts(entries)) is not None:
            report.notes.append(fewer)
        evidence.append(entries)
        asked.update({row.outcome.key: row.asked for row in report.rows})
        rows += report.rows
        written.append(report)
    if not evidence:
        return
    identity = identity_of(written[0].device)
    try:
        summary = update_baseline(settings, identity, evidence, asked, kept_code(rows))
    except (BandwidthError, OSError) as error:
        _not_updated(written, str(error))
        return
    for report in written:
        report.baseline = summary.path
    written[-1].changes = summary.lines


def _fewer_runs(entries: Mapping[str, Entry], taken: int) -> str | None:
    """Name entries of which not every run counts; None where there are none. Counts have no runs."""
    short = {key: len(entry.runs) for key, entry in entries.items() if 0 < len(entry.runs) < taken}
    if not short:
        return None
    named = ", ".join(f"{printable(key)} {runs}" for key, runs in list(short.items())[:MOST_NAMED])
    more = f" and {len(short) - MOST_NAMED} more" if len(short) > MOST_NAMED else ""
    return (
        f"of this update's {taken} runs not all count, since some were disturbed or failed: "
        f"{named}{more}; another --bandwidth-update adds runs"
    )


def _fewer_counts(entries: Mapping[str, Entry]) -> str | None:
    """Name entries of which DRAM was counted in some runs alone; None where there are none."""
    counted = {key: (sum(run.dram_read is not None for run in e.runs), len(e.runs)) for key, e in entries.items()}
    some = [f"{printable(key)} {known} of {runs}" for key, (known, runs) in counted.items() if 0 < known < runs]
    if not some:
        return None
    more = f" and {len(some) - MOST_NAMED} more" if len(some) > MOST_NAMED else ""
    return (
        f"what DRAM moves was not counted in every run of this update: {', '.join(some[:MOST_NAMED])}{more}; the gate "
        "knows the others' counts"
    )


def _interrupted(reports: Sequence[DeviceReport]) -> None:
    """Say it once."""
    reports[0].interrupted = True
    for report in reports:
        report.not_updated = report.not_updated or "the run was interrupted"


def _not_updated(reports: Sequence[DeviceReport], why: str) -> None:
    """Say it once, and in each device's document; its rows only say so."""
    text = f"the baseline was not updated: {why}"
    reports[0].problems.append(text)
    for report in reports:
        report.not_updated = "the update failed"
        report.findings.append({"code": "not-updated", "text": text})


def _as_written(outcome: Outcome, report: DeviceReport) -> Outcome:
    """Say of a row what became of it: what is not in the baseline is not SAVED."""
    if outcome.status != Status.SAVED.value:
        return outcome
    if outcome.nodeid in report.failed:
        return _instead(outcome, Status.UNDECIDED, Rule.NOT_WRITTEN, "not saved: the test failed")
    if report.left_out:  # others of its model wrote the entry
        return _instead(outcome, Status.SAVED, Rule.LEFT_OUT, f"left out of the baseline's update: {report.left_out}")
    if report.not_updated:
        return _instead(outcome, Status.UNDECIDED, Rule.NOT_WRITTEN, f"not saved: {report.not_updated}")
    return outcome


def _instead(outcome: Outcome, status: Status, rule: str, reason: str) -> Outcome:
    verdict = {**outcome.verdict, "status": status.value, "rule": rule}
    return replace(outcome, status=status.value, reason_code=rule, reason=reason, verdict=verdict)


def _further(
    config: pytest.Config, settings: Settings, report: DeviceReport, identity: DeviceIdentity, *, alone: bool
) -> Sequence[Sequence[Plain]]:
    """Return what the device's worker measured further; else measure it now, if it is the run's only device.

    Raises BandwidthError.
    """
    if report.trouble is not None:
        raise FreshProcessFailed(report.trouble)
    if report.further is not None:
        return report.further
    if not alone and settings.runs > 1:
        raise UsageError(
            f"found several devices, and no further runs of {report.device['name']}, expected --dist=each with "
            "--bandwidth-runs: only its own worker is sure to reach a device"
        )
    told = report.device["peak"]
    peak = None if told is None else Peak(told["gbps"] * 1e9, told["source"])
    report.further = further_runs(settings, invocation_of(config), identity, peak, _teller(config))
    return report.further


def _teller(config: pytest.Config) -> Callable[[str], None]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return (lambda _: None) if reporter is None else (lambda text: _tell(reporter, text))


def _tell(reporter: pytest.TerminalReporter, text: str) -> None:
    begin_line(reporter)
    reporter.write_line(text)


def update_baseline(
    settings: Settings,
    identity: DeviceIdentity,
    evidence: Sequence[Mapping[str, Entry]],
    asked: Mapping[str, MarkerOptions] = MappingProxyType({}),
    kept: KeptCode = KEEPS_NOTHING,
) -> Update:
    """Write what devices of one model showed to its file. asked: by key, what the tests' markers say. kept: the
    kernels' code.

    Raises BandwidthError; the file is then as it was.
    """
    if settings.baseline is None:
        raise ValueError("an update needs a baseline to write to")
    keys = dict.fromkeys(chain.from_iterable(evidence))
    of_devices = ([of_device[key] for of_device in evidence if key in of_device] for key in keys)
    entries = [kept.named_by(joined(of_key, identity.on_host)) for of_key in of_devices]
    path = baseline_files.find_file(settings.baseline, identity)
    summary = baseline_files.update(
        path,
        identity,
        entries,
        merge_in=lambda baseline: _merge_in(baseline, settings, identity, asked),
        files=kept.files,
    )
    changes = [(c.before, c.after) for c in (*summary.added, *summary.changed) if c.after is not None]
    return Update(summary.path, change_lines(str(path), changes))


def _merge_in(
    baseline: Baseline,
    settings: Settings,
    identity: DeviceIdentity,
    asked: Mapping[str, MarkerOptions],
) -> baseline_files.Merge:
    """Return what merges runs into the file's entries by the gate that its tests are judged with."""

    def merge(old: Entry | None, new: Entry) -> Entry:
        if settings.update_new and not settings.update and old is not None:
            return old
        of_marker = asked.get(new.key, MarkerOptions())
        tolerance = tolerance_of(of_marker.tolerance, old, baseline, settings.tolerance)
        if old is None or not new.runs:  # nothing to hold to the gate
            return merged(old, new, tolerance, None)
        figure = metric_of_update(old, new, of_marker.judged_on)
        return merged(old, new, tolerance, reference_of(old, figure, identity.on_host))

    return merge
