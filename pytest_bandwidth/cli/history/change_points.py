"""Where the level of a figure changes from run to run: penalised least squares by ruptures, on cleaned logarithms.

ruptures' `KernelCPD` with the linear kernel finds the segmentation of least squared error plus a penalty a change,
exactly (Killick et al. 2012, PELT; Arlot et al. 2019). https://centre-borelli.github.io/ruptures-docs
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence

from pytest_bandwidth.domain.errors import UsageError

# A level is of so many runs at least: one strange run is no change.
RUNS_OF_LEVEL = 3
# A change costs this, times ln(runs), in units of the runs' variance. benchmarks/history.py shows what it lets through.
PENALTY = 5.0
# Runs closer together than this share of their value count as equal: figures are not known any better.
LEAST_SPREAD = 1e-3
# A run further from its neighbours' median than so many standard deviations is moved there, so that it stays one.
OUTLIER = 3.0


def needs_ruptures(values: Sequence[float], *, exact: bool) -> bool:
    """Whether `change_points` has to search: counts differ or do not, and a few runs have one level."""
    return not exact and len(values) >= 2 * RUNS_OF_LEVEL


def change_points(values: Sequence[float], *, exact: bool = False) -> list[int]:
    """Places, without 0, at which a new level of the positive values begins.

    exact: the values are counts, of which every other one is a change. Raises UsageError where ruptures is missing.
    """
    if exact:
        return [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    if not needs_ruptures(values, exact=exact):
        return []
    if importlib.util.find_spec("ruptures") is None:
        from pytest_bandwidth.storage.history import MISSING  # takes a process that has ruptures too long to import

        raise UsageError(MISSING)
    import numpy as np
    from ruptures import KernelCPD

    signal = np.log(np.asarray(values, dtype=float))
    # The differences of neighbours do not see the levels; their MAD does not see the outliers.
    spread = float(np.median(np.abs(np.diff(signal)))) / 0.6745 / math.sqrt(2)
    spread = max(spread, LEAST_SPREAD)
    padded = np.pad(signal, 2, mode="reflect")
    local = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    cleaned = np.clip(signal, local - OUTLIER * spread, local + OUTLIER * spread) / spread
    search = KernelCPD(kernel="linear", min_size=RUNS_OF_LEVEL).fit(cleaned.reshape(-1, 1))
    return [int(place) for place in search.predict(pen=PENALTY * math.log(len(values)))[:-1]]
