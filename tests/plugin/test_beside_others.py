"""Beside pytest's own options and other plugins."""

import json
import re
import subprocess
import sys

import pytest
from children import HANGS_SECONDS
from user_project import COPY

# Fails and is measured again, in new processes.
SLOW = COPY.replace("def test", "import pytest\n@pytest.mark.bandwidth(min_gbps='90 TB/s')\ndef test")
FEATURES = ("counters", "explain", "exports", "fleet", "history", "honest", "html", "tinygrad", "traffic")
# Every run of pytest waits for these, and for no other module that pytest has not loaded anyway.
AT_START = {
    "pytest_bandwidth",
    *(f"pytest_bandwidth.{name}" for name in ("domain", "domain.interpreter", "domain.values", "features", "hooks")),
    *(f"pytest_bandwidth.{name}" for name in ("plugin", "registry")),
    *(f"pytest_bandwidth.{name}" for name in ("options", "options.options", "options.settings", "suite")),
    *(f"pytest_bandwidth.features.{name}" for name in FEATURES),
}


def loaded_by(project, monkeypatch, *args):
    """The modules that a run of pytest has loaded at its end, with no plugin but its own and those that are named."""
    project.file("test_plain.py", "def test_plain(): pass\n")
    told = "import sys\ndef pytest_unconfigure():\n    print('LOADED', *sys.modules)\n"
    project.file("conftest.py", told)
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    lines = project.pytester.runpytest_subprocess(*args, "-s", "--collect-only").outlines
    (found,) = (line.partition("LOADED ")[2].split() for line in lines if "LOADED " in line)
    return set(found)


@pytest.mark.smoke
def test_where_nothing_is_measured_it_loads_few_modules_and_makes_no_dataclass(project, monkeypatch):
    project.file("pytest.ini", "[pytest]\n")  # without the project's own options
    without = loaded_by(project, monkeypatch, "-p", "no:bandwidth")
    assert loaded_by(project, monkeypatch, "-p", "pytest_bandwidth.plugin") - without == AT_START
    given = loaded_by(project, monkeypatch, "-p", "bandwidth", "-o", "bandwidth_tolerance=3%")
    assert given > AT_START
    assert given.isdisjoint({"numpy", "yaml", "jinja2", "numba", "cupy", "pynvml", "pytest_bandwidth.session.session"})
    code = "import pytest_bandwidth.plugin, pytest_bandwidth.options.settings as s; print(vars(s.Settings).keys())"
    assert "__dataclass_fields__" not in subprocess.check_output([sys.executable, "-c", code], text=True)


def test_its_modules_are_loaded_as_installed_and_not_rewritten(project):
    project.file("pytest.ini", "[pytest]\nfilterwarnings = ignore:Module already imported\n")
    # As pytest does for a plugin that is not installed editable.
    told = "import sys\nimport pytest\npytest.register_assert_rewrite('pytest_bandwidth')\n"
    told += "def pytest_unconfigure():\n    loaded = sys.modules['pytest_bandwidth.session.session']\n"
    told += "    print('LOADER', type(loaded.__loader__))\n"
    project.file("conftest.py", told)
    project.file("test_copy.py", COPY)
    result = project.pytester.runpytest_subprocess("--collect-only", "-p", "bandwidth")
    result.stdout.fnmatch_lines(["LOADER*SourceFileLoader*"])


def test_works_beside_the_usual_plugins_together(project):
    for name in ("xdist", "pytest_benchmark", "pytest_randomly", "pytest_rerunfailures", "pytest_cov"):
        pytest.importorskip(name)
    project.file("pytest.ini", "[pytest]\nbandwidth_busy_processors = 1000\n")
    project.file("test_copy.py", COPY)
    project.file("test_more.py", COPY.replace("test_copy", "test_more") + "\ndef test_b(benchmark): benchmark(int)\n")
    others = ("-n2", "--reruns=1", "--cov=.", "--benchmark-disable", "-p", "randomly")
    update = ("--bandwidth-baseline=b.yaml", "--bandwidth-update", "--bandwidth-runs=1", "--bandwidth-json=run.json")
    result = project.run(*others, *update)
    result.assert_outcomes(passed=3)
    document = project.told()
    assert [row["key"] for row in document["results"]] == ["test_copy.py::test_copy", "test_more.py::test_more"]
    result.stdout.fnmatch_lines(["2 measured: 2 SAVED"])


