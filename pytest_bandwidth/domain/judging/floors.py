"""Hold a test to its marker's absolute limits, whatever a baseline knows."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pytest_bandwidth.domain.measured.metrics import Metrics, middle_of
from pytest_bandwidth.domain.units import digits, format_percent
from pytest_bandwidth.domain.verdict import Status, Verdict

# Each floor, and the figure that it is a limit of.
_METRIC_OF_FLOOR = {"min_gbps": "gbps", "min_utilization": "utilization", "min_relative": "relative"}


@dataclass(frozen=True, slots=True)
class Floors:
    """Hold the absolute limits from the marker; each a lower bound, None where not asked for."""

    min_gbps: float | None = None
    min_utilization: float | None = None
    min_relative: float | None = None

    def missed(self, figures: Metrics) -> tuple[str, float, float] | None:
        """Return name, limit and observation of the first floor that the figures miss."""
        for name, limit in self._asked():
            value = _figure(name, figures)
            if value is not None and value < limit:
                return name, limit, value
        return None

    def unseen(self, figures: Metrics) -> str | None:
        """Return the first floor whose figure is not there, or tells nothing: it can neither hold nor be missed."""
        return next((name for name, _ in self._asked() if not _is_told(name, figures)), None)

    def _asked(self) -> list[tuple[str, float]]:
        limits = {name: getattr(self, name) for name in _METRIC_OF_FLOOR}
        return [(name, limit) for name, limit in limits.items() if limit is not None]

    def __bool__(self) -> bool:
        return any(getattr(self, name) is not None for name in _METRIC_OF_FLOOR)


def look_at_floors(figures: Metrics, floors: Floors) -> Verdict | None:
    """Return SUSPECT where a floor is missed, None where all hold."""
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


def is_by_floor(verdict: Verdict) -> bool:
    """Return whether a floor decided; that rests on all fresh processes, however fast the device was beside them."""
    return floor_of(verdict.code) is not None


def floor_of(code: str) -> str | None:
    """Return the floor that a verdict's code names: ``floor:min_gbps`` → min_gbps; None where none decided."""
    name = code.removeprefix("floor:")
    return None if name == code else name


def confirmations_text(verdict: Verdict) -> str:
    """Return a floor's figure in each fresh process, with its unit: 17.2 %, 18.1 % of the probe."""
    return _floor_text(_name(verdict), *verdict.confirmations)


def confirm_floor(first: Verdict, fresh: Sequence[Metrics], floors: Floors) -> Verdict:
    """Return REGRESSED where the fresh processes' medians miss a floor, too (with no process: where this one did)."""
    if not fresh:
        return replace(first, status=Status.REGRESSED)
    lacking = [name for f in fresh if (name := floors.unseen(f)) is not None]
    if lacking:
        why = f"nothing to hold {lacking[0]} to in {len(lacking)} of {len(fresh)} fresh processes"
        reason = f"{first.reason}; not confirmed: {why}"
        return replace(first, status=Status.UNCONFIRMED, code="no-fresh-process", reason=reason)
    again = look_at_floors(middle_of(fresh), floors)
    if again is not None:
        seen = tuple(value for f in fresh if (value := _figure(_name(again), f)) is not None)
        reason = f"{first.reason}, here; in the median of {len(fresh)} fresh processes {again.reason}"
        return replace(again, status=Status.REGRESSED, reason=reason, confirmations=seen)
    return replace(first, status=Status.UNCONFIRMED, reason=f"{first.reason}; held in {len(fresh)} fresh processes")


def _figure(name: str, figures: Metrics) -> float | None:
    value: float | None = getattr(figures, _METRIC_OF_FLOOR[name])
    return value


def _is_told(name: str, figures: Metrics) -> bool:
    return figures.share_told if name == "min_relative" else _figure(name, figures) is not None


def _name(verdict: Verdict) -> str:
    return floor_of(verdict.code) or ""


def _floor_text(name: str, *values: float) -> str:
    shares = {"min_utilization": "of peak", "min_relative": "of the probe"}
    if name in shares:
        return f"{', '.join(format_percent(value, 1) for value in values)} {shares[name]}"
    return f"{', '.join(map(digits, values))} GB/s"
