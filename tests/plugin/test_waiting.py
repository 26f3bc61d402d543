"""A run that waits for the device says so: in a log by one line, on a terminal at once."""

import os
import subprocess
import sys

import pytest
from children import HANGS_SECONDS
from user_project import COPY

from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.measuring.measurer import DeviceLock

# So long a run waits that says nothing; then the test fails instead of waiting for ever.
LOCK = f"bandwidth_lock_timeout={HANGS_SECONDS}"
# As a conftest.py: what is a long wait there is a short one here.
SOON = "import pytest_bandwidth.measuring.measurer as locking\nlocking.LONG_WAIT_SECONDS = 0.2\n"


@pytest.fixture
def device_lock(tmp_path, monkeypatch):
    """The host's lock, apart from whatever else this machine measures."""
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return DeviceLock(CpuDevice().identity, 5.0)


def test_a_log_has_one_line_about_a_long_wait(project, device_lock):
    project.file("conftest.py", SOON)
    project.file("test_copy.py", COPY)
    with device_lock.held():
        waiting = project.start("-o", LOCK)
        said = next((line for line in waiting.stdout if "waits for" in line), "")
    rest, _ = waiting.communicate(timeout=HANGS_SECONDS)
    assert said.startswith(f"bandwidth: test_copy waits for process {os.getpid()} (")
    assert said.endswith(f"), which measures on {CpuDevice().identity.name}\n")
    assert "waits for" not in rest
    assert waiting.returncode == 0, rest


def test_a_terminal_shows_a_wait_at_once(project, device_lock, monkeypatch):
    monkeypatch.delenv("CI", raising=False)
    project.file("test_copy.py", COPY)
    ours, theirs = os.openpty()
    command = [sys.executable, "-m", "pytest", "--bandwidth-device=cpu", "-o", LOCK]
    with device_lock.held(), os.fdopen(ours, "rb", buffering=0) as screen:
        waiting = subprocess.Popen(command, cwd=project.path, stdout=theirs, stderr=theirs)
        os.close(theirs)
        said = b""
        try:
            while b" (" not in said.partition(b"waits for process")[2] and (more := read(screen)):
                said += more
        finally:
            waiting.kill()
            waiting.wait()
    assert f"test_copy: waits for process {os.getpid()} (" in said.decode(errors="replace")


def read(screen):
    """What a process wrote next; nothing once it has ended."""
    try:
        return screen.read(4096)
    except OSError:
        return b""
