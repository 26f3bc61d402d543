"""Make up trends of a history and the page that shows them; start real processes that append to one, or die at it."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from children import HANGS_SECONDS, SUPPORT
from run_documents import outcome, run_of

from pytest_bandwidth.features.history.page import render_history
from pytest_bandwidth.features.history.place import Place
from pytest_bandwidth.features.history.reading import ask
from pytest_bandwidth.features.history.trend import Point, Trend, levels_of
from pytest_bandwidth.features.history.writing import append

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def point(number: int, **changes) -> Point:
    known = {
        "run_id": f"r{number}",
        "at": BEGIN + timedelta(hours=6 * number),
        "commit": f"c{number // 2}",
        "uncommitted": False,
        "serial": "GPU-1",
        "status": "OK",
        "judged_on": "relative",
        "gbps": 900.0 - 50 * (number >= 10),
        "relative": 0.9 - 0.05 * (number >= 10),
        "sectors": None,
    }
    return Point(**{**known, **changes})


def trend(count: int = 20, starts=(10,), test="tests/t.py::test_copy", device="Imaginary GPU", **changes) -> Trend:
    points = tuple(point(i, **changes) for i in range(count))
    known = Trend(test, "cuda", device, points, "relative")
    return replace(known, levels=levels_of(known.values, [s for s in starts if s < count]))


def page_of(trends: list[Trend]) -> str:
    return render_history(trends, lambda: trends)


def appended(place: Place, run_id: str, *tests: str) -> Place:
    """Append a run of these tests, of two where none is named; return its file."""
    rows = [outcome(f"test_a.py::{test}", 700.0) for test in tests or ("test_one", "test_two")]
    return append(place, run_of(*rows, run_id=run_id, environment={"started_at": "2026-01-01T00:00:00Z"}), rows)


ROWS_OF_RUN = 2
_APPEND = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{support!r}]
from pytest_bandwidth.domain.text import Address, is_address
from run_documents import outcome, run_of
from pytest_bandwidth.features.history import place as where, writing
writing.RUNS_BEFORE_MERGE = {runs_before_merge}

def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

{fault}
place = Address({folder!r}) if is_address({folder!r}) else Path({folder!r})
for i in range({runs}):
    rows = [outcome("test_a.py::test_one", 700.0 + i), outcome("test_a.py::test_two", 500.0)]
    run = run_of(*rows, run_id=f"{name}-{{i:04d}}", environment={{"started_at": f"2026-01-01T00:00:{{i % 60:02d}}Z"}})
    writing.append(place, run, rows)
    print(run["run_id"], flush=True)
"""
NOT_YET_NAMED = "where.os.replace = die"
MERGED_AND_NOT_REMOVED = """
add = writing.add
def add_and_die(target, write):
    add(target, write)
    if target.name.startswith("merged-"):
        die()
writing.add = add_and_die
"""


def start(
    folder: Path | str,
    name: str,
    runs: int,
    *,
    runs_before_merge: int = 200,
    fault: str = "",
    cache: Path | None = None,
) -> subprocess.Popen:
    """Start a process that appends `runs` runs and prints the id of each when it is in the history.

    folder: or an address. cache: the folder of its user's copies, as on a machine of its own.
    """
    told = {"support": str(SUPPORT), "folder": str(folder), "name": name, "runs": runs, "fault": fault}
    script = _APPEND.format(runs_before_merge=runs_before_merge, **told)
    environment = os.environ if cache is None else {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def finished(process: subprocess.Popen) -> list[str]:
    """Wait for the end of a process of `start`'s, which is a good one; return the ids that it printed."""
    out, err = process.communicate(timeout=HANGS_SECONDS)
    assert (err, process.returncode) == ("", 0)
    return out.split()


def runs_in(place: Place) -> list[str]:
    """Return ids of the runs of two rows, each as often as it has rows ÷ ROWS_OF_RUN; reads every value."""
    rows = ask(place, lambda history: history.rows("SELECT run_id, test, gbps FROM history"))
    return sorted(run_id for run_id, _, _ in rows)[::ROWS_OF_RUN]
