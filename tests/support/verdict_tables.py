"""Run tables of verdicts: projects whose sample times are scripted, one part in a million beside a limit."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

from children import SUPPORT

STEP = 1e-6
TOLERANCE = 0.05
BYTES = 100_000_000
# The table of docs/method.md: what fails whatever is asked, and what only --bandwidth-strict fails.
FAILS = {"REGRESSED", "MISMATCH"}
FAILS_STRICTLY = FAILS | {"UNDECIDED"}


def just(above: bool, limit: float) -> float:
    return limit * (1 + STEP if above else 1 - STEP)


def rows_of_run(
    folder: Path, site: Path, *args: str, **variables: str
) -> tuple[int, dict[str, tuple[str, dict[str, Any]]]]:
    """Return pytest's exit status, and what became of each measurement of `test_all.py`, by its label or its test.

    site: holds the sitecustomize.py that each Python process of the run loads.
    """
    command = [sys.executable, "-m", "pytest", "-p", "bandwidth", "-rA", "--bandwidth-device=cpu"]
    command += ["--bandwidth-max-time=0.05", f"--bandwidth-tolerance={TOLERANCE}", "--bandwidth-json=run.json", *args]
    # Dozens of processes a run: none loads plugins that take no part.
    # With a lock of their own for the scripted device, so that other tests may measure theirs meanwhile.
    environment = {
        **os.environ,
        "PYTHONPATH": f"{site}{os.pathsep}{SUPPORT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(site.parent),
        **variables,
    }
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert (folder / "run.json").is_file(), done.stdout + done.stderr
    words = {name: word for word, name in re.findall(r"^(PASSED|FAILED) test_all.py::test_(\w+)", done.stdout, re.M)}
    found = {}
    for row in json.loads((folder / "run.json").read_text())["results"]:
        test = row["nodeid"].rpartition("::test_")[2]
        found[row["label"] or test] = words[test], row
    return done.returncode, found
