"""`make demo`: for real, and by a scripted device on machines of every temper."""

import json
import os
import subprocess
import sys

import pytest
from children import SUPPORT
from documented import ROOT
from repositories import HERE, SMALL_MACHINE, run

# A device on which each launch takes 3 ms. What a phase of the demo meets there stands in WORLD, by the phase's name.
SITE = """
import json
import os
from pathlib import Path

import numpy as np

import pytest_bandwidth.devices.open as opening
from pytest_bandwidth.domain.device import Conditions
from scripted import ScriptedDevice

launches = []

def meets():
    slowed = Path("test_kernels.py").is_file() and "left over" in Path("test_kernels.py").read_text()
    phase = "slowed" if slowed else "unchanged" if Path("baseline.yaml").is_file() else "baseline"
    return json.loads(os.environ["WORLD"]).get(phase, {})

def kernel_seconds(n):
    launched = len(launches) or 1  # of a NumPy function, none
    launches.clear()
    return 3e-3 * meets().get("times", launched)

class Launches(ScriptedDevice):
    def random(self, shape, dtype):
        return np.empty(shape, dtype)

    def kernel(self, source):
        return lambda *args: launches.append(source.name)

    def conditions(self):
        busy = meets().get("busy", 0.0)
        return Conditions(others=(f"make (7): {busy:.2f} processors",) if busy else (), others_processors=busy)

opening.open_device = lambda name: Launches(kernel_seconds, lambda n: 3e-3)

"""
# Loaded last, for it takes `open_device` as it finds it. Who is busy in these worlds, or beside these tests, stays it.
SOON = """
import pytest_bandwidth.measuring.measurer

pytest_bandwidth.measuring.measurer.QUIET_WAIT_SECONDS = 0.1
"""
BUSY = {"busy": 2.0}
TIMES_ONE = {"times": 1}


@pytest.fixture
def demo(tmp_path):
    """Run the demo in a world; returns its exit status and what it said."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE + SOON)

    def told(**world):
        environment = {
            **os.environ,
            "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{SUPPORT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p bandwidth",
            "TMPDIR": str(tmp_path),
            "WORLD": json.dumps(world),
        }
        command = [sys.executable, str(ROOT / "benchmarks" / "demo.py"), str(tmp_path / "results")]
        done = subprocess.run(
            command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        return done.returncode, done.stdout

    return told


@pytest.mark.slow
def test_on_a_quiet_machine_the_slowed_kernel_is_found(demo, tmp_path):
    status, said = demo()
    assert status == 0, said
    told = [line.strip() for line in said.splitlines()]
    steps = ["1. This machine:", "2. A baseline of 3 runs, each in a new process:", "3. The same kernels again:"]
    steps += ["4. Somebody slows one of them and does not notice:"]
    assert [line for line in told if line[:2] in ("1.", "2.", "3.", "4.")] == steps
    assert "4 of 4 kernels have a baseline now." in told
    assert "4 of 4 kernels are as fast as in the baseline, none fails." in told
    assert "+        triad()  # left over from debugging" in said
    (found,) = [line for line in told if line.startswith("Found, as it should be: test_triad takes twice as long")]
    assert told.index(found) > told.index(steps[-1])
    reports = {f"{name}.{kind}" for name in ("baseline", "unchanged", "slowed") for kind in ("html", "json")}
    assert {file.name for file in (tmp_path / "results").glob("*.*")} == {
        *reports,
        "baseline.runs.jsonl",
        "baseline.yaml",
        "pytest.ini",
        "test_kernels.py",
    }


@pytest.mark.slow
@pytest.mark.parametrize("phase", ["baseline", "unchanged", "slowed"])
def test_what_other_processes_disturb_is_explained_and_no_failure(demo, phase):
    status, said = demo(**{phase: BUSY})
    assert status == 0, said
    undecided = {
        "baseline": "test_copy, test_softmax, test_sum, test_triad",
        "unchanged": "",
        "slowed": "test_copy, test_softmax, test_triad",
    }
    explained = "others kept 2.0 processors busy meanwhile (make (7): 2.00 processors)" in said
    assert explained is (undecided[phase] != "")
    assert ("waits up to 0 s for a quiet moment: " in said) is (phase == "baseline")
    told = [line.strip() for line in said.splitlines() if "UNDECIDED for the reason above" in line]
    assert told == ([f"UNDECIDED for the reason above: {undecided[phase]}."] if undecided[phase] else [])
    assert "On a quieter machine `make demo` shows more." in said
    assert ("3. The same kernels again" in said) is (phase != "baseline")
    assert ("Found, as it should be" in said) is (phase == "unchanged")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("world", "why"),
    [
        ({"slowed": TIMES_ONE}, "test_triad takes twice as long and was not found"),
        ({"slowed": {"times": "long"}}, "test_copy, test_softmax, test_sum, test_triad was not measured, see above"),
    ],
    ids=["not found", "no measurement"],
)
def test_where_the_plugin_fails_the_demo_does(demo, world, why):
    status, said = demo(**world)
    assert status == 1
    assert f"The demo failed: {why}" in said


@pytest.mark.slow
def test_make_demo_ends_well_on_this_machine(tmp_path):
    """Quiet or busy: what cannot be judged is explained."""
    pytest.importorskip("numba", reason="Numba is not installed: pip install 'pytest-bandwidth[cpu]'")
    small = SMALL_MACHINE / "sitecustomize.py"
    (tmp_path / "sitecustomize.py").write_text(f"import runpy\nrunpy.run_path({str(small)!r})\n{SOON}")
    result = run("make", *HERE, f"RESULTS={tmp_path}/results", "demo", cwd=ROOT, PYTHONPATH=str(tmp_path))
    assert result.returncode == 0, result.stdout + result.stderr
    found = "Found, as it should be" in result.stdout
    assert found or "UNDECIDED for the reason above: " in result.stdout
    assert (tmp_path / "results" / ("slowed.html" if found else "baseline.html")).is_file()
