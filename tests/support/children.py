"""Wait for processes that tests start: for what they write, and until they are gone."""

import os
import signal
import time
from pathlib import Path

import pytest

# Past this a process hangs: none takes so long, however busy the machine is.
HANGS_SECONDS = 300
# What such processes may import beside the package, once it is on their path.
SUPPORT = Path(__file__).resolve().parent


def wait_for(path):
    """Wait until a process has written something to the file."""
    for _ in range(10 * HANGS_SECONDS):
        if path.exists() and path.read_text():
            return
        time.sleep(0.1)  # it is no child of ours: its file is all that it tells
    raise AssertionError(f"{path} did not appear")


def gone(pid):
    """Return whether the process ends."""
    for _ in range(10 * HANGS_SECONDS):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)  # only its parent could wait for its end
    return False


def computes(process, seconds):
    """Wait until a process has used so much of the processors, however long it waited for them. Needs /proc."""
    for _ in range(10 * HANGS_SECONDS):
        assert process.poll() is None, f"it ended with {process.returncode}"
        fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
        if (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") >= seconds:
            return
        time.sleep(0.1)  # it does not say what it does
    raise AssertionError(f"process {process.pid} does not compute")


def heeded(name):
    """Return the number of a signal; skip where it is ignored here, and so by what is started here."""
    number = getattr(signal, name)
    if signal.getsignal(number) is signal.SIG_IGN:
        pytest.skip(f"{name} is ignored here: nohup, or a background job")
    return number
