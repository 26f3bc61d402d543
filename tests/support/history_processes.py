"""Start real processes that append to a history, and end one at a chosen moment."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent

_APPEND = """
import os, signal, sys
from pathlib import Path
sys.path[:0] = [{support!r}]
from pytest_bandwidth.domain.address import Address, is_address
from run_documents import outcome, run_of
from pytest_bandwidth.features.history.store import append, files, writing
writing.RUNS_BEFORE_MERGE = {runs_before_merge}

def die(*_args, **_kwargs):
    os.kill(os.getpid(), signal.SIGKILL)

{fault}
place = Address({folder!r}) if is_address({folder!r}) else Path({folder!r})
for i in range({runs}):
    rows = [outcome("test_a.py::test_one", 700.0 + i), outcome("test_a.py::test_two", 500.0)]
    run = run_of(*rows, run_id=f"{name}-{{i:04d}}", environment={{"started_at": f"2026-01-01T00:00:{{i % 60:02d}}Z"}})
    append(place, run, rows)
    print(run["run_id"], flush=True)
"""
# What is done to the process before it appends.
NO_FAULT = ""
HALF_WRITTEN = """
from pytest_bandwidth.features.history.store import writing
def half(connection, query, file, values=(), **_):
    file.write_bytes(b"PAR1 and then")
    die()
writing.copy_to = half
"""
NOT_YET_NAMED = "files.os.replace = die"
MERGED_AND_NOT_REMOVED = """
add = writing.add
def add_and_die(target, write):
    add(target, write)
    if target.name.startswith("merged-"):
        die()
writing.add = add_and_die
"""
MERGED_AND_NOT_REMOVED_FROM_BUCKET = """
from pytest_bandwidth.features.history.store.bucket import Bucket
Bucket.remove = die
"""


def start(
    folder: Path | str,
    name: str,
    runs: int,
    *,
    runs_before_merge: int = 200,
    fault: str = NO_FAULT,
    cache: Path | None = None,
) -> subprocess.Popen:
    """Start a process that appends `runs` runs and prints the id of each when it is in the history.

    folder: or an address. cache: the folder of its user's copies, as on a machine of its own.
    """
    script = _APPEND.format(
        support=str(HERE),
        runs_before_merge=runs_before_merge,
        fault=fault,
        runs=runs,
        name=name,
        folder=str(folder),
    )
    environment = os.environ if cache is None else {**os.environ, "XDG_CACHE_HOME": str(cache)}
    return subprocess.Popen(
        [sys.executable, "-c", script], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
