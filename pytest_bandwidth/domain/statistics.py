"""Summarise samples, and compute the quantiles that verdicts need.

Quantile, IQR noise and the precision of a median; Student's t from the regularised incomplete beta function, since the
standard library does not have it and this room uses no other.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import median

_TINY = 1e-300
_CONVERGED = 1e-15


def quantile(values: Sequence[float], q: float) -> float:
    """Return the quantile, interpolated as Hyndman and Fan's type 7. Raises ValueError on no values."""
    if not values:
        raise ValueError("a quantile needs at least one value")
    ordered = sorted(values)
    position = q * (len(ordered) - 1)
    low = math.floor(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (position - low)


def median_known(values: Iterable[float | None]) -> float | None:
    """Return the median of the known values; None without a known value."""
    known = [value for value in values if value is not None]
    return median(known) if known else None


def noise(values: Sequence[float]) -> float:
    """Return IQR ÷ median: the spread of samples inside one process."""
    return (quantile(values, 0.75) - quantile(values, 0.25)) / median(values)


def precision_of_median(values: Sequence[float]) -> float:
    """Return the standard error of the median as a share of it.

    For near-normal samples sd ≈ IQR ÷ 1.349 and the median's standard error is sd·√(π/2)/√n
    (Kendall and Stuart, The Advanced Theory of Statistics, vol. 1, §10.11). Infinite below 4 samples.
    """
    if len(values) < 4:
        return math.inf
    return noise(values) / 1.349 * math.sqrt(math.pi / 2 / len(values))


def upper_tail(t: float, degrees: float) -> float:
    """Return P(T > t) for t ≥ 0 and `degrees` of freedom: half the incomplete beta function."""
    a, b, x = degrees / 2.0, 0.5, degrees / (degrees + t * t)
    if x <= 0.0 or x >= 1.0:
        return 0.0 if x <= 0.0 else 0.5
    front = math.exp(math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b) + a * math.log(x) + b * math.log1p(-x))
    # The fraction converges fast on this side of the mean; the symmetry I_x(a,b) = 1 − I_{1−x}(b,a) gives the other.
    if x < (a + 1.0) / (a + b + 2.0):
        return 0.5 * front * _beta_fraction(a, b, x) / a
    return 0.5 * (1.0 - front * _beta_fraction(b, a, 1.0 - x) / b)


@lru_cache(maxsize=512)
def t_quantile(probability: float, degrees: float) -> float:
    """Return the t that T stays below with `probability` (0.5 < probability < 1), to about 12 digits.

    Raises ValueError outside that range or for degrees that are not positive.
    """
    if not 0.5 < probability < 1.0 or degrees <= 0:
        raise ValueError(f"t_quantile({probability}, {degrees}): expected 0.5 < probability < 1 and degrees > 0")
    target = 1.0 - probability
    low, high = 0.0, 1.0
    while upper_tail(high, degrees) > target:
        high *= 2.0
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if upper_tail(middle, degrees) > target else (low, middle)
    return 0.5 * (low + high)


def _beta_fraction(a: float, b: float, x: float) -> float:
    # Lentz's method for the continued fraction of the incomplete beta function (DLMF 8.17.22).
    c, d = 1.0, 1.0 - (a + b) * x / (a + 1.0)
    d = 1.0 / (d if abs(d) > _TINY else _TINY)
    result = d
    for m in range(1, 400):
        for numerator in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1.0 + numerator * d
            c = 1.0 + numerator / c
            d = 1.0 / (d if abs(d) > _TINY else _TINY)
            c = c if abs(c) > _TINY else _TINY
            result *= d * c
        if abs(d * c - 1.0) < _CONVERGED:
            break
    return result
