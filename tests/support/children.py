"""Wait for processes that tests start: for what they write, and until they are gone."""

import time
from pathlib import Path

# What such processes may import beside the package, once it is on their path.
SUPPORT = Path(__file__).resolve().parent


def wait_for(path):
    """Wait until a process has written something to the file."""
    for _ in range(300):
        if path.exists() and path.read_text():
            return
        time.sleep(0.1)  # it is no child of ours: its file is all that it tells
    raise AssertionError(f"{path} did not appear")


def gone(pid):
    """Return whether the process ends within seconds."""
    for _ in range(100):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.1)  # only its parent could wait for its end
    return False
