"""Hold the evidence on one measurement when it is judged; resolvers add to it until it suffices for a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from pytest_bandwidth.domain.baseline import Baseline, Entry, Metric
from pytest_bandwidth.domain.code.identity import identity_of_plain
from pytest_bandwidth.domain.code.stored_kernel import shape_of
from pytest_bandwidth.domain.measured.measurement import Measurement
from pytest_bandwidth.domain.measured.metrics import Metrics, choose_metric, metrics_of_measurement, middle_of
from pytest_bandwidth.domain.measured.roofline import regime_of
from pytest_bandwidth.domain.verdict import Rule
from pytest_bandwidth.judging.limits import Limits, tolerance_of
from pytest_bandwidth.judging.pairs import Pair, figure_of_pairs
from pytest_bandwidth.judging.stored import Reference, reference_of

# Fields of an entry that hold for its test on any device.
_OF_ANY_DEVICE = ("key", "tolerance", "bytes_read", "bytes_written", "xfail", "note", "line")


def setup_of(measurement: Measurement) -> Entry:
    """Return a measurement's bytes, method, settings and counts as an entry."""
    taken: dict[str, Any] = {name: getattr(measurement.traffic, name) for name in ("bytes_read", "bytes_written")}
    return Entry(
        "", **taken, method=measurement.method, settings=measurement.device.settings, counts=measurement.counts
    )


class Ask(Enum):
    """Name the evidence that is needed to decide a measurement."""

    OLD_CODE = "old code next to the new"
    PROCESSES = "the same code in new processes"


@dataclass(frozen=True, slots=True)
class OldCodeComparison:
    """Hold the comparisons of new code with old code so far.

    rule: where both ran: in one process (`Rule.OLD_KERNEL`), or in pairs of processes (`Rule.PAIRS`).
    drops: ln(new seconds ÷ old seconds) of each; new, old: the figure of each. other: the old code's name in messages.
    ended: whether no more can follow. alike: whether both had the same memory and addresses each time; alternate:
    whether both sampled alternately. uneven: pairs that do not count, since the machine changed between their
    processes. lost_share: whether only the old code shows a credible share of its probe. floor: the time of both that
    is not the work's, in seconds and as a share of their time. Drops leave it out; the figures include it.
    """

    rule: str
    figure: Metric
    drops: tuple[float, ...]
    new: tuple[float, ...]
    old: tuple[float, ...]
    other: str
    ended: bool = False
    alike: bool = True
    alternate: bool = True
    uneven: int = 0
    lost_share: bool = False
    floor: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True, slots=True)
class Evidence:
    """Hold the evidence on one measurement.

    figures: of this process; None where nothing was timed. tolerance: the smallest loss to catch.
    stored: the baseline's figure; None where it has no figure for this device. revision: the one to compare with
    instead of a baseline's figures. is_same_code: whether code, launch and inputs are the entry's. compared: with old
    code. old_code_tried: whether old code can give no further evidence; why_not: why it gave none. fresh: the figures
    of new processes of the same code; fresh_ended: why there can be no more of them.
    """

    measurement: Measurement
    figures: Metrics | None
    entry: Entry | None
    tolerance: float
    stored: Reference | None = None
    baseline: Baseline | None = None
    revision: str | None = None
    is_same_code: bool = False
    compared: OldCodeComparison | None = None
    old_code_tried: bool = False
    why_not: tuple[str, ...] = ()
    fresh: tuple[Metrics, ...] = ()
    fresh_ended: str | None = None

    @property
    def observed(self) -> float | None:
        """Return this process's value of the stored figure; None without a stored figure, or without a timing."""
        return None if self.stored is None or self.figures is None else self.figures.of(self.stored.figure)

    def without(self, ask: Ask, why: str | None = None) -> Evidence:
        """Return the evidence, with a note that the requested evidence is not available."""
        whys = (*self.why_not, why) if why else self.why_not
        if ask is Ask.OLD_CODE:
            compared = None if self.compared is None else replace(self.compared, ended=True)
            return replace(self, old_code_tried=True, compared=compared, why_not=whys)
        return replace(self, fresh_ended=why or "no new process could run")


def first_evidence(
    measurements: Mapping[str, Measurement], baseline: Baseline | None, limits: Limits
) -> dict[str, Evidence]:
    """Return the evidence of one run and its baseline, by key."""
    found, elsewhere = {}, baseline is not None and baseline.code_of is not None
    for key, measurement in measurements.items():
        device, entry = measurement.device, None if baseline is None else baseline.entries.get(key)
        of_marker, exact = limits.marker.tolerance, device.counts_only
        tolerance = tolerance_of(of_marker, entry, baseline, limits.tolerance, exact=exact)
        figures = metrics_of_measurement(measurement) if measurement.gbps is not None else None
        stored = None
        if entry is not None and figures is not None and not elsewhere:
            asked = limits.marker.judged_on or entry.judged_on
            regime = None if asked else regime_of(measurement)
            figure = choose_metric(asked, entry, figures, None if regime is None else regime.regime)
            stored = reference_of(entry, figure, device.on_host)
        same = entry is not None and is_same_code(measurement, entry, elsewhere=elsewhere)
        found[key] = Evidence(measurement, figures, entry, tolerance, stored, baseline, is_same_code=same)
    return found


def is_same_code(measurement: Measurement, entry: Entry, *, elsewhere: bool = False) -> bool:
    """Return whether the measurement certainly ran the same code as the entry's newest runs.

    A timed kernel is identified by its machine code, a counted one by the PTX that is executed.
    elsewhere: whether the entry is another device's, whose machine code always differs.
    """
    by = "ptx" if measurement.device.counts_only or elsewhere else "sass"
    return measurement.code.is_same(identity_of_plain(entry.code), by=by)


def comparison_of_pairs(
    pairs: list[Pair], asked: Metric | None, regime: str | None, other: str, *, ended: bool
) -> OldCodeComparison:
    """Return the comparison by pairs of processes, one pair at least. asked, regime: as in `figure_of_pairs`."""
    figure = figure_of_pairs(pairs, asked, regime)
    even = [pair for pair in pairs if pair.even]
    lost_share = False
    if figure == "relative" and even and middle_of([pair.base for pair in even]).has_credible_share:
        lost_share = not middle_of([pair.head for pair in even]).has_credible_share
    drops = [(drop, pair) for pair in even if (drop := pair.drop(figure)) is not None]
    return OldCodeComparison(
        Rule.PAIRS,
        figure,
        tuple(drop for drop, _ in drops),
        tuple(value for _, pair in drops if (value := pair.head.of(figure)) is not None),
        tuple(value for _, pair in drops if (value := pair.base.of(figure)) is not None),
        other,
        ended,
        all(pair.alike for pair in even),
        all(pair.alternate is not None for pair in even),
        len(pairs) - len(even),
        lost_share,
        max(((pair.floor_seconds, pair.floor_seconds / min(pair.seconds)) for pair in even), default=(0.0, 0.0)),
    )


def code_alone(baseline: Baseline) -> Baseline:
    """Return a baseline for use on another device: code, launch and tolerances, without machine code and figures."""
    entries = {}
    for key, entry in baseline.entries.items():
        if entry.code:
            shape = shape_of(entry.resources)
            kept = {name: getattr(entry, name) for name in _OF_ANY_DEVICE}
            code = {name: value for name, value in entry.code.items() if name != "sass"}
            entries[key] = Entry(**kept, code=code, resources={} if shape is None else shape.recorded())
    name = "another device" if baseline.device is None else baseline.device.name
    return replace(baseline, device=None, entries=entries, code_of=name)
