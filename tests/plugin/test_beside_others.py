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
FEATURES = ("counters", "explain", "exports", "fleet", "history", "html", "tinygrad", "traffic")
# Every run of pytest waits for these, and for no other module that pytest has not loaded anyway.
AT_START = {
    "pytest_bandwidth",
    *(f"pytest_bandwidth.{name}" for name in ("domain", "domain.values", "features", "hooks", "plugin", "registry")),
    *(f"pytest_bandwidth.{name}" for name in ("options", "options.options", "options.settings", "suite")),
    *(f"pytest_bandwidth.features.{name}" for name in FEATURES),
}
HEAVY = {
    *("numpy", "yaml", "jinja2", "numba", "cupy", "pynvml"),
    *(f"pytest_bandwidth.session.{name}" for name in ("session", "xdist")),
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
def test_where_it_is_not_used_it_loads_few_modules_and_makes_no_dataclass(project, monkeypatch):
    project.file("pytest.ini", "[pytest]\n")  # without the project's own options
    without = loaded_by(project, monkeypatch, "-p", "no:bandwidth")
    assert loaded_by(project, monkeypatch, "-p", "pytest_bandwidth.plugin") - without == AT_START
    code = "import pytest_bandwidth.plugin, pytest_bandwidth.options.settings as s; print(vars(s.Settings).keys())"
    assert "__dataclass_fields__" not in subprocess.check_output([sys.executable, "-c", code], text=True)


def test_an_option_that_is_given_loads_nothing_heavy(project, monkeypatch):
    """Its value is checked at once."""
    pytest.importorskip("duckdb")
    project.file("pytest.ini", "[pytest]\nbandwidth_history = kept\n")
    loaded = loaded_by(project, monkeypatch, "-p", "bandwidth")
    assert loaded > AT_START
    assert loaded.isdisjoint(HEAVY)


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
    document = json.loads((project.path / "run.json").read_text())
    assert [row["key"] for row in document["results"]] == ["test_copy.py::test_copy", "test_more.py::test_more"]
    result.stdout.fnmatch_lines(["2 measured: 2 SAVED"])
    again = project.run("-n2", "--cov=.", "--bandwidth-baseline=b.yaml", "--bandwidth-tolerance=95%")
    again.assert_outcomes(passed=3)


BAD = "schema: 2\ntests:\n  a: {bandwidth: fast}\n  b: {tolerance: 5}\n"


@pytest.mark.parametrize(("given", "update"), [("b.yaml", ()), ("baselines", ("--bandwidth-update",))])
def test_a_bad_baseline_is_told_before_workers_start(project, given, update):
    pytest.importorskip("xdist")
    project.file("test_copy.py", COPY)
    project.file("baselines/b.yaml", BAD)
    file = project.file("b.yaml", BAD)
    project.file("conftest.py", "import os\nif 'PYTEST_XDIST_WORKER' in os.environ: open('started', 'w').close()\n")

    def told(run, workers):
        result = run(workers, f"--bandwidth-baseline={given}", *update)
        assert result.ret == pytest.ExitCode.USAGE_ERROR
        return [line for line in result.errlines if line]

    lines = told(project.run, "-n1")
    assert not (project.path / "started").exists()
    name = "b.yaml" if given == "b.yaml" else "baselines/b.yaml"
    assert [line.partition(" found ")[0] for line in lines] == [
        f"ERROR: {name}:3: bandwidth:", f"ERROR: {name}:4: tolerance:"
    ]  # fmt: skip
    assert lines == told(project.run_here, "-n0")
    assert file.read_text() == BAD


def test_a_bad_baseline_of_another_device_is_told_before_workers_start(project):
    pytest.importorskip("xdist")
    project.file("test_copy.py", COPY)
    project.run_here("--bandwidth-baseline=baselines", "--bandwidth-update").assert_outcomes(passed=1)
    project.file("baselines/other.yaml", BAD.replace("tests:", "device: {name: Card 9}\ntests:"))
    result = project.run("-n1", "--bandwidth-baseline=baselines")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["ERROR: baselines/other.yaml:4: bandwidth: found 'fast', expected *"])


