"""What runs on a card's node, run here: a real pytest as a child, without Ray."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
from dataclasses import asdict
from pathlib import Path

import pytest
from children import SUPPORT, gone, wait_for
from full_disks import file_size_limit
from test_fleet_results import CARD

from pytest_bandwidth.features.fleet.cards import Returned, Task, read_result
from pytest_bandwidth.features.fleet.on_node import Runner, _ray_seconds

pytestmark = pytest.mark.processes

CONFTEST = f"""
import os, sys
sys.path.insert(0, {str(SUPPORT)!r})
import pytest_bandwidth.devices.open as opening


def scripted(name):
    from scripted import ScriptedDevice

    return ScriptedDevice(lambda n: 1e8 / 90 / 1e9, lambda n: 1e-3, probe_bytes=100_000_000)


opening.open_device = scripted
"""
TEST = "def test_copy(bandwidth):\n    bandwidth(lambda: None, reads=100_000_000)\n"
HANGS = """
import os, time
from pathlib import Path

def test_copy(bandwidth):
    Path("started").write_text(str(os.getpid()))
    time.sleep(1000)
"""
ARGUMENTS = ("-p", "no:randomly", "--bandwidth-device=cpu", "--bandwidth-max-time=0.05")


@pytest.fixture
def checkout(tmp_path) -> Path:
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "pytest.ini").write_text("[pytest]\nbandwidth_history = s3://not/there\nbandwidth_json = own.json\n")
    (folder / "test_all.py").write_text(TEST)
    return folder


def run(runner: Runner, task: Task) -> Returned:
    told = runner.run(asdict(task))
    return Returned(**{**told, "tail": tuple(told["tail"])})


def task(checkout: Path, *arguments: str, **more: object) -> Task:
    return Task((*ARGUMENTS, *arguments), str(checkout), sys.executable, 300.0, **more)


def test_a_card_imports_from_the_checkout_and_writes_its_document_for_the_caller_and_nothing_else(checkout):
    (checkout / "sizes.py").write_text("BYTES = 100_000_000\n")
    (checkout / "test_all.py").write_text("import sizes\n\n" + TEST.replace("100_000_000", "sizes.BYTES"))
    before = {path.name for path in checkout.iterdir()}
    # Of this import mode pytest itself puts no folder on the path.
    plain = ("-p", "no:cacheprovider", "-p", "no:benchmark", "--import-mode=importlib")
    back = run(Runner(), task(checkout, "--bandwidth-csv=own.csv", *plain))
    assert back.status == 0, back.tail
    row, report = read_result(CARD, back, 1, 1.0, 300.0)
    assert row.gbps == {"test_all.py::test_copy": 90.0}
    assert report.device["name"] == "scripted device"
    assert {path.name for path in checkout.iterdir()} - before <= {"__pycache__"}


def test_a_card_judges_by_the_callers_baseline_and_updates_a_copy(checkout):
    mine = (
        "schema: 2\ndevice: {name: scripted device, kind: cpu}\ntests:\n"
        "  test_all.py::test_copy:\n    bandwidth: 89 GB/s\n    judged_on: gbps\n    tolerance: 20%\n"
    )
    own = checkout / "baselines"
    own.mkdir()
    (own / "device.yaml").write_text("the checkout's, which is not read")
    given = {"baseline": "baselines", "is_folder": True, "files": {"baselines/device.yaml": mine.encode()}}
    judged = run(Runner(), task(checkout, "--bandwidth-baseline=baselines", **given))
    assert read_result(CARD, judged, 1, 1.0, 300.0)[0].statuses == {"OK": 1}, judged.tail
    updated = run(
        Runner(), task(checkout, "--bandwidth-baseline=baselines", "--bandwidth-update", "--bandwidth-runs=2", **given)
    )
    row, report = read_result(CARD, updated, 1, 1.0, 300.0)
    assert row.statuses == {"SAVED": 1}, updated.tail
    assert [[one["gbps"] for one in rows] for rows in report.further] == [[90.0]]
    assert (own / "device.yaml").read_text() == "the checkout's, which is not read"


def test_a_hang_is_ended_and_tells_where_it_was(checkout):
    (checkout / "test_all.py").write_text(HANGS)
    runner = Runner()

    def stop() -> None:
        wait_for(checkout / "started")
        runner.stop()

    waiting = threading.Thread(target=stop)
    waiting.start()
    back = run(runner, task(checkout))
    waiting.join()
    assert back.status == 2
    assert any(re.search(r"test_all.py:\d+: KeyboardInterrupt", line) for line in back.tail), back.tail
    assert gone(int((checkout / "started").read_text()))


def test_a_card_ends_with_the_process_that_started_it(checkout):
    (checkout / "test_all.py").write_text(HANGS)
    start = (
        "import json, sys\nfrom pytest_bandwidth.features.fleet.on_node import Runner\n"
        "Runner().run({**json.loads(sys.argv[1]), 'files': {}})"
    )
    told = json.dumps({**asdict(task(checkout)), "files": None})
    starter = subprocess.Popen([sys.executable, "-c", start, told])
    wait_for(checkout / "started")
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    assert gone(int((checkout / "started").read_text()))


def test_a_large_document_stays_where_it_is(checkout, monkeypatch):
    monkeypatch.setattr("pytest_bandwidth.features.fleet.on_node.LARGEST_RETURNED_BYTES", 100)
    back = run(Runner(), task(checkout))
    assert (back.document, back.status) == (None, 0)
    assert read_result(CARD, back, 1, 1.0, 300.0)[0].reason.startswith("refused: its document has ")


def stand_in(folder: Path, *lines: str) -> str:
    """An interpreter of a node's own: this one, in other circumstances."""
    script = folder / "python"
    script.write_text("\n".join(("#!/bin/sh", *lines)) + "\n")
    script.chmod(0o755)
    return str(script)


