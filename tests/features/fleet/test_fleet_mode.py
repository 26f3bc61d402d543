"""--dist=each with real xdist workers, each with a device of its own: apart in everything, and who is unlike others.

Sample times are scripted by worker; all else is real: workers, new processes, files.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANGS_SECONDS, SUPPORT

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.domain.baseline import Baseline

pytestmark = pytest.mark.processes
pytest.importorskip("xdist")

BYTES = 100_000_000
# Each Python process of a run opens the scripted device of its worker; new processes inherit the worker's name.
SITE = f"""
import json, os, sys
from pathlib import Path

import pytest_bandwidth.devices.open as opening
from scripted import ScriptedDevice
from pytest_bandwidth.domain.device import DeviceIdentity

ROLES, CHILD = ("here", "fresh"), "pytest_bandwidth.evidence.processes.child_plugin"

def scripted(name):
    mine = json.loads(Path(__file__).with_name("devices.json").read_text())[os.environ["PYTEST_XDIST_WORKER"]]
    device = ScriptedDevice(
        lambda n: {BYTES} / mine["gbps"][os.environ["PYTEST_CURRENT_TEST"].split("::")[1].split(" ")[0]] / 1e9,
        lambda n: 1e-3,
        identity=DeviceIdentity("cpu", mine["name"], 2**30, mine["serial"]),
        probe_bytes={BYTES},  # a probe of 100 GB/s
    )
    with Path(__file__).with_name("opened").open("a") as log:
        print(mine["serial"], ROLES[CHILD in sys.modules], os.getcwd(), file=log)
    return device

