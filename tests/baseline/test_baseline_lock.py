"""Nothing that happens to a process, a disk or a clock loses what a baseline holds."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from full_disks import file_size_limit
from updater_processes import without_privileges

from pytest_bandwidth import baseline as baseline_files
from pytest_bandwidth.baseline import files
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import BaselineError

DEVICE = DeviceIdentity("cpu", "X", None, "host")
SCRIPT = Path(__file__).parents[1] / "support" / "updater_processes.py"


def run(*arguments):
    done = subprocess.run([sys.executable, SCRIPT, *map(str, arguments)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_killed_updates_leave_the_file_whole(tmp_path):
    rounds = 20
    seen = run("kill", tmp_path / "a.yaml", rounds, 7)
    assert seen["rounds"] == rounds
    # The kills fell where it matters: between updates alone they would prove nothing.
    assert seen["updates"] > 0
    assert seen["killed_while_locked"] > rounds / 4


def test_concurrent_updates_lose_nothing(tmp_path):
    processes, updates = 8, 5
    seen = run("together", tmp_path / "a.yaml", processes, updates)
    assert seen == {"failed": 0, "entries": processes * updates, "counter": processes * updates}
    assert sorted(os.listdir(tmp_path)) == ["a.runs.jsonl", "a.yaml"]


@contextmanager
def holder(path):
    process = subprocess.Popen([sys.executable, SCRIPT, "hold", path], stdout=subprocess.PIPE, text=True)
    try:
        assert int(process.stdout.readline()) == process.pid
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture
def impatient(monkeypatch):
    monkeypatch.setattr(files, "LOCK_TIMEOUT_SECONDS", 0.2)


@pytest.mark.usefixtures("impatient")
def test_a_held_lock_is_waited_for_and_its_holder_named(tmp_path):
    path = tmp_path / "a.yaml"
    with holder(path) as process:
        with pytest.raises(
            BaselineError, match=rf"locked by 'process {process.pid} on .*' for more than 0.2 s, expected"
        ):
            baseline_files.update(path, DEVICE, [Entry("a", 5.0)])
        assert not path.exists()


@pytest.mark.usefixtures("impatient")
def test_a_lock_of_a_dead_process_is_no_lock_and_what_it_left_no_obstacle(tmp_path):
    path = tmp_path / "a.yaml"
    with holder(path) as process:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert (tmp_path / ".a.yaml.lock").exists()
    (tmp_path / ".a.yaml.new").write_text("half a fi")
    (tmp_path / ".a.yaml.new").chmod(0o400)
    baseline_files.update(path, DEVICE, [Entry("a", 5.0)])
    assert os.listdir(tmp_path) == ["a.yaml"]


def test_a_lock_file_that_is_a_link_is_not_followed(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / ".a.yaml.lock").symlink_to(victim)
    with pytest.raises(BaselineError, match="found no way to write it"):
        baseline_files.update(tmp_path / "a.yaml", DEVICE, [Entry("a", 5.0)])
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("left", [4096, 0], ids=["some", "none"])  # with none, the lock says nothing of its holder
def test_a_disk_without_room_leaves_the_old_file(tmp_path, left):
    path = tmp_path / "a.yaml"
    baseline_files.update(path, DEVICE, [Entry("a", 5.0)])
    before = path.read_bytes()
    many = [Entry(f"tests/test_many.py::test_{number}", 5.0) for number in range(300)]
    with (
        file_size_limit(left),
        pytest.raises(BaselineError, match=r"a\.yaml:1: found no way to write it \(File too large\)"),
    ):
        baseline_files.update(path, DEVICE, many)
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["a.yaml"]
    assert len(baseline_files.update(path, DEVICE, many)) == 300


def test_a_read_only_folder_is_told(tmp_path):
    baseline_files.update(tmp_path / "warm.yaml", DEVICE, [Entry("a", 5.0)])  # imports everything while that is allowed
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "a.yaml"
        baseline_files.update(path, DEVICE, [Entry("a", 5.0)])
        before = path.read_bytes()
        Path(folder).chmod(0o555)
        with without_privileges():
            for write in (
                lambda: baseline_files.update(path, DEVICE, [Entry("b", 5.0)]),
                lambda: baseline_files.remove(path, ["a"]),
                lambda: baseline_files.init(path.with_name("new.yaml"), DEVICE),
                lambda: baseline_files.update(path.parent / "sub" / "new.yaml", DEVICE, [Entry("b", 5.0)]),
            ):
                with pytest.raises(
                    BaselineError, match=r"found no way to write it \(Permission denied\), expected a writable"
                ):
                    write()
            assert baseline_files.load(path).entries.keys() == {"a"}
        assert path.read_bytes() == before
        assert os.listdir(folder) == ["a.yaml"]
        Path(folder).chmod(0o755)
