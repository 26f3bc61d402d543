"""The rule: one fresh process is one piece of evidence; samples inside it are not replicates.

For an entry with k runs, L = ln(figure), centre c = median of the runs' L and
s² = (5·prior² + (k−1)·sd²)/(k+4): five processes' worth of prior belief about between-process noise, the rest seen.
A hand-written entry is an exact reference: 1/k = 0, five degrees of freedom.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, stdev

from pytest_bandwidth.domain.baseline import Entry, Figure, Run
from pytest_bandwidth.domain.student_t import t_quantile
from pytest_bandwidth.domain.units import digits, format_bytes, format_percent
from pytest_bandwidth.domain.verdict import Status, Verdict

PRIOR_DEGREES = 5
PRIOR_SPREAD: Mapping[str, float] = {"relative": 0.01, "gbps": 0.01, "gbps:host": 0.03}
SUSPECT_LEVEL = 0.99
REGRESSED_LEVEL = 0.999
# A kernel under this share of its probe's bandwidth is not waiting for memory, so the probe does not share its fate.
SHARED_FATE = 0.35
RUNS_CONSIDERED = range(1, 21)
FIGURES: tuple[Figure, Figure] = ("gbps", "relative")


@dataclass(frozen=True, slots=True)
class Figures:
    """What one fresh process saw of one measurement."""

    gbps: float
    relative: float | None = None
    probe_gbps: float | None = None
    utilization: float | None = None

    def of(self, figure: Figure) -> float | None:
        return self.relative if figure == "relative" else self.gbps


@dataclass(frozen=True, slots=True)
class Conduct:
    """What makes figures comparable at all: byte counts, timing method, and the device's settings."""

    bytes_read: int
    bytes_written: int
    method: str
    settings: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Floors:
    """Absolute limits from the marker; each a lower bound, None where not asked for."""

    min_gbps: float | None = None
    min_utilization: float | None = None
    min_relative: float | None = None

    def missed(self, figures: Figures) -> tuple[str, float, float] | None:
        """Name, limit and observation of the first floor that the figures miss."""
        seen = {
            "min_gbps": figures.gbps,
            "min_utilization": figures.utilization,
            "min_relative": figures.relative,
        }
        for name, value in seen.items():
            limit: float | None = getattr(self, name)
            if limit is not None and value is not None and value < limit:
                return name, limit, value
        return None

    def __bool__(self) -> bool:
        return any(limit is not None for limit in (self.min_gbps, self.min_utilization, self.min_relative))


@dataclass(frozen=True, slots=True)
class Reference:
    """An entry seen through one figure: centre and spread of its logarithm, and how many runs stand behind them."""

    figure: Figure
    centre: float
    spread: float
    degrees: float
    runs: int

    @property
    def _of_reference(self) -> float:
        return 1.0 / self.runs if self.runs else 0.0

    def bound(self, level: float, tolerance: float, processes: int) -> float:
        """Log drop that `processes` fresh ones may show: never under the tolerance, never under what noise explains."""
        noise = t_quantile(level, self.degrees) * self.spread * math.sqrt(1.0 / processes + self._of_reference)
        return max(-math.log1p(-tolerance), noise)

    @property
    def value(self) -> float:
        return math.exp(self.centre)


def prior_spread(figure: Figure, on_host: bool, others: float = 0.0) -> float:
    """The prior's standard deviation of ln(figure); `others`: what the file's other entries show, where larger."""
    return max(PRIOR_SPREAD["gbps:host" if figure == "gbps" and on_host else figure], others)


def pooled_spread(entries: Iterable[Entry], figure: Figure) -> float:
    """Between-process standard deviation over all entries with two runs or more, pooled; 0 where there are none."""
    squares, degrees = 0.0, 0
    for entry in entries:
        logs = _logs(entry.runs, figure)
        if len(logs) >= 2:
            squares += stdev(logs) ** 2 * (len(logs) - 1)
            degrees += len(logs) - 1
    # Under five degrees of freedom the pool is as uncertain as the prior that it would replace.
    return math.sqrt(squares / degrees) if degrees >= PRIOR_DEGREES else 0.0


def choose_figure(asked: Figure | None, entry: Entry | None, figures: Figures, regime: str | None) -> Figure:
    """`relative` where the probe shares the kernel's fate, GB/s otherwise; entry and marker decide where they speak."""
    wanted = asked or (entry.judged_on if entry else None)
    if wanted is None:
        shared = figures.relative is not None and figures.relative >= SHARED_FATE and regime != "compute-bound"
        wanted = "relative" if shared else "gbps"
    if wanted == "relative" and (figures.relative is None or (entry is not None and not _logs(entry.runs, "relative"))):
        return "gbps"
    return wanted


