"""Runs that judge nothing say so; what is given in the ini file is named by its own name."""

import pytest
from user_project import LINK

pytestmark = pytest.mark.in_process

ONCE = """
def test_once(bandwidth):
    calls = []
    result = bandwidth(lambda: calls.append(1) or 7, reads=8)
    assert result.value == 7
    assert len(calls) == 1
"""
KERNEL = """
import numpy as np

SOURCE = 'extern "C" __global__ void fill(float* a) { a[threadIdx.x] = 2.0f; }'

def test_fill(bandwidth):
    a = bandwidth.empty(32, "float32")
    bandwidth.launch(bandwidth.kernel(SOURCE, "fill"), 1, 32, (a,), writes=a)
    assert (a == 2).all()
"""


def ini(project, *lines):
    path = project.path / "pytest.ini"
    path.write_text("\n".join([path.read_text(), *lines, ""]))
    return path


def test_a_disabled_run_says_what_becomes_of_the_bodies(project):
    project.file("test_once.py", ONCE)
    result = project.run_here("--bandwidth-disable")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["bandwidth: *; disabled: bodies run once, untimed; nothing is judged"])
    assert "baseline: none" not in result.stdout.str()
    project.file("test_once.py", KERNEL)
    result = project.pytester.runpytest_inprocess("--bandwidth-device=traffic", "--bandwidth-disable")
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["bandwidth: *; disabled: kernels are executed once, uncounted; nothing is judged"])


@pytest.mark.parametrize("name", ["disable", "skip"])
def test_strict_and_nothing_to_judge_exclude_each_other_but_for_a_strict_ini_file(project, name):
    project.file("test_once.py", ONCE)
    refused = project.run_here("--bandwidth-strict", f"--bandwidth-{name}")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines([f"ERROR: --bandwidth-strict and --bandwidth-{name} exclude each other, *"])
    path = ini(project, "bandwidth_strict = true")
    result = project.run_here(f"--bandwidth-{name}")
    assert result.ret == 0
    said = f"bandwidth: --bandwidth-{name}: nothing is judged, so bandwidth_strict in {path} has no effect"
    assert result.outlines.count(said) == 1
    # The other way round somebody asked for a gate that the ini file turns off.
    ini(project, f"bandwidth_{name} = true")
    path.write_text(path.read_text().replace("bandwidth_strict = true\n", ""))
    refused = project.run_here("--bandwidth-strict")
    assert refused.ret == 4
    refused.stderr.fnmatch_lines([f"ERROR: --bandwidth-strict and bandwidth_{name} in {path} exclude each other*"])


def test_the_ini_file_is_named_by_itself(project):
    (project.path / "tests").mkdir()
    project.file("test_once.py", ONCE)
    path = ini(project, "bandwidth_json = tests")
    result = project.run_here()
    assert result.ret == 4
    result.stderr.fnmatch_lines([f"ERROR: bandwidth_json in {path}: found the folder *tests, expected a file*"])
    ini(project, "bandwidth_update = true")
    result = project.run_here()
    result.stderr.fnmatch_lines(
        [f"ERROR: bandwidth_update in {path} needs --bandwidth-baseline=PATH to write to{LINK}"]
    )
