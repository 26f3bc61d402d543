"""`make demo`, by a scripted device on a quiet machine and on a busy one."""

import json
import os
import runpy
import sys

import pytest
from children import SUPPORT
from documented import ROOT
from repositories import HERE, run

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
# Loaded last, for it takes `open_device` as it finds it. Who is busy in these worlds stays it.
SOON = """
import pytest_bandwidth.measuring.measurer

pytest_bandwidth.measuring.measurer.QUIET_WAIT_SECONDS = 0.1
"""

pytestmark = pytest.mark.slow


@pytest.fixture
def demo(tmp_path):
    """Run the demo by `make` in a world; returns its exit status and what it said."""
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(SITE + SOON)

    def told(**world):
        environment = {
            "PYTHONPATH": f"{tmp_path / 'site'}{os.pathsep}{SUPPORT}",
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTEST_ADDOPTS": "-p bandwidth",
            "TMPDIR": str(tmp_path),
            "WORLD": json.dumps(world),
        }
        done = run("make", *HERE, f"RESULTS={tmp_path}/results", "demo", cwd=ROOT, **environment)
        return done.returncode, done.stdout + done.stderr

    return told


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
    pages = {f"{name}.html" for name in ("baseline", "unchanged", "slowed")}
    assert {file.name for file in (tmp_path / "results").glob("*.html")} == pages


def test_what_other_processes_disturb_is_explained_and_no_failure(demo):
    status, said = demo(slowed={"busy": 2.0})
    assert status == 0, said
    assert "other processes kept 2.0 processors busy meanwhile (make (7): 2.00 processors)" in said
    assert "UNDECIDED for the reason above: test_copy, test_softmax, test_triad." in said
    assert "On a quieter machine `make demo` shows more." in said
    assert "Found, as it should be" not in said


def test_where_the_plugin_fails_the_demo_does(demo):
    status, said = demo(slowed={"times": 1})
    assert status == 2
    assert "The demo failed: test_triad takes twice as long and was not found" in said


def test_its_kernels_can_be_measured_on_this_machine(tmp_path):
    pytest.importorskip("numba", reason="Numba is not installed: pip install 'pytest-bandwidth[cpu]'")
    tests = runpy.run_path(str(ROOT / "benchmarks" / "demo.py"))["TESTS"]
    (tmp_path / "test_kernels.py").write_text(tests.replace("1 << 25", "1 << 16"))
    quick = ("-q", "-p", "no:cacheprovider", "--bandwidth-device=cpu", "--bandwidth-max-time=0.05")
    done = run(sys.executable, "-m", "pytest", *quick, cwd=tmp_path)
    assert "4 passed" in done.stdout, done.stdout + done.stderr