def steadier_figure(figure: Figure, entry: Entry, on_host: bool) -> Figure:
    """`relative`, unless the entry's own runs show GB/s to repeat better from process to process.

    So for a kernel that waits for memory at one time and for arithmetic at another. Under five runs their spread tells
    too little.
    """
    if figure != "relative" or len(entry.runs) < PRIOR_DEGREES:
        return figure
    by_gbps, by_share = (_spread_of(entry, which, on_host) for which in FIGURES)
    return "gbps" if by_gbps < by_share else "relative"


def _spread_of(entry: Entry, figure: Figure, on_host: bool) -> float:
    reference = reference_of(entry, figure, prior_spread(figure, on_host))
    return math.inf if reference is None else reference.spread


def reference_of(entry: Entry, figure: Figure, prior: float) -> Reference | None:
    """Centre and spread of an entry; None where it does not hold the figure."""
    logs = _logs(entry.runs, figure)
    if not logs:
        if figure == "relative" or entry.gbps is None:
            return None
        return Reference(figure, math.log(entry.gbps), prior, PRIOR_DEGREES, 0)
    k = len(logs)
    variance = stdev(logs) ** 2 if k > 1 else 0.0
    spread = math.sqrt((PRIOR_DEGREES * prior**2 + (k - 1) * variance) / (k + PRIOR_DEGREES - 1))
    return Reference(figure, median(logs), spread, k + PRIOR_DEGREES - 1, k)


def not_comparable(conduct: Conduct, entry: Entry) -> Verdict | None:
    """NOT_COMPARABLE where the entry was measured in another way; None where the two can be compared."""
    for name in ("bytes_read", "bytes_written"):
        here, there = getattr(conduct, name), getattr(entry, name)
        if there is not None and there != here:
            return Verdict(
                Status.NOT_COMPARABLE,
                "bytes",
                f"{name} is {here} ({format_bytes(here)}), the baseline's is {there} ({format_bytes(there)})",
            )
    if entry.method is not None and entry.method != conduct.method:
        return Verdict(Status.NOT_COMPARABLE, "method", f"timed by {conduct.method}, the baseline by {entry.method}")
    for name, there in entry.settings.items():
        here = conduct.settings.get(name)
        if here is not None and here != there:
            return Verdict(Status.NOT_COMPARABLE, f"setting:{name}", f"{name} is {here}, the baseline's is {there}")
    return None


def look(figures: Figures, reference: Reference, tolerance: float, confirm: int) -> Verdict:
    """First look at one process's figure: SUSPECT, INSUFFICIENT, IMPROVED or WITHIN (with confirm=0, REGRESSED)."""
    observed = figures.of(reference.figure)
    if observed is None or observed <= 0:
        raise ValueError(f"{reference.figure} of this run is {observed!r}, expected a positive figure")
    level = SUSPECT_LEVEL if confirm else REGRESSED_LEVEL
    allowed = reference.bound(level, tolerance, 1)
    gate = reference.bound(REGRESSED_LEVEL, tolerance, max(confirm, 1))
    drop = reference.centre - math.log(observed)
    verdict = Verdict(
        Status.WITHIN,
        "within",
        "",
        figure=reference.figure,
        observed=observed,
        reference=reference.value,
        tolerance=tolerance,
        drop=_as_fraction(drop),
        allowed_drop=_as_fraction(allowed),
        visible_drop=_as_fraction(gate),
        spread=reference.spread,
        degrees=reference.degrees,
        baseline_runs=reference.runs,
    )
    if drop > allowed:
        status = Status.SUSPECT if confirm else Status.REGRESSED
        return replace(verdict, status=status, code="drop", reason=_drop_sentence(verdict))
    if gate > -math.log1p(-tolerance) * (1 + 1e-12):
        return _insufficient(verdict, reference, confirm)
    if -drop > allowed:
        gain = format_percent(math.expm1(-drop), 1)
        return replace(
            verdict,
            status=Status.IMPROVED,
            code="gain",
            reason=f"{gain} above the baseline: --bandwidth-update keeps it",
        )
    return replace(verdict, reason=_drop_sentence(verdict))


