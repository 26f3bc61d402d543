"""Convert an update's measurements, of this run and of further runs, to a baseline's entries.

Runs that pass the gate are appended to an entry, others replace its runs. Devices of one model share an entry: their
runs of one update are added together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, zip_longest
from statistics import median

from pytest_bandwidth.domain.baseline import NEWEST_RUNS_KEPT, Entry, Run
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError
from pytest_bandwidth.domain.measured.metrics import Metrics, anchor_of, choose_metric, median_metrics
from pytest_bandwidth.judging.causes import SETTING_FACTS, VERSION_FACTS
from pytest_bandwidth.judging.decide import continued, mismatch_of, pattern_of
from pytest_bandwidth.judging.stored import Reference, steadier_of_runs
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

    outcomes: this run's; further: the rows of further runs; commit, at: of every run, the moment as ISO 8601; dirty:
    whether the code that ran may differ from the commit's.
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
    # Processes with a hindered probe, where another was not: their share would distort the entry's median.
    hindered = [o for o in found if o.valid_relative is None] if any(o.valid_relative for o in found) else []
    facts = ((name, identity.facts.get(name)) for name in (*VERSION_FACTS, *SETTING_FACTS))
    explaining = {name: str(fact) for name, fact in facts if fact is not None}
    return last.to_entry(
        gbps=last.gbps,
        utilization=last.of_peak,
        judged_on=judged_on,
        # Where processes ran different code (such as newly generated code), the entry identifies no code.
        code=dict(last.code_identity) if all(o.code_identity == last.code_identity for o in found) else {},
        extra={"pattern": pattern} if last.counts and (pattern := pattern_of(last.detail)) else {},
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


# Fields that have to be equal for runs to share an entry.
_SETUP_FIELDS = ("bytes_read", "bytes_written", "method", "settings", "counts")


def merged(old: Entry | None, fresh: Entry, tolerance: float, reference: Reference | None) -> Entry:
    """Return the entry after an update with `fresh`, which holds only this update's runs.

    Fields that people write by hand (tolerance, xfail, note, judged_on, unknown keys) stay.
    tolerance, reference: those that judge the test; reference is None without an old figure.
    """
    if old is None:
        return _summed(replace(fresh, anchor=anchor_of(fresh.runs)))
    kept = replace(
        fresh,
        tolerance=old.tolerance,
        xfail=old.xfail,
        note=old.note,
        judged_on=old.judged_on or fresh.judged_on,
        extra={**old.extra, **fresh.extra},
        line=old.line,
    )
    if _continues(old, kept, tolerance, reference):
        runs = (*continued(old.runs, fresh.runs), *fresh.runs)[-NEWEST_RUNS_KEPT:]
        return _summed(replace(kept, runs=runs, anchor=old.anchor or anchor_of(old.runs)))
    return _summed(replace(kept, anchor=anchor_of(fresh.runs)))


def joined(of_devices: Sequence[Entry], on_host: bool) -> Entry:
    """Join one measurement's entries of devices of one model; the figure to judge by is chosen from all runs.

    The runs of the devices alternate, so that the newest ones, which a file keeps, are of every device.
    Raises BaselineError where the devices did not measure the same thing in the same way.
    """
    first = of_devices[0]
    for other in of_devices[1:]:
        for name in _SETUP_FIELDS:
            one, two = getattr(first, name), getattr(other, name)
            if one != two:
                raise BaselineError(
                    f"{first.key}: found {name} {one} on one device and {two} on another of its model, expected one "
                    "for all that share a file: update from one of them"
                )
    alternating = chain.from_iterable(zip_longest(*(entry.runs for entry in of_devices)))
    code = first.code if all(entry.code == first.code for entry in of_devices) else {}
    entry = replace(first, code=code, runs=tuple(run for run in alternating if run is not None))
    if entry.judged_on is None:
        return entry
    return replace(entry, judged_on=steadier_of_runs(entry.judged_on, entry, on_host))


def _continues(old: Entry, fresh: Entry, tolerance: float, reference: Reference | None) -> bool:
    """Return whether the fresh runs agree with the old ones, within the gate."""
    if not old.runs or not fresh.runs or reference is None:
        return False
    if mismatch_of(fresh, old) is not None:
        return False
    value = median_metrics(fresh.runs).of(reference.figure)
    if value is None:
        return False
    return abs(reference.drop(value)) <= reference.gate(tolerance, len(fresh.runs))


def _summed(entry: Entry) -> Entry:
    return replace(entry, gbps=median(run.gbps for run in entry.runs)) if entry.runs else entry
