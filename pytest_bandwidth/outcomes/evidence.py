"""Turn what an update measured, in this run and in further ones, into a baseline's entries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain

from pytest_bandwidth.domain.baseline import Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric
from pytest_bandwidth.judging.causes import SETTING_FACTS, VERSION_FACTS, recorded_resources
from pytest_bandwidth.judging.counts import pattern_of
from pytest_bandwidth.outcomes.outcome import Outcome, Plain, from_plain


def entries_of(
    identity: DeviceIdentity,
    outcomes: Sequence[Outcome],
    further: Sequence[Sequence[Plain]],
    commit: str | None,
    at: str,
    *,
    dirty: bool = False,
) -> dict[str, Entry]:
    """Make an entry for each measurement of one device's update, by key.

    outcomes: this run's; further: whole runs' rows; commit, at: of every run, the moment as ISO 8601; dirty: whether
    what ran may have been other than the commit's.
    """
    found = {outcome.key: [outcome] for outcome in outcomes}
    for outcome in map(from_plain, chain.from_iterable(further)):
        # Invalid runs never enter a baseline.
        measured = outcome.is_valid and (outcome.gbps or outcome.counts)
        if measured and outcome.key in found:
            found[outcome.key].append(outcome)
    run = Run(0.0, gpu=identity.serial, commit=commit, dirty=dirty and commit is not None, at=at)
    return {key: _entry(outcomes_of_key, identity, run) for key, outcomes_of_key in found.items()}


def _entry(found: Sequence[Outcome], identity: DeviceIdentity, run: Run) -> Entry:
    """Join one measurement's processes: the newest set-up, and one run for each. run: what all runs have in common."""
    last = found[-1]
    figures = Metrics(last.gbps or 0.0, last.relative, last.probe_gbps)
    judged_on = choose_metric(None, None, figures, last.regime) if last.gbps else None
    # Beside processes whose probe was not: its share would move the entry's middle by as much.
    hindered = [o for o in found if o.valid_relative is None] if any(o.valid_relative for o in found) else []
    told = ((name, identity.facts.get(name)) for name in (*VERSION_FACTS, *SETTING_FACTS))
    explaining = {name: str(fact) for name, fact in told if fact is not None}
    return Entry(
        key=last.key,
        gbps=last.gbps,
        utilization=last.utilization if last.utilization_of == "peak" else None,
        judged_on=judged_on,
        bytes_read=last.bytes_read,
        bytes_written=last.bytes_written,
        method=last.method,
        resources=recorded_resources(last.resources),
        settings=dict(identity.settings),
        counts=dict(last.counts),
        # Where processes ran different code (generated anew, say), the entry is of none of it.
        code=dict(last.code_identity) if all(o.code_identity == last.code_identity for o in found) else {},
        extra={"pattern": pattern_of(last.detail)} if last.counts else {},
        runs=tuple(
            replace(
                run,
                gbps=o.gbps,
                probe_gbps=None if o in hindered else o.probe_gbps,
                relative=None if o in hindered else o.relative,
                samples=len(o.samples),
                dram_read=o.detail.get("dram", {}).get("bytes_read"),
                dram_written=o.detail.get("dram", {}).get("bytes_written"),
                extra={**explaining, **o.software},
            )
            for o in found
            if o.gbps is not None
        ),
    )
