"""What `--bandwidth-against` can say of a test, each at its exact boundary, and once with `--bandwidth-strict`.

As in test_verdict_table.py sample times are scripted; all else is real: git's worktree, pytest's processes in pairs.
They follow each other, as on a GPU, since the scripted host has no memory for both; some are repeated in turn.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from dataclasses import dataclass

import pytest
from children import SUPPORT
from repositories import git

from pytest_bandwidth.domain.statistics import t_quantile

STEP = 1e-6
TOLERANCE = 0.05
PAIRS = 2
BYTES = 100_000_000
# docs/method.md: probes that differ by more between the two processes of a pair saw another machine.
EVEN_PROBES = math.exp(0.10)
# Noise asks for as many pairs again; where the drops of all four are ±this, the 99 % interval is as wide as the
# tolerance.
MOST_PAIRS = 2 * PAIRS
_HALF_WIDTH = t_quantile(0.99, MOST_PAIRS - 1) * math.sqrt(MOST_PAIRS / (MOST_PAIRS - 1)) / math.sqrt(MOST_PAIRS)
EDGE_OF_NOISE = -math.log1p(-TOLERANCE) / _HALF_WIDTH

SMALL_MEMORY, LARGE_MEMORY = 2 * BYTES, 100 * BYTES

# The n-th process that measures a test in its tree takes the n-th of that tree's figures.
SITE = f"""
import os, sys
from dataclasses import replace
from pathlib import Path

import pytest_bandwidth.devices.open as opening
from scripted import SCRIPTED_IDENTITY, ScriptedDevice

turns = {{}}

def turn(name, tree):
    if name not in turns:
        turns[name] = len(list(Path(__file__).parent.glob(f"{{name}}-{{tree}}-*")))
        Path(__file__).with_name(f"{{name}}-{{tree}}-{{turns[name]}}").touch()
    return turns[name]

def script(which):
    def seconds(n):
        name = os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0]
        kern = sys.modules["kern"]
        figures = kern.GBPS[name][which]
        return {BYTES} / figures[turn(name, kern.TREE) % len(figures)] / 1e9
    return seconds