def test_another_python_that_has_no_plugin_is_named(checkout):
    with pytest.raises(FileNotFoundError):
        Runner().run({**asdict(task(checkout)), "python": str(checkout / "no-python")})
    other = stand_in(checkout, f'exec {sys.executable} -I -S "$@"')
    back = Runner().run({**asdict(task(checkout)), "python": other})
    row, _ = read_result(CARD, Returned(**back), 1, 1.0, 300.0)
    assert (row.state, row.reason) == (
        "missing",
        f"{other} finds no pytest-bandwidth: install it there, or name an interpreter with --python",
    )
    assert any("No module named pytest" in line for line in row.tail), row.tail


def test_a_package_in_the_current_folder_is_not_taken_for_the_installed_plugin(checkout, monkeypatch):
    package = checkout / "pytest_bandwidth"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = 'of the current folder'\n")
    (package / "plugin.py").touch()
    monkeypatch.chdir(checkout)
    other = stand_in(checkout, f'exec {sys.executable} -S "$@"')  # knows the standard library, and where it stands
    assert Runner().run({**asdict(task(checkout)), "python": other})["plugin"] == ""


def test_a_disk_that_does_not_take_the_baseline(checkout):
    given = {"baseline": "b.yaml", "files": {"b.yaml": b"schema: 2\n" * 1000}}
    with file_size_limit(100), pytest.raises(OSError, match="File too large"):
        Runner().run(asdict(task(checkout, **given)))


@pytest.mark.parametrize(
    ("name", "is_rays"),
    [
        (["/opt/ray/core/src/ray/raylet/raylet", "--x"], True),
        (["python", "-u", "/opt/site-packages/ray/_private/log_monitor.py"], True),
        (["python", "-m", "pytest", "tests/test_ray.py"], False),
        (["ray::Runner.run"], False),  # it waits for our own child
    ],
)
def test_rays_daemons_are_told_from_what_ray_runs(tmp_path, name, is_rays):
    (tmp_path / "7").mkdir()
    (tmp_path / "7" / "cmdline").write_bytes("\0".join(name).encode() + b"\0")
    (tmp_path / "7" / "stat").write_text("7 (a) name) S " + " ".join(str(i) for i in range(4, 53)))
    assert (_ray_seconds(tmp_path) == {}) is not is_rays
