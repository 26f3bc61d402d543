"""One measurement at a time on a device, whoever asks."""

import os
import stat
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager

import pytest
from filelock import FileLock, Timeout
from full_disks import file_size_limit

from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.measuring import measurer as locking
from pytest_bandwidth.measuring.measurer import DeviceLock, lock_folder

DEVICE = DeviceIdentity("cpu", "A host", None, "serial-1")
HOLDER = """
import sys, time
from pytest_bandwidth.domain.device import DeviceIdentity
from pytest_bandwidth.measuring.measurer import DeviceLock
with DeviceLock(DeviceIdentity("cpu", "A host", None, "serial-1"), 30.0).held():
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture(autouse=True)
def own_folder(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))


def started(*arguments):
    return subprocess.Popen([sys.executable, "-c", HOLDER, *arguments], stdout=subprocess.PIPE, text=True)


@pytest.fixture
def other_process():
    child = started("--token=hunter2", "--bandwidth-history=s3://key:hunter2@b/h", "hunter2")
    assert child.stdout.readline() == "held\n"
    yield child
    child.kill()
    child.communicate()


# The message shows no secret of the process that holds the lock.
SAID = r"\(-c … --bandwidth-history=s3://\*\*\*@b/h …\)"


def refused(holder, lock=None, match=r"measured by process {pid} .*bandwidth_lock_timeout"):
    """See that the device is not free, and why."""
    expected = match.format(pid=holder.pid)
    with pytest.raises(DeviceUnavailable, match=expected), (lock or DeviceLock(DEVICE, 0.3)).held():
        pass


def test_a_second_process_waits_and_names_the_holder_unless_that_is_its_parent(other_process, tmp_path, monkeypatch):
    refused(other_process, match=f"measured by process {{pid}} {SAID}.*bandwidth_lock_timeout")
    assert "hunter2" not in "".join(file.read_text() for file in lock_folder().iterdir())
    with DeviceLock(DeviceIdentity("cpu", "A host", None, "serial-2"), 0.3).held():
        pass
    with DeviceLock(DEVICE, 0.3, held_by_parent=True).held():
        pass
    assert other_process.poll() is None
    (tmp_path / "runtime").mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "runtime"))
    refused(other_process)


def test_who_waits_is_told_the_holder_at_once_and_once_more_after_a_while(other_process, monkeypatch):
    holder = (
        f"waits for process {other_process.pid} (-c … --bandwidth-history=s3://***@b/h …), which measures on A host"
    )
    for long_wait_seconds, expected in ((0.4, ([holder], [])), (0.1, ([holder], [holder]))):
        monkeypatch.setattr(locking, "LONG_WAIT_SECONDS", long_wait_seconds)
        told, noted = [], []
        with pytest.raises(DeviceUnavailable), DeviceLock(DEVICE, 0.3).held(told.append, noted.append):
            pass
        assert (told, noted) == expected


def test_nobody_is_told_where_nobody_waits_and_it_can_be_taken_again_inside_itself():
    told = []
    lock = DeviceLock(DEVICE, 0.3)
    with lock.held(told.append, told.append), lock.held(told.append, told.append):
        pass
    assert told == []
    lock = DeviceLock(DEVICE, 0.3)
    with pytest.raises(ZeroDivisionError), lock.held(), lock.held():
        raise ZeroDivisionError
    with DeviceLock(DEVICE, 0.3).held():
        pass


def test_a_dead_holder_holds_nothing(other_process):
    other_process.kill()
    with DeviceLock(DEVICE, 30.0).held():
        pass


@contextmanager
def in_line():
    """Another process, which waits for the device that is held."""
    waiter = started()
    try:
        wait_until_in_line()
        yield waiter
    finally:
        waiter.kill()
        waiter.communicate()


def test_who_waits_comes_before_who_had_it():
    lock = DeviceLock(DEVICE, 0.3)
    with ExitStack() as ends:
        with lock.held():
            waiter = ends.enter_context(in_line())
        refused(waiter, lock)


def test_it_is_held_and_named_until_the_outer_hold_ends_though_another_process_waits():
    lock = DeviceLock(DEVICE, 0.3)
    with lock.held(), in_line() as waiter:
        for _ in range(2):
            with lock.held():
                pass
            (holder,) = lock_folder().glob("*.holder")
            assert f'"pid": {os.getpid()}' in holder.read_text()
            assert waiter.poll() is None


def wait_until_in_line():
    """Until another process stands in the line of the one device that is held."""
    (line,) = lock_folder().glob("*.line")
    for _ in range(600):
        try:
            with FileLock(line).acquire(timeout=0):
                pass
        except Timeout:
            return
        time.sleep(0.05)  # another process is starting
    raise AssertionError("no process waits for the device")


def test_a_garbled_holder_file_is_no_trouble(other_process):
    for garbage in ("", "[", "[1]"):
        (holder,) = lock_folder().glob("*.holder")
        holder.write_text(garbage)
        with pytest.raises(DeviceUnavailable, match="measured by another process"), DeviceLock(DEVICE, 0.1).held():
            pass
    assert other_process.poll() is None


def test_a_full_disk_costs_the_holders_name_and_nothing_else():
    with file_size_limit(0), DeviceLock(DEVICE, 0.3).held():
        (holder,) = lock_folder().glob("*.holder")
        assert holder.read_text() == ""


@pytest.fixture
def taken(tmp_path, request):
    """What lies where the folder of locks belongs."""
    folder, elsewhere = tmp_path / f"pytest-bandwidth-{os.getuid()}", tmp_path / "elsewhere"
    elsewhere.mkdir()
    if request.param == "a file":
        folder.touch()
    elif request.param in ("a link", "a dead link"):
        folder.symlink_to(elsewhere if request.param == "a link" else tmp_path / "nowhere")
    else:
        folder.mkdir()
        folder.chmod(0o777)
    return folder


@pytest.mark.parametrize("taken", ["a file", "a link", "a dead link", "an open folder"], indirect=True)
def test_where_the_name_is_taken_locks_lie_where_only_the_user_writes_or_nowhere(taken, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    with pytest.raises(DeviceUnavailable, match=rf"^{taken} is not a folder of this user's.*TMPDIR$") as error:
        DeviceLock(DEVICE, 0.3)
    assert "\n" not in str(error.value)
    assert not (tmp_path / "nowhere").exists()
    runtime = tmp_path / "runtime"
    runtime.mkdir(mode=0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(runtime))
    assert lock_folder() == runtime / "pytest-bandwidth"
    assert stat.S_IMODE(lock_folder().stat().st_mode) == 0o700
    assert taken.lstat(), "nothing of it was touched"


@pytest.mark.skipif(os.getuid() != 0, reason="only root gives folders away")
def test_another_users_folder_is_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    folder = tmp_path / f"pytest-bandwidth-{os.getuid()}"
    folder.mkdir(mode=0o700)
    os.chown(folder, 54321, -1)
    with pytest.raises(DeviceUnavailable, match="found one of the user 54321"):
        lock_folder()
