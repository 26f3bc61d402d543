"""Hold a test to its marker's absolute limits, whatever a baseline knows."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_bandwidth.domain.measured.metrics import Metrics

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
            value = figure_of(name, figures)
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


def floor_of(rule: str) -> str | None:
    """Return the floor that a decision's rule names: ``floor:min_gbps`` → min_gbps; None where none decided."""
    name = rule.removeprefix("floor:")
    return None if name == rule else name


def figure_of(name: str, figures: Metrics) -> float | None:
    """Return the figure that a floor limits; None where it is not known."""
    value: float | None = getattr(figures, _METRIC_OF_FLOOR[name])
    return value


def _is_told(name: str, figures: Metrics) -> bool:
    return figures.share_told if name == "min_relative" else figure_of(name, figures) is not None