identity = replace(SCRIPTED_IDENTITY, memory_bytes=int(os.environ["MEMORY_BYTES"]))
opening.open_device = lambda name: ScriptedDevice(
    script("kernel"), script("probe"), probe_bytes={BYTES}, identity=identity
)
"""


@dataclass(frozen=True)
class Case:
    """One test: GB/s of kernel and probe in the working tree's processes, in turn; the revision's are all 100."""

    status: str
    kernel: tuple[float, ...]
    probe: tuple[float, ...] = (100.0,)


def just(above: bool, limit: float) -> float:
    return limit * (1 + STEP if above else 1 - STEP)


def scattered(above: bool) -> tuple[float, float]:
    return 100 * math.exp(just(above, EDGE_OF_NOISE)), 100 * math.exp(-just(above, EDGE_OF_NOISE))


CASES = {
    "within": Case("WITHIN", (just(True, 95.0),)),
    "regressed": Case("REGRESSED", (just(False, 95.0),)),
    "not_yet_improved": Case("WITHIN", (just(False, 100 / 0.95),)),
    "improved": Case("IMPROVED", (just(True, 100 / 0.95),)),
    "noise_fits": Case("WITHIN", scattered(False)),
    "insufficient": Case("INSUFFICIENT", scattered(True)),
    "even": Case("WITHIN", (just(False, 100 * EVEN_PROBES),), (just(False, 100 * EVEN_PROBES),)),
    "uneven": Case("INVALID", (just(True, 100 * EVEN_PROBES),), (just(True, 100 * EVEN_PROBES),)),
}
FAILS = {"REGRESSED"}
FAILS_STRICTLY = FAILS | {"INSUFFICIENT", "INVALID"}
# Strict runs change what fails and no status: the first case of each status.
ONE_OF_EACH = tuple({case.status: name for name, case in reversed(CASES.items())}.values())
IN_TURN = ("within", "regressed")


def kernels(tree: str, figures: dict[str, dict[str, tuple[float, ...]]]) -> str:
    return f"TREE = {tree!r}\nGBPS = {figures!r}\n"


@pytest.fixture(scope="module")
def plainly(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("plain"))


@pytest.fixture(scope="module")
def strictly(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("strict"), "--bandwidth-strict", *nodes(ONE_OF_EACH))


@pytest.fixture(scope="module")
def in_turn(tmp_path_factory):
    return judged(tmp_path_factory.mktemp("in_turn"), *nodes(IN_TURN), memory_bytes=LARGE_MEMORY)


def nodes(names):
    return [f"test_all.py::test_{name}" for name in names]


def judged(folder, *args, memory_bytes=SMALL_MEMORY):
    """Return status, pytest's word and reason of each test in one run."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text(SITE)
    repo = folder / "repo"
    repo.mkdir()
    (repo / "pytest.ini").write_text("[pytest]\naddopts = -p no:unraisableexception\npythonpath = .\n")
    # id is no function whose code would be known, and the same in both trees.
    tests = (f"def test_{name}(bandwidth):\n    bandwidth(id, 'abc', reads={BYTES})\n" for name in CASES)
    (repo / "test_all.py").write_text("import kern\n" + "\n".join(tests))
    figures = {f"test_{name}": {"kernel": case.kernel, "probe": case.probe} for name, case in CASES.items()}
    hundreds = {name: {"kernel": (100.0,), "probe": (100.0,)} for name in figures}
    (repo / "kern.py").write_text(kernels("there", hundreds))
    git(repo, "init", "-q")
    git(repo, "add", "-A")
    git(repo, "-c", "user.name=n", "-c", "user.email=e@localhost", "commit", "-qm", "one")
    (repo / "kern.py").write_text(kernels("here", figures))
    command = [sys.executable, "-m", "pytest", "-p", "bandwidth", "-rA", "--bandwidth-device=cpu"]
    command += ["--bandwidth-max-time=0.05", f"--bandwidth-tolerance={TOLERANCE}", "--bandwidth-json=run.json"]
    command += ["--bandwidth-against=HEAD", f"--bandwidth-pairs={PAIRS}", *args]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{site}{os.pathsep}{SUPPORT}",
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "TMPDIR": str(folder),
        "MEMORY_BYTES": str(memory_bytes),
    }
    environment.pop("PYTEST_ADDOPTS", None)
    done = subprocess.run(command, cwd=repo, env=environment, capture_output=True, text=True, check=False)
    assert (repo / "run.json").is_file(), done.stdout + done.stderr
    rows = json.loads((repo / "run.json").read_text())["results"]
    words = {name: word for word, name in re.findall(r"^(PASSED|FAILED) test_all.py::(\w+)", done.stdout, re.M)}
    found = {row["nodeid"].rpartition("::")[2]: row for row in rows}
    return {name: (row["status"], words[name], row["reason"]) for name, row in found.items()}


@pytest.mark.parametrize("name", CASES)
def test_the_status_at_its_boundary(plainly, name):
    status, word, reason = plainly[f"test_{name}"]
    assert status == CASES[name].status, reason
    assert word == ("FAILED" if status in FAILS else "PASSED")


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_strict_fails_what_could_not_be_judged(strictly, name):
    status, word, reason = strictly[f"test_{name}"]
    assert status == CASES[name].status, reason
    assert word == ("FAILED" if status in FAILS_STRICTLY else "PASSED")


@pytest.mark.parametrize("name", IN_TURN)
def test_processes_in_turn_are_judged_alike(in_turn, plainly, name):
    status, word, reason = in_turn[f"test_{name}"]
    assert (status, word) == plainly[f"test_{name}"][:2]
    assert "in 2 pairs of fresh processes in turn (" in reason
