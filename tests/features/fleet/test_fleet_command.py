"""`pytest-bandwidth fleet` on real Ray: nodes of invented GPUs on this host, scripted devices in the children.

Sample times are scripted by node and GPU; Ray, its nodes, the children and all files are real.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

import pytest
from children import HANGS_SECONDS, SUPPORT, gone, wait_for

from pytest_bandwidth import baseline as baseline_files

pytest.importorskip("ray", reason="Ray is not installed: pip install 'pytest-bandwidth[fleet]'")

pytestmark = pytest.mark.processes

GPUS = 4
BYTES = 100_000_000
# Each card of the invented nodes; files in the folder CONTROL say what befalls it.
CONFTEST = """
import json, os, sys, time
from pathlib import Path

sys.path.insert(0, os.environ["FLEET_SUPPORT"])
import pytest_bandwidth.devices.open as opening
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.options.options import handed

CONTROL = Path(os.environ["FLEET_CONTROL"])
SERIAL = f"{os.environ.get('FLEET_NODE')}-{os.environ.get('CUDA_VISIBLE_DEVICES')}"


def scripted(name):
    from scripted import ScriptedDevice

    gbps = json.loads((CONTROL / "gbps.json").read_text()).get(SERIAL, 90.0)
    return ScriptedDevice(
        lambda n: 1e8 / gbps / 1e9,
        lambda n: 1e-3,
        identity=DeviceIdentity("cpu", "Card 9", 2**30, SERIAL),
        probe_bytes=100_000_000,
    )


opening.open_device = scripted


def pytest_configure(config):
    global IS_CARD
    IS_CARD = handed(config, "fleet") is not None
    if IS_CARD:
        with (CONTROL / "pids").open("a") as log:
            print(os.getpid(), file=log)
    crash = CONTROL / f"crash-{SERIAL}"
    if IS_CARD and crash.exists():
        crash.unlink()
        os._exit(70)


def pytest_unconfigure(config):
    hostile = CONTROL / f"hostile-{SERIAL}"
    if IS_CARD and hostile.exists():
        Path(handed(config, "fleet")["document"]).write_bytes(hostile.read_bytes())
"""
TESTS = f"""
import time
from conftest import CONTROL, SERIAL


def test_copy(bandwidth):
    (CONTROL / f"started-{{SERIAL}}").write_text("started")
    while (CONTROL / f"hold-{{SERIAL}}").exists():
        time.sleep(0.05)
    bandwidth(lambda: None, reads={BYTES})
