"""The neighbours that tests run beside: they use processors, and end when they should."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from children import SUPPORT
from neighbours import KINDS, beside

pytestmark = [
    pytest.mark.processes,
    pytest.mark.smoke,
    pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc to see other processes"),
]
SCRIPT = SUPPORT / "neighbours.py"


def descendants(of):
    """Return the processor seconds used by each process below `of`, with those of their children that have ended."""
    parents, seconds = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
        except OSError:
            continue  # it has ended meanwhile
        if fields[0] != "Z":
            parents[int(stat.parent.name)] = int(fields[1])
            seconds[int(stat.parent.name)] = sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")
    found = set()
    while more := {pid for pid, parent in parents.items() if parent in {of, *found}} - found:
        found |= more
    return {pid: seconds[pid] for pid in found}


def until(holds):
    """Wait for a condition, for minutes at most: the machine may be busy."""
    for _ in range(1200):
        if holds():
            return
        time.sleep(0.1)  # other processes do not say what they have done
    raise AssertionError("it did not come to hold in two minutes")


@pytest.mark.parametrize("kind", KINDS)
def test_neighbours_use_processors_and_are_gone_after_the_block(kind):
    with beside(kind) as server:
        until(lambda: sum(descendants(server).values()) > 0.3)
        there = set(descendants(server))
    until(lambda: not there & set(descendants(os.getpid())) and not any(map(running, there)))


def running(pid):
    """Return whether a process of that number is one of the neighbours."""
    try:
        return b"neighbours.py" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False


def test_they_end_with_what_started_them_though_it_is_killed():
    command = [sys.executable, str(SCRIPT), "steady", "sleep", "600"]
    started = subprocess.Popen(command)
    try:
        until(lambda: sum(map(running, descendants(started.pid))) > len(os.sched_getaffinity(0)))
        (sleeping,) = [pid for pid in descendants(started.pid) if not running(pid)]
        there = set(descendants(started.pid)) - {sleeping}
    finally:
        started.send_signal(signal.SIGKILL)
        started.wait()
    os.kill(sleeping, signal.SIGKILL)  # the command itself is not ours to end
    until(lambda: not any(map(running, there)))


def test_they_end_when_their_time_is_up():
    with beside("steady", seconds=0.5) as server:
        until(lambda: not any(map(running, [server, *descendants(server)])))


@pytest.mark.parametrize(("kind", "status"), [("none", 0), ("bursts", 7)])
def test_the_commands_status_is_theirs(kind, status):
    command = [sys.executable, str(SCRIPT), kind, sys.executable, "-c", f"raise SystemExit({status})"]
    assert subprocess.run(command, check=False).returncode == status
