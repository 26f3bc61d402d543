"""--bandwidth-against where code is the revision's: nothing is measured for it there, and nothing hidden."""

import json

from repositories import committed

KERN = "from virtual_time import sleep\ndef pause():\n    sleep(0.002)\n"
TESTS = """
import numpy as np
import pytest
import kern

def measured(bandwidth, **more):
    a, b = bandwidth.random(1 << 18, "float32"), bandwidth.empty(1 << 18, "float32")
    def kernel():
        np.copyto(b, a)
        kern.pause()
    return bandwidth(kernel, reads=a, writes=b, code="the same", **more)

def test_same(bandwidth):
    assert measured(bandwidth, label="one").value is None
    measured(bandwidth, label="two")

@pytest.mark.bandwidth(min_gbps=1e-6)
def test_floor(bandwidth):
    assert measured(bandwidth).gbps > 0

@pytest.mark.bandwidth(judged_on="gbps", tolerance="50%")
def test_uses_its_figures(bandwidth):
    assert measured(bandwidth).gbps > 0
"""
SITE = """
import os
import pytest_bandwidth.evidence.processes.child as child
real = child.Child.__init__
def noted(self, command, folder, request, *more, **named):
    with open(os.environ["STARTED"], "a") as file:
        file.write(f"{'tells' if request.tells_code else 'measures'}\\n")
    real(self, command, folder, request, *more, **named)
child.Child.__init__ = noted
"""


def test_the_same_code_takes_no_measurement_but_for_floors_and_for_tests_that_use_figures(slept, monkeypatch):
    """Fresh processes note why they were started."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p bandwidth -p no:unraisableexception")
    monkeypatch.setenv("STARTED", str(slept.path / "started"))
    slept.file("pytest.ini", "[pytest]\npythonpath = .\nbandwidth_busy_processors = 1000\n")
    slept.file("conftest.py", SITE)
    slept.file("kern.py", KERN)
    slept.file("test_kernel.py", TESTS)
    committed(slept.path)
    result = slept.run("--bandwidth-against=HEAD", "--bandwidth-json=run.json", "--bandwidth-baseline=b.yaml")
    result.assert_outcomes(passed=3)
    result.stdout.re_match_lines([r"bandwidth: .*; baseline: HEAD \([0-9a-f]{10}\); b.yaml is not read"])
    rows = {row["key"].partition("::")[2]: row for row in json.loads((slept.path / "run.json").read_text())["results"]}
    assert {name: (row["status"], row["gbps"] is None) for name, row in rows.items()} == {
        "test_same @ one": ("OK", True),
        "test_same @ two": ("OK", True),
        "test_floor": ("OK", False),  # by its floor, which no other revision decides
        "test_uses_its_figures": ("OK", False),
    }
    assert {rows[f"test_same @ {label}"]["reason_code"] for label in ("one", "two")} == {"code-unchanged"}
    started = (slept.path / "started").read_text().split()
    assert started == ["tells", *["measures"] * (len(started) - 1)]
