"""Fresh processes: how many load at a time, how they start, what comes back, and that none is left behind."""

import os
import socket
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from children import gone, wait_for

from pytest_bandwidth.devices import host
from pytest_bandwidth.domain.device import SAME_PROCESS_IDS, DeviceIdentity, Peak
from pytest_bandwidth.evidence.processes.child import (
    MOST_ON_HOST,
    FreshProcessFailed,
    Invocation,
    StartedAhead,
    room_on,
)
from pytest_bandwidth.evidence.processes.requests import ChildRequest, Go, ParentLine, WholeRun, read_request

CPU = ChildRequest("cpu")


def invocation(tmp_path, code):
    """A stand-in for pytest: a module of that name in the folder, which python -m finds first."""
    (tmp_path / "pytest.py").write_text(code)
    return Invocation(("--some", "option"), tmp_path, as_module=True, extra_args=("-n0",))


def rows_of(invocation, request=CPU, timeout_seconds=60):
    with invocation.start(request) as child:
        return child.rows(timeout_seconds)


REPORTS = """
import json, os, sys
handed = json.load(open(os.environ["PYTEST_BANDWIDTH_REQUEST"]))
request = handed["child"]
assert handed["from"][0] == os.getppid()
json.dump([{"request": request, "args": sys.argv[1:], "stdin": sys.stdin.read()}], open(request["report"], "w"))
"""


def test_child_gets_options_request_and_no_input_and_is_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_ours", set())
    asked = ChildRequest("cpu", target="/p/t.py::t", nodeids=("t.py::t",), rounds_share=0.5, peak=Peak(1e9, "a test"))
    (row,) = rows_of(invocation(tmp_path, REPORTS), asked)
    assert row["args"] == ["--some", "option", "-n0"]
    assert row["stdin"] == ""
    assert len(host.remembered()) == 1
    request = read_request(row["request"])
    assert request == replace(asked, report=request.report, line=request.line)
    assert not Path(request.report).parent.exists(), "the folder of the request is gone"


def test_what_the_child_said_is_in_the_message(tmp_path):
    code = "print('\\n'.join(f'line {i}' for i in range(40)))\nraise SystemExit(4)\n"
    with pytest.raises(FreshProcessFailed, match=r"ended with exit status 4(.|\n)*line 39") as error:
        rows_of(invocation(tmp_path, code))
    assert "line 5\n" not in str(error.value)


def test_a_child_that_hangs_is_ended_with_its_own_children(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(FreshProcessFailed, match="did not end in 2 s"):
        rows_of(invocation(tmp_path, code), timeout_seconds=2)
    assert gone(int((tmp_path / "pid").read_text()))


COUNTS = """
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from pytest_bandwidth.evidence.processes.child import Child
from pytest_bandwidth.evidence.processes.requests import ChildRequest

profiler = "import os, time; open('profiler', 'w').write(str(os.getpid())); time.sleep(600)"
with Child([sys.executable, "-c", profiler], Path(), ChildRequest("cpu"), direct=False) as child:
    child.finish(600)
"""


@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="needs Linux's handles of processes")
def test_a_child_that_counts_ends_its_hanging_profiler_first(tmp_path, monkeypatch):
    """The profiler has a process group of its own, which whoever ends the child does not know."""
    folders = tmp_path / "folders"
    folders.mkdir()
    (tmp_path / "pytest.py").write_text(COUNTS)
    monkeypatch.setattr(tempfile, "tempdir", str(folders))
    monkeypatch.setenv("TMPDIR", str(folders))
    with Invocation((), tmp_path, as_module=True).start(WholeRun("cpu")):
        wait_for(tmp_path / "profiler")
    assert gone(int((tmp_path / "profiler").read_text()))
    assert list(folders.iterdir()) == []


@pytest.fixture
def line():
    """A parent's end of the line to this process, and the descriptor of the other."""
    ours, theirs = socket.socketpair()
    with ours:
        yield ours, theirs.detach()