opening.open_device = scripted
"""
TESTS = "".join(
    f"def test_{name}(bandwidth):\n    bandwidth(lambda: None, reads={BYTES})\n\n" for name in ("copy", "triad")
)


class Fleet:
    """A project, and one scripted device for each worker."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.site = folder / "site"
        self.site.mkdir()
        (self.site / "sitecustomize.py").write_text(SITE)
        (folder / "pytest.ini").write_text("[pytest]\nbandwidth_runs = 1\n")
        (folder / "test_all.py").write_text(TESTS)
        self._devices: dict[str, dict[str, object]] = {}
        self._workers: list[str] = []

    def device(self, serial: str, copy: float, triad: float, name: str = "Card 9", at: Path | None = None) -> None:
        """One more worker; copy, triad: GB/s. at: a folder with a copy of the project, as on another machine."""
        gbps = {"test_copy": copy, "test_triad": triad}
        self._devices[f"gw{len(self._devices)}"] = {"name": name, "serial": serial, "gbps": gbps}
        self._workers.append("--tx=popen" if at is None else f"--tx=popen//chdir={at}")
        if at is not None:
            at.mkdir()
            for file in ("pytest.ini", "test_all.py"):
                shutil.copy(self.folder / file, at)

    def run(self, *args: str) -> subprocess.CompletedProcess[str]:
        (self.site / "devices.json").write_text(json.dumps(self._devices))
        (self.site / "opened").write_text("")
        command = [sys.executable, "-m", "pytest", "-p", "bandwidth", "-p", "xdist", "--dist=each"]
        command += [*self._workers, "--bandwidth-device=cpu", "--bandwidth-max-time=0.05", *args]
        # A dozen processes a run: none loads plugins that take no part.
        own = {**os.environ, "PYTHONPATH": f"{self.site}{os.pathsep}{SUPPORT}", "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
        own.pop("PYTEST_ADDOPTS", None)
        both = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
        return subprocess.run(command, cwd=self.folder, env=own, timeout=HANGS_SECONDS, check=False, **both)

    def opened(self) -> list[list[str]]:
        """(serial, "here" or "fresh", folder) of every device that was opened in the last run."""
        return [line.split(maxsplit=2) for line in (self.site / "opened").read_text().splitlines()]

    def json(self, name: str) -> dict:
        return json.loads((self.folder / name).read_text())

    def gbps(self, name: str) -> dict[str, float]:
        return {row["key"].rpartition("_")[2]: round(row["gbps"], 6) for row in self.json(name)["results"]}


@pytest.fixture
def fleet(tmp_path):
    (tmp_path / "project").mkdir()
    return Fleet(tmp_path / "project")


@pytest.mark.smoke
def test_results_files_and_summary_are_apart_and_the_outlier_is_named(fleet):
    fleet.device("A", copy=90.0, triad=80.0)
    fleet.device("B", copy=91.0, triad=81.0)
    fleet.device("C", copy=45.0, triad=40.0)
    ran = fleet.run("--bandwidth-json=out/run.json", "--bandwidth-csv=run.csv", "--bandwidth-dir=runs")
    assert ran.returncode == 0, ran.stdout
    names = [f"run.card-9-{serial}.json" for serial in "abc"]
    assert sorted(path.name for path in (fleet.folder / "out").iterdir()) == names
    found = [(fleet.gbps(f"out/{name}")["copy"], fleet.gbps(f"out/{name}")["triad"]) for name in names]
    assert found == [(90.0, 80.0), (91.0, 81.0), (45.0, 40.0)]
    documents = [fleet.json(f"out/{name}") for name in names]
    assert [document["device"]["serial"] for document in documents] == ["A", "B", "C"]
    assert [[f["code"] for f in document["findings"]] for document in documents] == [[], [], ["outlier"]]
    assert {document["run_id"] for document in documents} == {path.name for path in (fleet.folder / "runs").iterdir()}
    assert (fleet.folder / "run.card-9-c.csv").read_text().count("\n") == 3
    for serial in "ABC":
        assert ran.stdout.count(f"bandwidth: Card 9 ({serial});") == 1
    sentence = "FLEET Card 9 (C) is 50.0 % slower than the median of 3 devices of its model"
    assert ran.stdout.count("FLEET") == ran.stdout.count(sentence) == 1
    html = next((fleet.folder / "runs").glob("*-card-9-c/bandwidth_report.html")).read_text()
    assert "slower than the median of 3 devices" in html


def test_update_writes_a_file_for_each_model_from_runs_of_all_its_devices_but_outliers(fleet, tmp_path):
    # On one device a test fails: there alone it does not enter.
    fails_on_b = "    import os\n    assert os.environ['PYTEST_XDIST_WORKER'] != 'gw1'\n"
    (fleet.folder / "test_all.py").write_text(TESTS.rstrip() + "\n" + fails_on_b)
    fleet.device("A", copy=90.0, triad=80.0)
    fleet.device("B", copy=91.0, triad=81.0)
    fleet.device("C", copy=45.0, triad=40.0)
    fleet.device("D", copy=50.0, triad=50.0, name="Card-9", at=tmp_path / "elsewhere")
    ran = fleet.run(
        "--bandwidth-baseline=baselines", "--bandwidth-update", "--bandwidth-runs=2", "--bandwidth-json=r.json"
    )
    assert "1 failed, 7 passed" in ran.stdout
    codes = {s: [row["reason_code"] for row in fleet.json(f"r.card-9-{s}.json")["results"]] for s in "abc"}
    assert codes == {"a": ["written"] * 2, "b": ["written"], "c": ["left-out"] * 2}
    files = ["card-9-1gib.yaml", "card-9.yaml"]
    assert sorted(path.name for path in (fleet.folder / "baselines").glob("*.yaml")) == files
    other, nine = (baseline_files.load(fleet.folder / "baselines" / name) for name in files)
    assert (nine.device.name, other.device.name) == ("Card 9", "Card-9")

    def runs(baseline: Baseline, test: str) -> list[tuple[str, float]]:
        return [(run.gpu, run.gbps) for run in baseline.entries[f"test_all.py::test_{test}"].runs]

    assert runs(nine, "copy") == [("A", 90.0), ("B", 91.0), ("A", 90.0), ("B", 91.0)]
    assert runs(nine, "triad") == [("A", 80.0)] * 2
    assert runs(other, "triad") == [("D", 50.0)] * 2
    assert "Card 9 (C) was left out of the baseline's update: it is an outlier" in ran.stdout
    # Its own worker measured each device, in a new process that started where the worker runs.
    folders = {(line[0], line[2]) for line in fleet.opened()}
    assert folders == {*((s, str(fleet.folder)) for s in "ABC"), ("D", str(tmp_path / "elsewhere"))}
    assert sorted(line[:2] for line in fleet.opened()) == sorted([s, how] for s in "ABCD" for how in ("here", "fresh"))


def test_a_regression_on_one_device_fails_there_confirmed_by_its_own_worker(fleet):
    (fleet.folder / "baselines").mkdir()
    entry = "  test_all.py::test_{}:\n    bandwidth: {} GB/s\n    judged_on: gbps\n    tolerance: 20%\n"
    for name in ("old", "new"):
        (fleet.folder / f"baselines/{name}.yaml").write_text(
            f"schema: 2\ndevice: {{name: Card {name}, kind: cpu}}\ntests:\n"
            + entry.format("copy", 90)
            + entry.format("triad", 80)
        )
    fleet.device("A", copy=90.0, triad=80.0, name="Card old")
    fleet.device("B", copy=90.0, triad=40.0, name="Card new")
    fleet.device("C", copy=90.0, triad=80.0, name="Card without a file")
    ran = fleet.run("--bandwidth-baseline=baselines", "--bandwidth-json=run.json", "-o", "bandwidth_confirm=2")
    assert ran.returncode == 1, ran.stdout
    statuses = {
        name: {row["key"].rpartition("_")[2]: row["status"] for row in fleet.json(f"run.card-{name}.json")["results"]}
        for name in ("old", "new")
    }
    assert statuses["old"] == {"copy": "OK", "triad": "OK"}, ran.stdout
    assert statuses["new"] == {"copy": "OK", "triad": "REGRESSED"}, ran.stdout
    assert [line[0] for line in fleet.opened() if line[1] == "fresh"] == ["B", "B"]
    # Two tests have no baseline to be judged by, one is slow; the others' results stand.
    assert "1 failed, 3 passed, 2 errors" in ran.stdout
    assert "expected one of Card without a file, this run's device" in ran.stdout
    assert "FLEET" not in ran.stdout, "different models are not compared"