@pytest.mark.parametrize("option", ["--bandwidth-skip", "--collect-only"])
def test_a_bad_baseline_is_no_matter_to_workers_that_measure_nothing(project, option):
    pytest.importorskip("xdist")
    project.file("test_copy.py", COPY)
    project.file("b.yaml", BAD)
    assert project.run("-n1", "--bandwidth-baseline=b.yaml", option).ret == pytest.ExitCode.OK


@pytest.mark.smoke
def test_confirmation_works_under_xdist(project):
    pytest.importorskip("xdist")
    project.file("test_copy.py", SLOW)
    result = project.run("-n1", "-o", "bandwidth_confirm=1")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])


def test_fresh_processes_work_with_options_of_pytest(project):
    project.file("test_copy.py", SLOW)
    options = ("-p", "no:xdist", "--lf", "-x", "--junitxml=j.xml", "--pdbcls=a:b", "-vv", "-s")
    result = project.run(*options, "-o", "bandwidth_confirm=1")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])


# Says at its end what it saw while it collected and measured: whether it looks for garbage, and in how much of it.
TELLS = """
import atexit, gc, logging, os, sys
import pytest

seen = []

def tell():
    fresh = "pytest_bandwidth.evidence.processes.child_plugin" in sys.modules
    with open("told", "a") as file:
        print(fresh, *seen, f"Hypothesis: {'hypothesis' in sys.modules}" if fresh else "", file=file)

def look():
    seen.append(f"{gc.isenabled()}, {'few' if gc.get_freeze_count() else 'all'}")

def pytest_configure(config):
    assert config.pluginmanager.has_plugin("hypothesispytest")

def pytest_collection_finish():
    look()

atexit.register(tell)

@pytest.fixture(scope="session")
def shared(tmp_path_factory):
    file = tmp_path_factory.mktemp("shared") / "made_by"
    file.write_text(str(os.getpid()))
    return file
"""
LOOKS = """
import logging
import os
import numpy as np
import pytest
from conftest import look

@pytest.mark.bandwidth(min_gbps="90 TB/s")
def test_copy(bandwidth, shared):
    look()
    logging.warning("measured by %d", os.getpid())
    a, b = bandwidth.random(1 << 14), bandwidth.empty(1 << 14)
    bandwidth(np.copyto, b, a, reads=a, writes=b)

def test_later(shared):
    assert shared.read_text() == str(os.getpid())
    logging.warning("checked by %d", os.getpid())
"""


def test_fresh_processes_leave_temporary_files_log_garbage_and_hypothesis_alone(project):
    """They load and end without a search for garbage, and no Hypothesis for a summary that nobody reads."""
    project.file("conftest.py", TELLS)
    project.file("test_shared.py", LOOKS)
    files = ("--basetemp=temporary", "--log-file=run.log", "--log-file-level=WARNING")
    result = project.run(*files, "-p", "hypothesispytest", "-o", "bandwidth_confirm=1")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])
    told = re.findall(r"(measured|checked) by (\d+)", (project.path / "run.log").read_text())
    assert [what for what, _ in told] == ["measured", "checked"]
    assert len({process for _, process in told}) == 1
    # At collection, and in the test. The fresh process ends first.
    assert [line.strip() for line in (project.path / "told").read_text().splitlines()] == [
        "True False, all True, few Hypothesis: False",
        "False True, all True, all",
    ]


def test_fresh_processes_leave_the_files_of_other_plugins_alone(project):
    pytest.importorskip("pytest_benchmark")
    project.file("pytest.ini", "[pytest]\naddopts = -p no:randomly\nbandwidth_busy_processors = 1000\n")
    project.file(
        "conftest.py",
        """
import os
from pathlib import Path

def pytest_addoption(parser):
    parser.addoption("--page", dest="htmlpath")

def pytest_configure(config):
    if config.option.htmlpath:
        with Path(config.option.htmlpath).open("a") as page:
            page.write("opened\\n")
""",
    )
    project.file(
        "test_both.py",
        """
from pathlib import Path
import numpy as np
import pytest

@pytest.mark.bandwidth(min_gbps="90 TB/s")
def test_copy(bandwidth, benchmark):
    benchmark.pedantic(int)
    a, b = bandwidth.random(1 << 14), bandwidth.empty(1 << 14)
    bandwidth(np.copyto, b, a, reads=a, writes=b)

def test_later(benchmark):
    benchmark.pedantic(int)
    written = Path("benchmarks.json")  # at the end of the run, and not before
    assert not written.exists() or not written.read_text()
""",
    )
    files = ("--page=page.html", "--benchmark-json=benchmarks.json", "--benchmark-autosave")
    result = project.run(*files, "-o", "bandwidth_confirm=1")
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])
    assert (project.path / "page.html").read_text() == "opened\n"
    assert "test_later" in (project.path / "benchmarks.json").read_text()
    assert len(list((project.path / ".benchmarks").glob("*/*.json"))) == 1


