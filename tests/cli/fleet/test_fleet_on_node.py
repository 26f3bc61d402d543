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
from test_fleet_results import CARD

from pytest_bandwidth.cli.fleet.cards import CardResult, Returned, Task
from pytest_bandwidth.cli.fleet.on_node import Runner
from pytest_bandwidth.cli.fleet.returned import read_result

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
    (folder / "pytest.ini").write_text("[pytest]\nbandwidth_history = history\nbandwidth_json = own.json\n")
    (folder / "test_all.py").write_text(TEST)
    return folder


def run(runner: Runner, task: Task) -> Returned:
    told = runner.run(asdict(task))
    return Returned(**{**told, "tail": tuple(told["tail"])})


def task(checkout: Path, *arguments: str, **more: object) -> Task:
    return Task((*ARGUMENTS, *arguments), str(checkout), sys.executable, 300.0, **more)


def test_a_card_writes_its_document_for_the_caller_and_nothing_else(checkout):
    before = {path.name for path in checkout.iterdir()}
    back = run(Runner(), task(checkout, "--bandwidth-csv=own.csv", "-p", "no:cacheprovider", "-p", "no:benchmark"))
    assert back.status == 0, back.tail
    row, report = read_result(CardResult(CARD, back, 1, 1.0), 300.0)
    assert row.gbps == {"test_all.py::test_copy": 90.0}
    assert report.device["name"] == "scripted device"
    assert {path.name for path in checkout.iterdir()} - before <= {"__pycache__"}


def test_a_card_judges_by_the_callers_baseline_and_updates_a_copy(checkout):
    mine = (
        "schema: 1\ndevice: {name: scripted device, kind: cpu}\nentries:\n"
        "  test_all.py::test_copy:\n    bandwidth: 89 GB/s\n    judged_on: gbps\n    tolerance: 20%\n"
    )
    own = checkout / "baselines"
    own.mkdir()
    (own / "device.yaml").write_text("the checkout's, which is not read")
    given = {"baseline": "baselines", "is_folder": True, "files": {"baselines/device.yaml": mine.encode()}}
    judged = run(Runner(), task(checkout, "--bandwidth-baseline=baselines", **given))
    assert read_result(CardResult(CARD, judged, 1, 1.0), 300.0)[0].statuses == {"WITHIN": 1}, judged.tail
    updated = run(
        Runner(), task(checkout, "--bandwidth-baseline=baselines", "--bandwidth-update", "--bandwidth-runs=2", **given)
    )
    row, report = read_result(CardResult(CARD, updated, 1, 1.0), 300.0)
    assert row.statuses == {"UPDATED": 1}, updated.tail
    assert [[one["gbps"] for one in rows] for rows in report.further] == [[90.0]]
    assert (own / "device.yaml").read_text() == "the checkout's, which is not read"


def test_a_hang_is_ended_and_tells_where_it_was(checkout):
    (checkout / "test_all.py").write_text(HANGS)
    runner = Runner()
    waiting = threading.Thread(target=lambda: (wait_for(checkout / "started"), runner.stop()))
    waiting.start()
    back = run(runner, task(checkout))
    waiting.join()
    assert back.status == 2
    assert any(re.search(r"test_all.py:\d+: KeyboardInterrupt", line) for line in back.tail), back.tail
    assert gone(int((checkout / "started").read_text()))


def test_a_card_ends_with_the_process_that_started_it(checkout):
    (checkout / "test_all.py").write_text(HANGS)
    start = (
        "import json, sys\nfrom pytest_bandwidth.cli.fleet.on_node import Runner\n"
        "Runner().run({**json.loads(sys.argv[1]), 'files': {}})"
    )
    told = json.dumps({**asdict(task(checkout)), "files": None})
    starter = subprocess.Popen([sys.executable, "-c", start, told])
    wait_for(checkout / "started")
    os.kill(starter.pid, signal.SIGKILL)
    starter.wait()
    assert gone(int((checkout / "started").read_text()))


def test_a_large_document_stays_where_it_is(checkout, monkeypatch):
    monkeypatch.setattr("pytest_bandwidth.cli.fleet.on_node.LARGEST_RETURNED_BYTES", 100)
    back = run(Runner(), task(checkout))
    assert (back.document, back.status) == (None, 0)
    assert read_result(CardResult(CARD, back, 1, 1.0), 300.0)[0].reason.startswith("refused: its document has ")


def test_an_interpreter_that_is_not_there(checkout):
    with pytest.raises(FileNotFoundError):
        Runner().run({**asdict(task(checkout)), "python": str(checkout / "no-python")})