"""


@dataclass(frozen=True)
class Ran:
    code: int
    text: str


def free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


class Nodes:
    """Four Ray nodes, as if they were four machines."""

    def __init__(self, control: Path) -> None:
        self.control = control
        os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from ray.cluster_utils import Cluster

            self._cluster = Cluster()
        self._client_port = free_port()
        self._nodes = [self._add(i) for i in range(4)]
        self.address = self._cluster.address
        self.client = f"ray://127.0.0.1:{self._client_port}"

    def kill(self, node: int) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._cluster.remove_node(self._nodes[node], allow_graceful=False)

    def close(self) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            session = self._cluster.head_node.get_session_dir_path()
            self._cluster.shutdown()
        shutil.rmtree(session, ignore_errors=True)

    def _add(self, number: int) -> object:
        variables = {"FLEET_NODE": f"n{number}", "FLEET_CONTROL": str(self.control), "FLEET_SUPPORT": str(SUPPORT)}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return self._cluster.add_node(
                num_cpus=1,
                num_gpus=GPUS,
                # One node is told by a model of its own.
                resources={"accelerator_type:T9": 1} if number == 1 else {},
                object_store_memory=80 * 2**20,
                ray_client_server_port=self._client_port if number == 0 else None,
                include_dashboard=False,
                env_vars=variables,
            )


@pytest.fixture(scope="module")
def nodes(tmp_path_factory):
    cluster = Nodes(tmp_path_factory.mktemp("control"))
    yield cluster
    cluster.close()


class Project:
    """A project whose tests the fleet runs, and what befalls the cards."""

    def __init__(self, folder: Path, nodes: Nodes) -> None:
        self.folder, self.nodes, self.control = folder, nodes, nodes.control
        for left in self.control.iterdir():
            left.unlink()
        self.set_gbps({})
        (folder / "conftest.py").write_text(CONFTEST)
        (folder / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        (folder / "test_all.py").write_text(TESTS)

    def set_gbps(self, of: dict[str, float]) -> None:
        (self.control / "gbps.json").write_text(json.dumps(of))

    def befall(self, what: str, card: str, data: bytes = b"x") -> None:
        (self.control / f"{what}-{card}").write_bytes(data)

    def start(self, *options: str, pytest_args: tuple[str, ...] = (), device: str = "cpu") -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "pytest_bandwidth.cli", "fleet", "--address", self.nodes.address]
        command += [*options, "-o", "fleet.json", "--"]
        command += ["-p", "no:randomly", f"--bandwidth-device={device}", "--bandwidth-max-time=0.05", *pytest_args]
        own = {**os.environ, "FLEET_CONTROL": str(self.control), "FLEET_SUPPORT": str(SUPPORT)}
        own.pop("PYTEST_ADDOPTS", None)
        return subprocess.Popen(
            command, cwd=self.folder, env=own, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    def end(self, process: subprocess.Popen[str]) -> Ran:
        text, _ = process.communicate(timeout=HANGS_SECONDS)
        return Ran(process.returncode, text)

    def run(self, *options: str, pytest_args: tuple[str, ...] = (), device: str = "cpu") -> Ran:
        return self.end(self.start(*options, pytest_args=pytest_args, device=device))

    def rows(self) -> dict[str, dict]:
        """Rows of the fleet's document, by card: ``n1-0``, or the card's name where its device is unknown."""
        cards = json.loads((self.folder / "fleet.json").read_text())["cards"]
        return {row["device"]["serial"] if row["device"] else row["name"]: row for row in cards}

    def states(self) -> list[str]:
        return sorted(row["state"] for row in self.rows().values())

    def nothing_is_left(self) -> bool:
        return all(gone(int(pid)) for pid in (self.control / "pids").read_text().split())


@pytest.fixture
def project(nodes, tmp_path):
    (tmp_path / "project").mkdir()
    return Project(tmp_path / "project", nodes)


def test_hostile_documents_are_refused_in_one_line_and_the_rest_stands(project):
    project.befall("hostile", "n1-0", b"{" * 100_000)
    device = {"kind": "cpu", "name": "\x1b[31m" + "N" * 10**6, "serial": "../../x", "timed_on": "host"}
    named = {"schema": 1, "run_id": "r", "device": device, "results": []}
    project.befall("hostile", "n1-1", json.dumps(named).encode())
    ran = project.run("--only", "T9", pytest_args=("--bandwidth-json=run.json",))
    assert ran.code == 3, ran.text
    assert len(list(project.folder.glob("run*.json"))) == 2
    assert sorted(row["reason"] for row in project.rows().values()) == [
        "",
        "",
        "refused: its device's name has 1000005 characters, expected 200 at most",
        "refused: its document: found no JSON, expected a document that --bandwidth-json wrote",
    ]
    assert "\x1b[31m" not in ran.text


def test_a_hang_a_crash_and_their_retries(project):
    project.befall("hold", "n1-0")
    project.befall("crash", "n1-1")
    ran = project.run("--only", "T9", "--timeout", "15", "--retries", "1")
    assert ran.code == 3, ran.text
    rows = project.rows()
    assert project.states() == ["measured", "measured", "measured", "missing"]
    assert (rows["n1-1"]["attempts"], rows["n1-2"]["attempts"]) == (2, 1)
    hung = next(row for row in rows.values() if row["state"] == "missing")
    assert hung["name"].endswith(" GPU 0")
    assert (hung["reason"], hung["attempts"]) == ("pytest did not end in 15 s, and was ended", 2)
    # Where it hung.
    assert any(re.search(r"test_all.py:\d+: KeyboardInterrupt", line) for line in hung["tail"]), hung["tail"]
    assert "1 failed, 3 passed" in ran.text
    assert project.nothing_is_left()


def test_an_interrupt_ends_all_children(project):
    for gpu in range(GPUS):
        project.befall("hold", f"n1-{gpu}")
    process = project.start("--only", "T9")
    for gpu in range(GPUS):
        wait_for(project.control / f"started-n1-{gpu}")
    process.send_signal(signal.SIGTERM)  # which it takes as SIGINT
    ran = project.end(process)
    assert ran.code == 130, ran.text
    assert project.nothing_is_left()
    assert project.states() == ["missing"] * GPUS


def test_a_gpu_that_cannot_be_used_is_no_measurement_of_the_host(project):
    ran = project.run("--only", "T9", device="auto")
    assert ran.code == 3, ran.text
    reasons = {row["reason"] for row in project.rows().values()}
    assert reasons == {"no GPU can be used there, its pytest measured the host (Card 9)"}


def test_an_environment_that_ray_cannot_make(project, tmp_path):
    """Whether conda is installed here or not."""
    file = tmp_path / "env.json"
    file.write_text('{"conda": "no such environment"}')
    ran = project.run("--only", "T9", "--per", "node", "--runtime-env", str(file))
    assert ran.code == 3, ran.text
    (row,) = project.rows().values()
    assert row["reason"].startswith("Ray cannot make its environment there: ValueError: "), row
    assert row["tail"][-1] == row["reason"].partition(": ")[2]


def test_an_update_is_written_by_the_caller_alone_from_all_good_cards(project):
    project.set_gbps({"n1-0": 45.0, "n1-1": 91.0})
    ran = project.run(
        "--only", "T9", pytest_args=("--bandwidth-update", "--bandwidth-runs=2", "--bandwidth-baseline=baselines")
    )
    assert ran.code == 0, ran.text
    entry = baseline_files.load(project.folder / "baselines" / "card-9.yaml").entries.get("test_all.py::test_copy")
    assert [(run.gpu, run.gbps) for run in entry.runs] == [
        ("n1-1", 91.0),
        ("n1-2", 90.0),
        ("n1-3", 90.0),
    ] * 2
    assert "Card 9 (n1-0) was left out of the baseline's update: it is an outlier" in ran.text
    project.set_gbps({"n1-2": 60.0})
    judged = ("--bandwidth-baseline=baselines", "--bandwidth-history=history", "--bandwidth-strict")
    ran = project.run("--only", "T9", pytest_args=judged)
    # The code is the baseline's, which never fails: what it lost is the card's, an outlier among those of its model.
    assert ran.code == 0, ran.text
    assert project.rows()["n1-2"]["statuses"] == {"OK": 1}
    assert project.states() == ["measured"] * 4
    assert re.search(r"Card 9 \(n1-2\) is \d+\.\d % slower than the median of 4 devices of its model", ran.text)
    assert len(list((project.folder / "history").rglob("*.parquet"))) == 4


def test_the_fleets_history_may_lie_in_a_bucket_which_the_cards_do_not_reach(project):
    pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'pytest-bandwidth[bucket]'")
    store = project.folder.parent / "bucket"
    ran = project.run("--only", "T9", pytest_args=(f"--bandwidth-history=file://{store}",))
    assert ran.code == 0, ran.text
    assert len(list(store.glob("*.parquet"))) == 4
    ran = project.run("--only", "T9", pytest_args=("--bandwidth-history=nope://key:hunter2@bucket",))
    assert ran.code == 2
    assert "--bandwidth-history: nope://***@bucket: cannot be opened: Protocol not known: nope" in ran.text
    assert "hunter2" not in ran.text


def test_a_node_has_one_run_that_sees_all_its_gpus(project):
    ran = project.run("--only", "T9", "--per", "node")
    assert ran.code == 0, ran.text
    (row,) = project.rows().values()
    assert (row["state"], row["gpus"], row["name"] == row["node"]) == ("measured", GPUS, True)
    assert row["device"]["serial"] == "n1-0,1,2,3"
    # Through Ray's client.
    ran = project.run("--only", "T9", "--per", "node", "--address", project.nodes.client)
    assert ran.code == 0, ran.text
    assert project.states() == ["measured"]
    # In a checkout that the nodes have.
    there = project.folder.with_name("there")
    project.folder.rename(there)
    project.folder.mkdir()
    ran = project.run("--only", "T9", "--per", "node", "--chdir", str(there))
    assert ran.code == 0, ran.text
    assert project.states() == ["measured"]
    ran = project.run("--only", "no such model")
    assert ran.code == 2, ran.text
    assert "--only no such model: found no such card, expected one of T9, " in ran.text


# The last: a node dies in it.
def test_sixteen_cards_one_slow_and_a_node_that_dies(project):
    project.set_gbps({"n2-3": 45.0})
    ran = project.run(pytest_args=("--bandwidth-json=run.json",))
    assert ran.code == 0, ran.text
    rows = project.rows()
    assert sorted(rows) == [f"n{node}-{gpu}" for node in range(4) for gpu in range(GPUS)]
    assert [serial for serial, row in rows.items() if row["unlike"]] == ["n2-3"]
    assert ran.text.count("FLEET Card 9 (n2-3) is 50.0 % slower than the median of 16 devices of its model") == 1
    assert len(list(project.folder.glob("run.*.json"))) == 16

    for gpu in range(GPUS):
        project.befall("hold", f"n3-{gpu}")
        (project.control / f"started-n3-{gpu}").unlink()
    process = project.start()
    for gpu in range(GPUS):
        wait_for(project.control / f"started-n3-{gpu}")
    project.nodes.kill(3)
    ran = project.end(process)
    assert ran.code == 3, ran.text
    rows = project.rows()
    assert project.states() == ["measured"] * 12 + ["missing"] * 4
    missing = {name: row["reason"] for name, row in rows.items() if row["state"] == "missing"}
    assert set(missing.values()) == {"the node died"}
    assert sorted(name.partition(" ")[2] for name in missing) == [f"GPU {gpu}" for gpu in range(GPUS)]
    assert project.nothing_is_left()