BAD = "schema: 2\ntests:\n  a: {bandwidth: fast}\n  b: {tolerance: 5}\n"


def test_a_bad_baseline_of_any_device_is_told_before_workers_start(project):
    """The folder has one of another device, too."""
    pytest.importorskip("xdist")
    project.file("test_copy.py", COPY)
    project.file("conftest.py", "import os\nif 'PYTEST_XDIST_WORKER' in os.environ: open('started', 'w').close()\n")
    file = project.file("baselines/b.yaml", BAD)
    project.file("baselines/other.yaml", BAD.replace("tests:", "device: {name: Card 9}\ntests:"))
    result = project.run_here("-n1", "--bandwidth-baseline=baselines", "--bandwidth-update")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    assert [line.partition(" found ")[0] for line in result.errlines if line] == [
        *("ERROR: baselines/b.yaml:3: bandwidth:", "ERROR: baselines/b.yaml:4: tolerance:"),
        *("ERROR: baselines/other.yaml:4: bandwidth:", "ERROR: baselines/other.yaml:5: tolerance:"),
    ]
    assert not (project.path / "started").exists()
    assert file.read_text() == BAD
    # It is no matter to workers that measure nothing.
    assert project.run_here("-n1", "--bandwidth-baseline=baselines", "--bandwidth-skip").ret == pytest.ExitCode.OK


# Says at its end whether a fresh process has loaded Hypothesis.
TELLS = """
import atexit, logging, os, sys
import pytest

def tell():
    if "pytest_bandwidth.evidence.processes.child_plugin" in sys.modules:
        with open("told", "a") as file:
            print("hypothesis" in sys.modules, file=file)

atexit.register(tell)

def pytest_addoption(parser):
    parser.addoption("--page", dest="htmlpath")

def pytest_configure(config):
    assert config.pluginmanager.has_plugin("hypothesispytest")
    if config.option.htmlpath:
        with open(config.option.htmlpath, "a") as page:
            page.write("opened\\n")

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    file = tmp_path_factory.mktemp("shared") / "made_by"
    file.write_text(str(os.getpid()))
    return file
"""
LOOKS = """
import logging
import os
from pathlib import Path
import numpy as np
import pytest

@pytest.mark.bandwidth(min_gbps="90 TB/s")
def test_copy(bandwidth, shared, benchmark):
    benchmark.pedantic(int)
    logging.warning("measured by %d", os.getpid())
    a, b = bandwidth.random(1 << 14), bandwidth.empty(1 << 14)
    bandwidth(np.copyto, b, a, reads=a, writes=b)

def test_later(shared, benchmark):
    benchmark.pedantic(int)
    assert shared.read_text() == str(os.getpid())
    logging.warning("checked by %d", os.getpid())
    written = Path("benchmarks.json")  # at the end of the run, and not before
    assert not written.exists() or not written.read_text()
"""


def test_fresh_processes_leave_files_log_and_hypothesis_alone(project):
    """A child prints no summary, so it need not load Hypothesis for it."""
    pytest.importorskip("pytest_benchmark")
    project.file(
        "pytest.ini", "[pytest]\naddopts = -p no:randomly -p no:hypothesispytest\nbandwidth_busy_processors = 1000\n"
    )
    project.file("conftest.py", TELLS)
    project.file("test_shared.py", LOOKS)
    files = ("--basetemp=temporary", "--log-file=run.log", "--log-file-level=WARNING")
    theirs = ("--page=page.html", "--benchmark-json=benchmarks.json", "--benchmark-autosave")
    options = ("-p", "no:xdist", "--lf", "--pdbcls=a:b", "-p", "hypothesispytest")
    result = project.run(*files, *theirs, *options, "-o", "bandwidth_confirm=1")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])
    told = re.findall(r"(measured|checked) by (\d+)", (project.path / "run.log").read_text())
    assert [what for what, _ in told] == ["measured", "checked"]
    assert len({process for _, process in told}) == 1
    assert (project.path / "told").read_text() == "False\n"
    assert (project.path / "page.html").read_text() == "opened\n"
    assert "test_later" in (project.path / "benchmarks.json").read_text()
    assert len(list((project.path / ".benchmarks").glob("*/*.json"))) == 1