def confirm_drop(first: Verdict, reference: Reference, fresh: Sequence[float], tolerance: float) -> Verdict:
    """REGRESSED where the fresh processes' median is past the gate, else UNCONFIRMED. The suspect does not count."""
    logs = [math.log(value) for value in fresh]
    gate = reference.bound(REGRESSED_LEVEL, tolerance, len(logs))
    drop = reference.centre - median(logs)
    seen = replace(
        first,
        observed=math.exp(median(logs)),
        drop=_as_fraction(drop),
        allowed_drop=_as_fraction(gate),
        visible_drop=_as_fraction(gate),
        confirmations=tuple(fresh),
    )
    if drop > gate:
        return replace(seen, status=Status.REGRESSED, code="drop", reason=_drop_sentence(seen))
    return replace(
        seen,
        status=Status.UNCONFIRMED,
        code="not-confirmed",
        reason=f"{format_percent(first.drop or 0, 1)} below the baseline here, "
        f"{format_percent(seen.drop or 0, 1)} in {len(logs)} fresh processes",
    )


def look_at_floors(figures: Figures, floors: Floors) -> Verdict | None:
    """SUSPECT where a floor is missed, None where all hold."""
    missed = floors.missed(figures)
    if missed is None:
        return None
    name, limit, seen = missed
    return Verdict(
        Status.SUSPECT,
        f"floor:{name}",
        f"{_floor_text(name, seen)}, {name} asks for {_floor_text(name, limit)}",
        observed=seen,
        reference=limit,
    )


def confirm_floor(first: Verdict, fresh: Sequence[Figures], floors: Floors) -> Verdict:
    """REGRESSED where the fresh processes' medians miss a floor as well (with none of them: where this one did)."""
    if not fresh:
        return replace(first, status=Status.REGRESSED)
    middle = Figures(
        gbps=median(f.gbps for f in fresh),
        relative=_median_of(f.relative for f in fresh),
        utilization=_median_of(f.utilization for f in fresh),
    )
    again = look_at_floors(middle, floors)
    if again is not None:
        return replace(again, status=Status.REGRESSED, confirmations=tuple(f.gbps for f in fresh))
    return replace(first, status=Status.UNCONFIRMED, reason=f"{first.reason}; held in {len(fresh)} fresh processes")


def median_run(runs: Sequence[Run]) -> tuple[float, float | None]:
    """GB/s and share of the probe that a list of runs stands for."""
    relatives = [r for r in (_relative(run) for run in runs) if r is not None]
    return median(run.gbps for run in runs), median(relatives) if relatives else None


def _insufficient(verdict: Verdict, reference: Reference, confirm: int) -> Verdict:
    tolerance = verdict.tolerance or 0.0
    advised = runs_needed(reference, tolerance, max(confirm, 1))
    remedy = (
        f"{advised} baseline runs would do: --bandwidth-update --bandwidth-runs={advised}"
        if advised
        else "no number of runs up to 20 would do: raise the tolerance or quiet the machine"
    )
    known = "1 baseline run" if reference.runs == 1 else f"{reference.runs or 'no'} baseline runs"
    return replace(
        verdict,
        status=Status.INSUFFICIENT,
        code="noise",
        runs_advised=advised,
        reason=f"drops under {format_percent(verdict.visible_drop or 0, 1)} cannot be told from noise "
        f"(tolerance {format_percent(tolerance, 1)}, {known}); {remedy}",
    )


def runs_needed(reference: Reference, tolerance: float, processes: int) -> int | None:
    """The fewest baseline runs of the same spread with which the gate is the tolerance; None where 20 do not do."""
    limit = -math.log1p(-tolerance)
    for k in RUNS_CONSIDERED:
        imagined = replace(reference, runs=k, degrees=k + PRIOR_DEGREES - 1)
        if imagined.bound(REGRESSED_LEVEL, tolerance, processes) <= limit * (1 + 1e-12):
            return k
    return None


def _relative(run: Run) -> float | None:
    if run.relative is not None:
        return run.relative
    return run.gbps / run.probe_gbps if run.probe_gbps else None


def _logs(runs: Sequence[Run], figure: Figure) -> list[float]:
    values = [_relative(run) if figure == "relative" else run.gbps for run in runs]
    return [math.log(value) for value in values if value is not None]


def _median_of(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def _as_fraction(log_drop: float) -> float:
    return -math.expm1(-log_drop)


def _drop_sentence(verdict: Verdict) -> str:
    drop = verdict.drop or 0.0
    side = "below" if drop >= 0 else "above"
    return f"{format_percent(abs(drop), 1)} {side} the baseline, {format_percent(verdict.allowed_drop or 0, 1)} allowed"


def _floor_text(name: str, value: float) -> str:
    shares: Mapping[str, Callable[[float], str]] = {
        "min_utilization": lambda v: f"{format_percent(v, 1)} of peak",
        "min_relative": lambda v: f"{format_percent(v, 1)} of the probe",
    }
    return shares[name](value) if name in shares else f"{digits(value)} GB/s"
