"""Writing what was measured to the baseline: this run, and as many fresh whole runs as were asked for.

A file belongs to a model: what its devices showed in one run is written together, but for outliers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain
from types import MappingProxyType
from typing import TYPE_CHECKING

import pytest

from pytest_bandwidth.devices.open import name_of
from pytest_bandwidth.domain.baseline import Baseline, Entry, Metric
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError, UsageError
from pytest_bandwidth.domain.judging.fleet import OUTLIER, model_of
from pytest_bandwidth.domain.judging.judge import Pools, pools_of, prior_of, tolerance_of
from pytest_bandwidth.domain.judging.update import joined, merged, metric_of_update
from pytest_bandwidth.domain.judging.update_evidence import evidence_of
from pytest_bandwidth.domain.outcome import Outcome, Plain
from pytest_bandwidth.domain.verdict import NOT_WRITTEN, Status
from pytest_bandwidth.reports.changes import change_lines
from pytest_bandwidth.reports.json import identity_of
from pytest_bandwidth.reports.terminal import Line
from pytest_bandwidth.session.device_lock import DeviceLock
from pytest_bandwidth.session.device_report import DeviceRun
from pytest_bandwidth.session.fresh.child import ChildRequest, FreshProcessFailed, Invocation, run_fresh
from pytest_bandwidth.session.git import current_commit
from pytest_bandwidth.session.session import ASKED
from pytest_bandwidth.session.settings import Settings
from pytest_bandwidth.session.xdist import invocation_of
from pytest_bandwidth.storage import baseline as baseline_files
from pytest_bandwidth.storage.baseline.locate import is_folder

if TYPE_CHECKING:
    from pytest_bandwidth.session.publish import Published

# A fresh whole run may take so long; a hung one must not block an update for ever.
WHOLE_RUN_SECONDS = 4 * 3600.0


@dataclass(frozen=True, slots=True)
class Asked:
    """What a test's marker says of how it is judged; None where it is silent."""

    tolerance: float | None = None
    judged_on: Metric | None = None


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did, for the summary."""

    path: str
    lines: list[Line]


def update_baselines(
    config: pytest.Config,
    settings: Settings,
    runs: Sequence[DeviceRun],
    published: Sequence[Published],
    *,
    interrupted: bool = False,
) -> None:
    """Writes each model's file; what was done, and what could not be, is noted in the devices' `published`.

    interrupted: whether the run was: then its files stay as they are.
    """
    if interrupted:
        _interrupted(published)
    else:
        _update_files(config, settings, runs, published)
    for run, one in zip(runs, published, strict=True):
        one.outcomes = [_as_written(outcome, run, one) for outcome in one.outcomes]


def _update_files(
    config: pytest.Config, settings: Settings, runs: Sequence[DeviceRun], published: Sequence[Published]
) -> None:
    models = dict.fromkeys(model_of(run.device) for run in runs)
    if len(models) > 1 and settings.baseline is not None and not is_folder(settings.baseline):
        names = ", ".join(name for _, name, _ in models)
        _not_updated(
            published,
            f"found {settings.baseline}, one file, and the devices {names}, "
            "expected a folder, which holds a file for each",
        )
        return
    for model in models:
        of_model = [pair for pair in zip(runs, published, strict=True) if model_of(pair[0].device) == model]
        _update_model(config, settings, of_model, alone=len(runs) == 1)


def _update_model(
    config: pytest.Config, settings: Settings, devices: Sequence[tuple[DeviceRun, Published]], *, alone: bool
) -> None:
    known_commit = current_commit(config.rootpath)
    evidence: list[Mapping[str, Entry]] = []
    asked: dict[str, Asked] = {}
    written: list[Published] = []
    for run, one in devices:
        updated = [o for o in one.outcomes if o.status == Status.UPDATED.value and o.nodeid not in run.failed]
        if not updated:
            continue
        if one.unlike is not None and one.unlike.code == OUTLIER:
            one.left_out = "it is an outlier"
            one.notes.append(f"{one.name} was left out of the baseline's update: {one.left_out}")
            continue
        identity = identity_of(run.device)
        try:
            further = _further(config, settings, run, identity, alone=alone)
        except (BandwidthError, OSError) as error:
            _not_updated([one], str(error))
            continue
        except KeyboardInterrupt:  # pytest is past its own care for it, and what was measured is still to be shown
            _interrupted([one, *(other for _, other in devices)])
            return
        evidence.append(evidence_of(identity, updated, further, known_commit))
        asked.update({row["key"]: Asked(**row[ASKED]) for row in run.rows})
        written.append(one)
    if not evidence:
        return
    try:
        summary = update_baseline(settings, identity_of(written[0].device), evidence, asked)
    except (BandwidthError, OSError) as error:
        _not_updated(written, str(error))
        return
    for one in written:
        one.baseline = summary.path
    written[-1].changes = summary.lines


def _interrupted(published: Sequence[Published]) -> None:
    """Told once."""
    published[0].interrupted = True
    for one in published:
        one.not_updated = one.not_updated or "the run was interrupted"


def _not_updated(published: Sequence[Published], why: str) -> None:
    """Told once, and in each device's document; its rows only say so."""
    text = f"the baseline was not updated: {why}"
    published[0].problems.append(text)
    for one in published:
        one.not_updated = "the update failed"
        one.findings.append({"code": "not-updated", "text": text})