def test_fresh_processes_see_options_of_a_conftest_and_tests_in_a_package(project, monkeypatch):
    project.file("pkg/__init__.py", "")
    project.file("pkg/conftest.py", "def pytest_addoption(parser):\n    parser.addoption('--count', default='1')\n")
    asks = "    assert request.config.getoption('count') == '2'\n"
    project.file("pkg/test_copy.py", SLOW.replace("(bandwidth)", "(bandwidth, request)") + asks)
    monkeypatch.setenv("PYTHONPATH", str(project.path))
    for args in (("--pyargs", "pkg"), ("pkg/test_copy.py::test_copy",)):
        result = project.run("--count=2", "-o", "bandwidth_confirm=1", *args)
        result.stdout.re_match_lines([r" +re-runs +\S+ GB/s"])


def test_key_of_a_packages_test_does_not_depend_on_the_folder(project, monkeypatch):
    project.file("lib/pkg/__init__.py", "")
    project.file("lib/pkg/test_copy.py", COPY)
    monkeypatch.setenv("PYTHONPATH", str(project.path / "lib"))
    keys = {row["key"] for row in project.document("--pyargs", "pkg")["results"]}
    assert keys == {"pkg.test_copy::test_copy"}


def test_reruns_count_the_last_report(project):
    pytest.importorskip("pytest_rerunfailures")
    project.file("test_flaky.py", "runs = []\n" + COPY + "    runs.append(1)\n    assert len(runs) == 2\n")
    result = project.run_here("--reruns=1", "--bandwidth-json=run.json")
    assert result.ret == 0
    assert len(json.loads((project.path / "run.json").read_text())["results"]) == 1


def test_junit_properties_carry_figures_and_verdict_only(project):
    project.file("test_copy.py", COPY)
    project.run_here("--junitxml=j.xml", "-o", "junit_family=xunit1")
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


def test_markers_and_help_describe_the_options(project):
    markers = project.run_here("--markers").stdout
    markers.fnmatch_lines(["@pytest.mark.bandwidth(min_gbps=, *max_dram_ratio=): *tolerance: smallest slowdown*"])
    assert markers.str().count("min_gbps: floor") == 1
    text = project.run_here("--help").stdout.str()
    plain = "baseline device tolerance update strict only skip disable json runs max-time min-samples precision"
    for option in (*plain.split(), "update-new", "device-tolerance"):
        assert f"--bandwidth-{option}" in text
    for name in ("confirm", "pairs", "settle", "commit"):
        assert f"--bandwidth-{name}" not in text
        assert f"bandwidth_{name}" in text


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


def test_more_than_the_peak_is_a_mismatch(project):
    project.file("test_copy.py", COPY)
    result = project.run_here("-o", "bandwidth_peak=0.001 GB/s")
    result.assert_outcomes(failed=1)
    result.stdout.re_match_lines(
        [r"MISMATCH: .* is more than the peak of 0\.001 GB/s .*", r".* MISMATCH +impossible figure"]
    )


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
    project.run_here("--bandwidth-only", "--bandwidth-skip").stderr.fnmatch_lines(["*exclude each other*"])


def test_collect_only_opens_no_device(project):
    project.file("test_copy.py", COPY)
    result = project.run_here("--collect-only", "--bandwidth-device=cuda", quick=False)
    assert result.ret == 0


def test_figures_taken_beside_others_name_the_remedy(project):
    project.file("test_copy.py", COPY)
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        result = project.run("-o", "bandwidth_busy_processors=0.001", "--bandwidth-max-time=0.3")
    finally:
        other.kill()
        other.wait()
    result.assert_outcomes(passed=1)
    result.stdout.re_match_lines([r"UNDECIDED test_copy.*: others kept ", r".* bandwidth_busy_processors .*"])
