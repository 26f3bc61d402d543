"""Set up a user's project in a temporary folder, run by real pytest processes on the host; or one fixture alone.

`command` calls the commands as the console script does, in this process.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

import pytest
import virtual_time
from children import SUPPORT

import pytest_bandwidth.session.publishing.publish
import pytest_bandwidth.session.session  # noqa: F401  # loaded for what it loads
from pytest_bandwidth.cli.main import main
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.fixture.bandwidth import Bandwidth
from pytest_bandwidth.judging.limits import MarkerOptions
from pytest_bandwidth.measuring.measurer import Measurer
from pytest_bandwidth.measuring.task import Task
from pytest_bandwidth.options.settings import Settings
from pytest_bandwidth.reports.wording import help_link

# Before each sample four times the cache is read, which takes longer than all the rest of a small measurement.
SMALL_CACHE = 1 << 20
QUICK = ("--bandwidth-device=cpu", "--bandwidth-max-time=0.05", "--bandwidth-min-samples=5")
# What commits of a project need: its own modules, and verdicts on a busy machine.
INI_OF_COMMITS = "[pytest]\npythonpath = .\nbandwidth_busy_processors = 1000\n"
COPY = """
import numpy as np

def test_copy(bandwidth):
    a = bandwidth.random(1 << 16, "float32")
    b = bandwidth.empty(1 << 16, "float32")
    result = bandwidth(np.copyto, b, a, reads=a, writes=b)
    assert (a == b).all()
    assert result.bytes_moved == 2 * a.nbytes
"""


class Project:
    """Hold files and runs of one project."""

    def __init__(self, pytester: pytest.Pytester) -> None:
        self.pytester = pytester
        self.path: Path = pytester.path
        self.inside = False
        self.started: list[subprocess.Popen[str]] = []
        pytester.makefile(
            ".ini",
            # pytest looks for unraisable errors by collecting all of Numba's garbage, which takes a sixth of a run.
            pytest="[pytest]\naddopts = -p no:randomly -p no:hypothesispytest -p no:benchmark\n"
            "    -p no:unraisableexception\n"
            # The tests are about the plugin: a busy machine must not change what they see.
            "bandwidth_busy_processors = 1000\n"
            # An update takes five runs; one is enough to have a baseline.
            "bandwidth_runs = 1\n",
        )

    def file(self, name: str, text: str) -> Path:
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return path

    def run(self, *args: str, quick: bool = True) -> pytest.RunResult:
        """Run `pytest` as a user starts it, with the smallest budgets unless told otherwise."""
        if self.inside:
            return self.run_here(*args, quick=quick)
        return self.pytester.runpytest_subprocess(*(QUICK if quick else ()), *args)

    def start(self, *args: str) -> subprocess.Popen[str]:
        """Start the same without waiting; `stdout` gets all that it says. It ends with the test at the latest."""
        command = [sys.executable, "-m", "pytest", *QUICK, *args]
        process = subprocess.Popen(command, cwd=self.path, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.started.append(process)
        return process

    def run_here(self, *args: str, quick: bool = True) -> pytest.RunResult:
        """Run the same inside this process: faster, for what does not depend on a process of its own."""
        return self.pytester.runpytest_inprocess(*(QUICK if quick else ()), *args)

    def document(self, *args: str, quick: bool = True) -> dict:
        """Return the JSON document of one more run."""
        self.run("--bandwidth-json=run.json", *args, quick=quick)
        return self.told()

    def told(self) -> dict:
        """Return the JSON document of the run that wrote run.json last."""
        return json.loads((self.path / "run.json").read_text(encoding="utf-8"))


@pytest.fixture(scope="session")
def everything_loaded() -> None:
    """Load modules before runs inside this process, which must not load them anew: NumPy and Numba refuse that."""
    device = CpuDevice()
    for traffic in (Traffic(4096, 0), Traffic(0, 4096), Traffic(4096, 4096), Traffic(8192, 4096)):
        device.time(device.probe(traffic).call, None)


@pytest.fixture(scope="session")
def traffic_loaded() -> None:
    """Load what runs inside this process need of the traffic device; skip where it cannot be had."""
    reason = "the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'"
    pytest.importorskip("cuda.bindings", reason=reason)
    from pytest_bandwidth.features.traffic.device import open_traffic

    open_traffic()


@pytest.fixture
def project(everything_loaded: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    del everything_loaded  # before this process runs anything
    monkeypatch.setattr("pytest_bandwidth.devices.cpu.device.last_cache_bytes", lambda: SMALL_CACHE)
    made = Project(pytester)
    yield made
    for process in made.started:
        process.kill()  # nothing, where it has been waited for
        with process:
            pass


@pytest.fixture
def inside(project: Project) -> None:
    """Have all of the project's runs happen inside this process."""
    project.inside = True


@pytest.fixture
def slept(project: Project, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """Return a project on a device whose kernels take what they `virtual_time.sleep`: here and in processes."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(virtual_time.SITE)
    found = (str(site), str(SUPPORT), os.environ.get("PYTHONPATH", ""))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, found)))
    monkeypatch.setattr("pytest_bandwidth.measuring.measurer.open_device", virtual_time.open_device)
    monkeypatch.setattr("pytest_bandwidth.judging.pairs.Looks.after", property(lambda _: virtual_time.AFTER))
    monkeypatch.setattr("pytest_bandwidth.judging.decide._FEWEST_UNALIKE", virtual_time.FEWEST_UNALIKE)
    return project


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Load no plugins that take no part: they would cost time in every process."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setenv("PYTEST_ADDOPTS", "-p bandwidth -p no:unraisableexception")


@pytest.fixture
def to_commit(slept: Project, alone: None) -> Project:
    """Return a project of virtual time that is to be committed: all its processes run its modules and ours alone."""
    del alone
    slept.file("pytest.ini", INI_OF_COMMITS)
    return slept


def bandwidth_on(device: str, folder: Path) -> Bandwidth:
    """Return what measures on the device by a few short samples; files it leaves lie in the folder."""
    measurer = Measurer(Settings(), folder, Task(device))
    if device == "cpu":
        with patch("pytest_bandwidth.devices.cpu.device.last_cache_bytes", lambda: SMALL_CACHE):
            assert measurer.device  # opened
    return Bandwidth(measurer, MarkerOptions(max_time=0.01, min_samples=3), folder / "test_it.py")


# How a UsageError ends.
LINK = f" (help: {help_link('usageerror')})"


class Said(NamedTuple):
    """Hold what one command printed, and its exit status."""

    status: int
    out: str
    err: str


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Callable[..., Said]:
    """Run `pytest-bandwidth ARGUMENTS…`."""

    def run(*arguments: object) -> Said:
        capsys.readouterr()
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as end:  # how argparse ends
            status = int(end.code or 0)
        return Said(status, *capsys.readouterr())

    return run
