"""Judge a drop: one fresh process is one piece of evidence; samples inside it are not replicates.

A process whose figure lies further below the entry's than noise explains is a suspect; fresh processes confirm it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import COMPILER_SETTING
from pytest_bandwidth.domain.judging.reference import Reference, noise_bound
from pytest_bandwidth.domain.judging.rule import (
    REGRESSED_LEVEL,
    bounds_of,
    first_status,
    fresh_gate,
    median_drop,
    tells,
)
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics, disbelief
from pytest_bandwidth.domain.units import counted, drop_of_log, format_bytes, format_gbps, format_percent, log_of_drop
from pytest_bandwidth.domain.verdict import Numbers, Status, Verdict

# The code of INVALID where a share of the probe is judged, and the one at hand cannot be believed.
NO_SHARE = "share"
RUNS_CONSIDERED = range(1, 21)
# Advised where an entry has none, as for any new one: with five its own spread weighs nearly as much as the prior.
FIRST_RUNS = 5
NO_RUNS_WOULD_DO = "no number of runs up to 20 would do"
# Of a first look.
_CODES = {
    Status.SUSPECT: "drop",
    Status.REGRESSED: "drop",
    Status.IMPROVED: "gain",
    Status.WITHIN: "within",
}


@dataclass(frozen=True, slots=True)
class MeasurementSetup:
    """Hold what makes figures comparable at all: byte counts, timing method, and the device's settings."""

    bytes_read: int
    bytes_written: int
    method: str
    settings: Mapping[str, str]

    def by_any_compiler(self) -> MeasurementSetup:
        """Return the setup of what executes the same PTX, whichever compiler it is from."""
        return replace(self, settings={k: v for k, v in self.settings.items() if k != COMPILER_SETTING})


def setup_of(measurement: Measurement) -> MeasurementSetup:
    """Return how a measurement was taken."""
    traffic = measurement.traffic
    return MeasurementSetup(traffic.bytes_read, traffic.bytes_written, measurement.method, measurement.device.settings)


def not_comparable(setup: MeasurementSetup, entry: Entry, *, other: str = "the baseline") -> Verdict | None:
    """Return NOT_COMPARABLE where the entry was measured in another way; None where the two can be compared.

    other: what the entry is of, for the sentence.
    """
    for name in ("bytes_read", "bytes_written"):
        here, there = getattr(setup, name), getattr(entry, name)
        if there is not None and there != here:
            return Verdict(
                Status.NOT_COMPARABLE,
                "bytes",
                f"{name} is {here} ({format_bytes(here)}), {other}'s is {there} ({format_bytes(there)})",
            )
    if entry.method is not None and entry.method != setup.method:
        return Verdict(Status.NOT_COMPARABLE, "method", f"timed by {setup.method}, {other} by {entry.method}")
    for name, there in entry.settings.items():
        here = setup.settings.get(name)
        if here is not None and here != there:
            return Verdict(Status.NOT_COMPARABLE, f"setting:{name}", f"{name} is {here}, {other}'s is {there}")
    return None


def without_share(figures: Metrics) -> Verdict:
    """Return INVALID for what is judged by its share of the probe and shows none that can be believed."""
    return Verdict(Status.INVALID, NO_SHARE, f"{disbelief(figures)}; judged_on=gbps judges without the probe")


def look(figures: Metrics, reference: Reference, tolerance: float, confirm: int) -> Verdict:
    """Look at one process's figure first: SUSPECT, INSUFFICIENT, IMPROVED or WITHIN (with confirm=0, REGRESSED)."""
    observed = figures.of(reference.figure)
    if observed is None or observed <= 0:
        raise ValueError(f"{reference.figure} of this run is {observed!r}, expected a positive figure")
    bounds = bounds_of(reference, tolerance, confirm)
    drop = reference.centre - math.log(observed)
    seen = Numbers(
        figure=reference.figure,
        observed=observed,
        reference=reference.value,
        tolerance=tolerance,
        drop=drop_of_log(drop),
        allowed_drop=drop_of_log(bounds.allowed),
        visible_drop=drop_of_log(bounds.gate),
        spread=reference.spread,
        degrees=reference.degrees,
        baseline_runs=reference.runs,
    )
    status = first_status(drop, bounds, confirm)
    if status is Status.INSUFFICIENT:
        return _short_of_runs(Verdict(status, "noise", "", *seen), reference, tolerance, confirm)
    advice = ": --bandwidth-update keeps it" if status is Status.IMPROVED else ""
    return Verdict(status, _CODES[status], f"{drop_sentence(seen)}{advice}", *seen)


def is_doubtful(first: Verdict, reference: Reference, tolerance: float, confirm: int) -> bool:
    """Return whether a look allowed a drop that noise alone seldom shows, so that fresh processes have to look, too."""
    if first.status not in (Status.WITHIN, Status.INSUFFICIENT) or first.observed is None:
        return False
    return reference.centre - math.log(first.observed) > bounds_of(reference, tolerance, confirm).doubt


