"""Writing what was measured to the baseline: this run, and as many fresh whole runs as were asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_bandwidth import storage
from pytest_bandwidth.devices.opening import name_of
from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.counting import pattern_of
from pytest_bandwidth.domain.diagnosis import recorded_resources
from pytest_bandwidth.domain.figures import Figures, choose_figure
from pytest_bandwidth.domain.measurement import DeviceIdentity
from pytest_bandwidth.domain.outcome import Outcome, from_plain
from pytest_bandwidth.domain.reference import prior_spread, steadier_of_runs
from pytest_bandwidth.domain.updating import merged
from pytest_bandwidth.domain.verdict import Status
from pytest_bandwidth.environment import commit, now
from pytest_bandwidth.locking import DeviceLock
from pytest_bandwidth.processes import Invocation, run_fresh
from pytest_bandwidth.rendering.changes import change_lines
from pytest_bandwidth.rendering.json import identity_of
from pytest_bandwidth.rendering.terminal import Line
from pytest_bandwidth.settings import Settings

# A fresh whole run may take so long; a hung one must not block an update for ever.
WHOLE_RUN_SECONDS = 3600.0
# Facts that a later drop may be explained by, recorded with each run.
EXPLAINING_FACTS = ("driver_version", "cuda_runtime_version")


@dataclass(frozen=True, slots=True)
class Update:
    """What an update did, for the summary."""

    path: str
    lines: list[Line]


def update_baseline(
    settings: Settings,
    invocation: Invocation,
    root: Path,
    device: Mapping[str, Any],
    outcomes: Sequence[Outcome],
    tell: Callable[[str], None],
) -> Update:
    """Takes `settings.runs` − 1 further runs, then writes. Raises BandwidthError; the file is then as it was."""
    if settings.baseline is None:
        raise ValueError("an update needs a baseline to write to")
    identity = identity_of(device)
    known_commit = commit(root)
    fresh = {outcome.key: [outcome] for outcome in outcomes}
    # What is counted is the same in every process.
    for i in range(1, 1 if identity.kind == "traffic" else settings.runs):
        tell(f"bandwidth: baseline run {i + 1} of {settings.runs} in a fresh process …")
        for outcome in _fresh_outcomes(settings, invocation, identity):
            if outcome.key in fresh:
                fresh[outcome.key].append(outcome)
    entries = [_entry(found, identity, known_commit) for found in fresh.values()]
    on_host = identity.on_host

    def merge(old: Entry | None, new: Entry) -> Entry:
        if settings.update_new and not settings.update and old is not None:
            return old
        tolerance = old.tolerance if old and old.tolerance is not None else settings.tolerance
        return merged(old, new, tolerance, prior_spread(new.judged_on or "gbps", on_host))

    path = storage.find_file(settings.baseline, identity)
    summary = storage.update(path, identity, entries, merge=merge)
    changes = [(c.before, c.after) for c in (*summary.added, *summary.changed) if c.after is not None]
    return Update(summary.path, change_lines(str(path), changes))


def _fresh_outcomes(settings: Settings, invocation: Invocation, identity: DeviceIdentity) -> list[Outcome]:
    with DeviceLock(identity, settings.lock_timeout).held():
        rows = run_fresh(invocation, name_of(identity), WHOLE_RUN_SECONDS)
    # Invalid runs never enter a baseline.
    return [o for o in map(from_plain, rows) if o.status != Status.INVALID.value and (o.gbps or o.counts)]


def _entry(found: Sequence[Outcome], identity: DeviceIdentity, known_commit: str | None) -> Entry:
    """What this update knows of one measurement: its newest conduct and one run for each fresh process."""
    last = found[-1]
    figures = Figures(last.gbps or 0.0, last.relative, last.probe_gbps)
    judged_on = choose_figure(None, None, figures, last.regime) if last.gbps else None
    explaining = {name: str(identity.facts[name]) for name in EXPLAINING_FACTS if identity.facts.get(name)}
    entry = Entry(
        key=last.key,
        gbps=last.gbps,
        judged_on=judged_on,
        bytes_read=last.bytes_read,
        bytes_written=last.bytes_written,
        method=last.method,
        resources=recorded_resources(last.resources),
        settings=dict(identity.settings),
        counts=dict(last.counts),
        extra={"pattern": pattern_of(last.detail)} if last.counts else {},
        runs=tuple(
            Run(
                gbps=o.gbps,
                probe_gbps=o.probe_gbps,
                relative=o.relative,
                samples=len(o.samples),
                gpu=identity.serial,
                commit=known_commit,
                at=now(),
                extra=explaining,
            )
            for o in found
            if o.gbps is not None
        ),
    )
    if judged_on is not None:
        entry = replace(entry, judged_on=steadier_of_runs(judged_on, entry, identity.on_host))
    return replace(entry, utilization=last.utilization if last.utilization_of == "peak" else None)
