"""Measure what the plugin costs the start of a project that does not use it.

    python benchmarks/overhead.py [--pairs 20]

It runs `pytest --collect-only` on a project without bandwidth tests, alternately with the plugin and with
`-p no:bandwidth`, and names each heavy module that was loaded as well.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

HEAVY = ("numpy", "yaml", "jinja2", "numba", "cupy", "pynvml")
_CHECK = f"""
import sys
def pytest_sessionfinish():
    print("HEAVY", [name for name in {HEAVY!r} if name in sys.modules])
"""


def start_up_seconds(folder: Path, *, with_plugin: bool) -> tuple[float, str]:
    """Return the wall seconds of one collection, and the line that names heavy modules."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider"]
    # Other installed plugins would add noise and imports. The plugin is named by its module: for the name of an entry
    # point pytest would search all packages first.
    environment = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # pytest would compile the plugin at every start
    command += ["-p", "pytest_bandwidth.plugin" if with_plugin else "no:pytest_bandwidth.plugin"]
    begun = time.perf_counter()
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
    seconds = time.perf_counter() - begun
    return seconds, next(line for line in done.stdout.splitlines() if line.startswith("HEAVY"))


def start_up(pairs: int) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "conftest.py").write_text(_CHECK)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "test_plain.py").write_text("".join(f"def test_{i}(): pass\n" for i in range(20)))
        start_up_seconds(folder, with_plugin=True)  # byte code is written once
        start_up_seconds(folder, with_plugin=False)
        on, off, differences, heavy = [], [], [], "HEAVY []"
        for i in range(pairs):
            seconds = {}
            for with_plugin in (True, False) if i % 2 == 0 else (False, True):  # each goes first in every other pair
                seconds[with_plugin], loaded = start_up_seconds(folder, with_plugin=with_plugin)
                heavy = loaded if with_plugin else heavy
            on.append(seconds[True])
            off.append(seconds[False])
            differences.append(seconds[True] - seconds[False])
    print(
        f"start-up, median of {pairs} alternated: with {median(on) * 1e3:.1f} ms, without {median(off) * 1e3:.1f} ms, "
        f"difference {median(differences) * 1e3:+.1f} ms (limit 10 ms); heavy modules loaded: {heavy[6:]}"
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=20)
    start_up(parser.parse_args().pairs)