def _as_written(outcome: Outcome, run: DeviceRun, published: Published) -> Outcome:
    """The row as it is after the update: what is not in the baseline is not UPDATED."""
    if outcome.status != Status.UPDATED.value:
        return outcome
    if outcome.nodeid in run.failed:
        return _told(outcome, Status.NO_BASELINE, NOT_WRITTEN, "not written to the baseline: the test failed")
    if published.left_out:  # others of its model wrote the entry
        return _told(outcome, Status.UPDATED, "left-out", f"left out of the baseline's update: {published.left_out}")
    if published.not_updated:
        return _told(outcome, Status.NO_BASELINE, NOT_WRITTEN, f"not written to the baseline: {published.not_updated}")
    return outcome


def _told(outcome: Outcome, status: Status, code: str, reason: str) -> Outcome:
    verdict = {**outcome.verdict, "status": status.value, "code": code, "reason": reason}
    return replace(outcome, status=status.value, code=code, reason=reason, verdict=verdict)


def _further(
    config: pytest.Config, settings: Settings, run: DeviceRun, identity: DeviceIdentity, *, alone: bool
) -> Sequence[Sequence[Plain]]:
    """What the device's worker measured further; else it is measured now, if it is the run's only device.

    Raises BandwidthError.
    """
    if run.trouble is not None:
        raise FreshProcessFailed(run.trouble)
    if run.further is not None:
        return run.further
    if not alone and settings.runs > 1:
        raise UsageError(
            f"found several devices, and no further runs of {run.device['name']}, expected --dist=each with "
            "--bandwidth-runs: only its own worker is sure to reach a device"
        )
    return further_runs(settings, invocation_of(config), identity, _teller(config))


def _teller(config: pytest.Config) -> Callable[[str], None]:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return (lambda _: None) if reporter is None else (lambda text: _tell(reporter, text))


def _tell(reporter: pytest.TerminalReporter, text: str) -> None:
    reporter.ensure_newline()
    reporter.write_line(text)


def further_runs(
    settings: Settings, invocation: Invocation, identity: DeviceIdentity, tell: Callable[[str], None]
) -> list[list[Plain]]:
    """The rows of `settings.runs` − 1 fresh whole runs on the device. Raises BandwidthError."""
    # What is counted is the same in every process.
    wanted = 1 if identity.counts_only else settings.runs
    further = []
    for i in range(1, wanted):
        tell(f"bandwidth: baseline run {i + 1} of {wanted} in a fresh process …")
        with DeviceLock(identity, settings.lock_timeout, on_long_wait=tell).held():
            order = ChildRequest(name_of(identity), rounds_share=settings.rounds_share)
            further.append(run_fresh(invocation, order, WHOLE_RUN_SECONDS))
    return further


def update_baseline(
    settings: Settings,
    identity: DeviceIdentity,
    evidence: Sequence[Mapping[str, Entry]],
    asked: Mapping[str, Asked] = MappingProxyType({}),
) -> Update:
    """Writes what devices of one model showed to its file. asked: by key, what the tests' markers say.

    Raises BandwidthError; the file is then as it was.
    """
    if settings.baseline is None:
        raise ValueError("an update needs a baseline to write to")
    keys = dict.fromkeys(chain.from_iterable(evidence))
    entries = [joined([of_device[key] for of_device in evidence if key in of_device], identity.on_host) for key in keys]
    path = baseline_files.find_file(settings.baseline, identity)
    summary = baseline_files.update(
        path, identity, entries, merge_in=lambda baseline: _merge_in(baseline, settings, identity, asked)
    )
    changes = [(c.before, c.after) for c in (*summary.added, *summary.changed) if c.after is not None]
    return Update(summary.path, change_lines(str(path), changes))


def _merge_in(
    baseline: Baseline, settings: Settings, identity: DeviceIdentity, asked: Mapping[str, Asked]
) -> baseline_files.Merge:
    """What merges runs into the file's entries by the gate that its tests are judged with."""

    @cache
    def pools() -> Pools:
        return pools_of(baseline)

    def merge(old: Entry | None, new: Entry) -> Entry:
        if settings.update_new and not settings.update and old is not None:
            return old
        of_marker = asked.get(new.key, Asked())
        tolerance = tolerance_of(of_marker.tolerance, old, baseline, settings.tolerance)
        if old is None or not new.runs:  # nothing to hold to the gate
            return merged(old, new, tolerance, 0.0)
        figure = metric_of_update(old, new, of_marker.judged_on)
        prior = prior_of(old, figure, identity.on_host, pools())
        return merged(old, new, tolerance, prior, of_marker.judged_on)

    return merge
