"""Find where the level of a figure changes from run to run: penalised least squares by ruptures, on cleaned logarithms.

ruptures' `KernelCPD` with the linear kernel finds the segmentation of least squared error plus a penalty a change,
exactly (Killick et al. 2012, PELT; Arlot et al. 2019). https://centre-borelli.github.io/ruptures-docs
A second process imports ruptures and SciPy while this one reads a history. A thread would not do, since
the import holds Python's lock for most of its time.
"""

from __future__ import annotations

import contextlib
import importlib.util
import json
import math
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.evidence.processes.start_and_end import child_environment, python_command
from pytest_bandwidth.features.history import MISSING

# A test's values, and whether they are counts.
Asked = tuple[Sequence[float], bool]
Search = Callable[[Sequence[Asked]], list[list[int]]]

# A level has at least so many runs: one strange run is no change.
RUNS_OF_LEVEL = 3
# A change costs this, times ln(runs), in units of the runs' variance. benchmarks/history.py measures its errors.
PENALTY = 5.0
# Runs closer together than this share of their value count as equal: figures are not more precise.
LEAST_SPREAD = 1e-3
# A run is clipped at so many standard deviations from its neighbours' median, so that an outlier makes no level.
OUTLIER = 3.0


def needs_ruptures(values: Sequence[float], *, exact: bool) -> bool:
    """Return whether `change_points` has to search: counts need no search, and a few runs have one level."""
    return not exact and len(values) >= 2 * RUNS_OF_LEVEL


def change_points(values: Sequence[float], *, exact: bool = False) -> list[int]:
    """Find the places, without 0, at which a new level of the positive values begins.

    exact: the values are counts, so every new value is a change. Raises UsageError where ruptures is missing.
    """
    if exact:
        return [i for i in range(1, len(values)) if values[i] != values[i - 1]]
    if not needs_ruptures(values, exact=exact):
        return []
    if importlib.util.find_spec("ruptures") is None:
        raise UsageError(MISSING)
    import numpy as np
    from ruptures import KernelCPD

    signal = np.log(np.asarray(values, dtype=float))
    # Levels hardly change the differences of neighbours, and outliers hardly change their MAD.
    spread = float(np.median(np.abs(np.diff(signal)))) / 0.6745 / math.sqrt(2)
    spread = max(spread, LEAST_SPREAD)
    padded = np.pad(signal, 2, mode="reflect")
    local = np.median(np.lib.stride_tricks.sliding_window_view(padded, 5), axis=1)
    cleaned = np.clip(signal, local - OUTLIER * spread, local + OUTLIER * spread) / spread
    search = KernelCPD(kernel="linear", min_size=RUNS_OF_LEVEL).fit(cleaned.reshape(-1, 1))
    return [int(place) for place in search.predict(pen=PENALTY * math.log(len(values)))[:-1]]


@contextlib.contextmanager
def start_search() -> Iterator[Search]:
    """Start a process that finds change points; yield a call that asks it about several tests at once.

    The answers are those of `change_points`; where ruptures is loaded here already, no process is started.
    """
    if "ruptures" in sys.modules:
        yield _search
        return
    command = python_command("pytest_bandwidth.features.history.change_points")
    pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
    with subprocess.Popen(
        command, env=child_environment(), stdin=pipe, stdout=pipe, stderr=nothing, text=True
    ) as process:

        def search(asked: Sequence[Asked]) -> list[list[int]]:
            if not any(needs_ruptures(values, exact=exact) for values, exact in asked):
                return _search(asked)
            text = process.communicate(json.dumps(asked))[0]
            # After any error there, search here, or raise the error here.
            return json.loads(text) if process.returncode == 0 else _search(asked)

        try:
            yield search
        finally:
            process.kill()


def _search(asked: Sequence[Asked]) -> list[list[int]]:
    return [change_points(values, exact=exact) for values, exact in asked]


def main() -> None:
    """Read values from standard input, print their change points, both as JSON: the child of `start_search`."""
    # Import it now, while the values are still being read. If it is missing, the search raises.
    with contextlib.suppress(ImportError):
        importlib.import_module("ruptures")
    json.dump(_search(json.load(sys.stdin)), sys.stdout)