def confirm_drop(first: Verdict, reference: Reference, fresh: Sequence[float], tolerance: float) -> Verdict:
    """Return REGRESSED where the fresh processes' median is past the gate, else UNCONFIRMED; without the suspect."""
    gate, drop = fresh_gate(reference, tolerance, len(fresh)), median_drop(reference, fresh)
    seen = replace(
        first,
        observed=math.exp(reference.centre - drop),
        drop=drop_of_log(drop),
        allowed_drop=drop_of_log(gate),
        confirmations=tuple(fresh),
        runs_advised=None,
    )
    if drop > gate:
        return replace(seen, status=Status.REGRESSED, code="drop", reason=drop_sentence(seen))
    return replace(
        seen,
        status=Status.UNCONFIRMED,
        code="not-confirmed",
        reason=f"{format_percent(first.drop or 0, 1)} below the baseline here; in fresh ones {drop_sentence(seen)}",
    )


def is_past_gate_beside(confirmed: Verdict, explained: float) -> bool:
    """Return whether a confirmed drop is past its gate without what changed code explains of it.

    explained: ln(seconds of the changed code ÷ of the old, here and now); what is faster explains nothing.
    """
    if confirmed.status is not Status.REGRESSED or confirmed.drop is None or confirmed.allowed_drop is None:
        return False
    return log_of_drop(confirmed.drop) - max(explained, 0.0) > log_of_drop(confirmed.allowed_drop)


def runs_needed(reference: Reference, tolerance: float, processes: int) -> int | None:
    """Return the fewest baseline runs of the same spread with which the gate is the tolerance.

    None where 20 do not do.
    """
    for k in RUNS_CONSIDERED:
        # Of more runs the spread is as well known as of these, and better by each.
        degrees = reference.degrees + k - max(reference.runs, 1)
        noise = noise_bound(REGRESSED_LEVEL, reference.spread, degrees, k, processes)
        if tells(noise, tolerance):
            return k
    return None


def runs_advised(reference: Reference, tolerance: float, confirm: int) -> int | None:
    """Return how many baseline runs a test needs whose gate exceeds its tolerance; None where 20 do not do.

    Without any run the spread is assumed: what the machine's would ask for is not known before FIRST_RUNS.
    """
    return runs_needed(reference, tolerance, max(confirm, 1)) if reference.runs else FIRST_RUNS


def moved(verdict: Verdict | Numbers, other: str) -> str:
    """Return how far below or above `other` the verdict's figure lies, in words."""
    drop = verdict.drop or 0.0
    return f"{format_percent(abs(drop), 1)} {'below' if drop >= 0 else 'above'} {other}"


def drop_sentence(verdict: Verdict | Numbers, other: str = "the baseline") -> str:
    """Return `moved`, how much of a drop is let pass, and every number that this rests on."""
    return f"{moved(verdict, other)}, {format_percent(verdict.allowed_drop or 0, 1)} allowed ({_basis(verdict)})"


def _basis(verdict: Verdict | Numbers) -> str:
    runs = verdict.baseline_runs or 0
    parts = (
        f"{_value(verdict, verdict.observed)} against {_value(verdict, verdict.reference)}",
        f"tolerance {format_percent(verdict.tolerance or 0, 1)}",
        counted(runs, "run") if runs else "a bandwidth written by hand",
        f"spread {format_percent(verdict.spread or 0, 1)}",
    )
    fresh = len(verdict.confirmations)
    return ", ".join((*parts, f"{fresh} fresh process{'' if fresh == 1 else 'es'}") if fresh else parts)


def _value(verdict: Verdict | Numbers, value: float | None) -> str:
    if verdict.figure == "gbps":
        return format_gbps(value or 0)
    return f"{format_percent(value or 0, 1)} of the probe"


def insufficient(verdict: Verdict, evidence: str, remedy: str, runs_advised: int | None) -> Verdict:
    """Return the verdict made INSUFFICIENT. evidence: what there is, as in "1 baseline run"; remedy: what would do."""
    return replace(
        verdict,
        status=Status.INSUFFICIENT,
        code="noise",
        runs_advised=runs_advised,
        reason=f"drops under {format_percent(verdict.visible_drop or 0, 1)} cannot be told from noise "
        f"(tolerance {format_percent(verdict.tolerance or 0, 1)}, {evidence}); {remedy}",
    )


def _short_of_runs(verdict: Verdict, reference: Reference, tolerance: float, confirm: int) -> Verdict:
    advised = runs_advised(reference, tolerance, confirm)
    if not reference.runs:
        known = f"no baseline runs, a spread of {format_percent(reference.spread)} assumed"
        remedy = f"--bandwidth-update --bandwidth-runs={FIRST_RUNS} tells it"
        return insufficient(verdict, known, remedy, advised)
    remedy = (
        f"{advised} baseline runs would do: --bandwidth-update --bandwidth-runs={advised}"
        if advised
        else f"{NO_RUNS_WOULD_DO}: raise the tolerance or quiet the machine"
    )
    known = f"{counted(reference.runs, 'baseline run')}, spread {format_percent(reference.spread, 1)}"
    return insufficient(verdict, known, remedy, advised)