def test_a_child_says_that_it_is_ready_and_measures_when_it_may(line):
    line, descriptor = line
    line.sendall(b'{"other": 17, "processor": 1}\n')
    go = ParentLine(descriptor).wait_for_turn()
    assert line.recv(100) == b"ready\n"
    assert go == Go(other=17, processor=1)
    assert ParentLine(None).wait_for_turn() == Go(), "without a line it waits for nobody"


def test_a_child_that_is_not_wanted_any_more_ends(line):
    line, descriptor = line
    line.shutdown(socket.SHUT_WR)
    with pytest.raises(SystemExit, match="no longer needs it"):
        ParentLine(descriptor).wait_for_turn()


GIB = 2**30


def gpu(memory_bytes, processes):
    return DeviceIdentity("cuda", "any", memory_bytes, "serial", facts={"other_processes": processes}, timed_on="gpu")


@pytest.mark.parametrize(
    ("identity", "expected"),
    [
        (DeviceIdentity("cpu", "any", 8 * GIB, "host"), MOST_ON_HOST),
        (gpu(140 * GIB, SAME_PROCESS_IDS), 14),
        (gpu(8 * GIB, SAME_PROCESS_IDS), 1),
        (gpu(None, SAME_PROCESS_IDS), 1),
        # A process that finds its own number by what appears as it opens the GPU has to be the only one that does.
        (gpu(140 * GIB, "host process id 4711 (another pid namespace)"), 1),
    ],
)
def test_a_gpu_is_opened_by_as_many_as_it_has_room_for(identity, expected):
    assert room_on(identity) == expected


class Process:
    """Stands for a child: what is looked at is when it starts, is waited for, and ends."""

    def __init__(self, seen, number):
        self.seen, self.number = seen, number
        seen.append(f"starts {number}")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.seen.append(f"ends {self.number}")

    def wait_until_ready(self, timeout_seconds):
        self.seen.append(f"waited {timeout_seconds} s for {self.number}")


@pytest.fixture
def seen():
    return []


@pytest.fixture
def start(seen):
    numbers = iter(range(1, 100))
    return lambda: Process(seen, next(numbers))


def number_of(child):
    return child.number


def failing(*numbers):
    """Measure as those processes do which find no memory."""

    def measure(child):
        if child.number in numbers:
            raise FreshProcessFailed(f"{child.number} found no memory")
        return child.number

    return measure


def test_what_fails_beside_others_that_have_memory_of_the_gpu_is_tried_once_more_alone(seen, start):
    with StartedAhead(8, 60) as ahead:
        assert ahead.measured(start, 3, failing(1)) == 4
        assert seen[-5:] == ["ends 3", "ends 2", "ends 1", "starts 4", "waited 60 s for 4"]
        assert ahead.measured(start, 3, number_of) == 5, "and so are all that follow"
        assert "starts 6" not in seen
    with StartedAhead(8, 60) as ahead, pytest.raises(FreshProcessFailed, match="8 found no"):
        ahead.measured(start, 2, failing(6, 7, 8))


def test_what_fails_though_nobody_has_its_memory_is_not_tried_again(seen, start):
    with StartedAhead(8, 60) as ahead, pytest.raises(FreshProcessFailed, match="1 found no memory"):
        ahead.measured(start, 1, failing(1, 2))
    assert len([line for line in seen if line.startswith("starts")]) == 1


def test_where_one_cannot_start_those_before_it_are_ended_and_none_waits(seen, start):
    def breaks():
        if len(seen) == 1:
            raise OSError("no process left")
        return start()

    with StartedAhead(8, 60) as ahead:
        with pytest.raises(OSError, match="no process left"):
            ahead.measured(breaks, 3, number_of)
        assert ahead.measured(start, 1, number_of) == 2
    assert seen[-2:] == ["ends 2", "ends 1"]