def test_fresh_processes_see_options_of_a_conftest_and_tests_in_a_package(project, monkeypatch):
    project.file("pkg/__init__.py", "")
    project.file("pkg/conftest.py", "def pytest_addoption(parser):\n    parser.addoption('--count', default='1')\n")
    asks = "    assert request.config.getoption('count') == '2'\n"
    project.file("pkg/test_copy.py", SLOW.replace("(bandwidth)", "(bandwidth, request)") + asks)
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    options = ("--junitxml=j.xml", "-vv", "-s", "-o", "bandwidth_confirm=1")
    result = project.run("--count=2", *options, "--pyargs", "pkg")
    result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])


def test_key_of_a_packages_test_does_not_depend_on_the_folder(project, monkeypatch):
    project.file("lib/pkg/__init__.py", "")
    project.file("lib/pkg/test_copy.py", COPY)
    monkeypatch.setenv("PYTHONPATH", str(project.path / "lib"))
    monkeypatch.syspath_prepend(project.path / "lib")
    project.run_here("--pyargs", "pkg", "--bandwidth-json=run.json")
    (row,) = project.told()["results"]
    assert row["key"] == "pkg.test_copy::test_copy"


def test_reruns_count_the_last_report_and_junit_has_figures_and_verdict_only(project):
    pytest.importorskip("pytest_rerunfailures")
    project.file("test_flaky.py", "runs = []\n" + COPY + "    runs.append(1)\n    assert len(runs) == 2\n")
    written = ("--bandwidth-json=run.json", "--junitxml=j.xml", "-o", "junit_family=xunit1")
    assert project.run_here("--reruns=1", *written).ret == 0
    assert len(project.told()["results"]) == 1
    text = (project.path / "j.xml").read_text()
    assert 'name="bandwidth_gbps"' in text
    assert 'name="bandwidth_verdict" value="UNDECIDED"' in text
    assert len(text) < 3000


def test_pdb_is_entered_at_a_verdict(project):
    project.file("test_copy.py", SLOW)
    options = ("--pdb", "--bandwidth-device=cpu", "--bandwidth-max-time=0.05", "-o", "bandwidth_confirm=1")
    child = project.pytester.popen([sys.executable, "-m", "pytest", *options], stdin=-1, stdout=-1, stderr=-1)
    out, _ = child.communicate(b"q\n", timeout=HANGS_SECONDS)
    assert b"(Pdb)" in out


def test_ini_equivalents(project):
    project.file("test_copy.py", COPY)
    project.file(
        "pytest.ini",
        "[pytest]\nbandwidth_device = cpu\nbandwidth_max_time = 0.05\nbandwidth_min_samples = 5\n"
        "bandwidth_strict = true\nbandwidth_json = from_ini.json\nbandwidth_peak = 10 TB/s\n",
    )
    project.run_here(quick=False).assert_outcomes(failed=1)
    document = json.loads((project.path / "from_ini.json").read_text())
    assert document["settings"]["max_time"] == 0.05
    assert document["device"]["peak"] == {"gbps": 10_000.0, "source": "bandwidth_peak in the ini file"}
    assert document["results"][0]["utilization_of"] == "peak"


def test_only_and_skip_and_disable(project):
    project.file("test_copy.py", COPY.replace("    assert result", "    assert result.gbps is None or result"))
    project.file("test_plain.py", "def test_plain(): pass\n")
    project.run_here("--bandwidth-only").assert_outcomes(passed=1, deselected=1)
    project.run_here("--bandwidth-skip").assert_outcomes(passed=1, skipped=1)
    result = project.run_here("--bandwidth-disable")
    result.assert_outcomes(passed=2)
    assert "GB/s" not in result.stdout.str().split("test session starts")[1].split("passed")[0].replace(
        "the probe's GB/s", ""
    )
    assert project.run_here("--collect-only", "--bandwidth-device=cuda", quick=False).ret == 0, "it opens no device"
    project.run_here("--bandwidth-only", "--bandwidth-skip").stderr.fnmatch_lines(["*exclude each other*"])
