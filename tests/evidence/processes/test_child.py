"""Fresh processes: what they are started with, what comes back, and that none is left behind."""

import os
import signal
import socket
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from children import HANGS_SECONDS, gone, wait_for

from pytest_bandwidth.devices import host
from pytest_bandwidth.domain.device import Peak
from pytest_bandwidth.evidence.processes.child import FreshProcessFailed, Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest, Go, ParentLine, WholeRun, read_request

CPU = ChildRequest("cpu")


@pytest.fixture
def many_files_open():
    """Have numbers of further files lie above 1,023, which select() does not take."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = 4096 if hard == resource.RLIM_INFINITY else min(hard, 4096)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    yield
    for file in opened:
        os.close(file)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


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


def test_child_gets_options_request_and_no_input(tmp_path):
    asked = ChildRequest("cpu", target="/p/t.py::t", nodeids=("t.py::t",), rounds_share=0.5, peak=Peak(1e9, "a test"))
    (row,) = rows_of(invocation(tmp_path, REPORTS), asked)
    assert row["args"] == ["--some", "option", "-n0"]
    assert row["stdin"] == ""
    request = read_request(row["request"])
    assert request == replace(asked, report=request.report, line=request.line)
    assert not Path(request.report).parent.exists(), "the folder of the request is gone"


def test_a_child_is_remembered_as_ours(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "_ours", set())
    rows_of(invocation(tmp_path, REPORTS))
    assert len(host.remembered()) == 1


def test_what_the_child_said_is_in_the_message(tmp_path):
    code = "print('\\n'.join(f'line {i}' for i in range(40)))\nraise SystemExit(4)\n"
    with pytest.raises(FreshProcessFailed, match=r"ended with exit status 4(.|\n)*line 39") as error:
        rows_of(invocation(tmp_path, code))
    assert "line 5\n" not in str(error.value)


def test_a_report_without_rows_is_a_failure(tmp_path):
    code = REPORTS.replace("json.dump([", "json.dump([][:0] and [")
    with pytest.raises(FreshProcessFailed, match="measured nothing"):
        rows_of(invocation(tmp_path, code))


def test_a_child_that_hangs_is_ended_with_its_own_children(tmp_path):
    code = (
        "import subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "open('pid', 'w').write(str(child.pid))\n"
        "time.sleep(600)\n"
    )
    with pytest.raises(FreshProcessFailed, match="did not end in 3 s"):
        rows_of(invocation(tmp_path, code), timeout_seconds=3)
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
@pytest.mark.usefixtures("many_files_open")
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


@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs POSIX signals")
def test_an_interrupt_leaves_no_child_and_no_folder(tmp_path):
    (tmp_path / "pytest.py").write_text(
        "import os, time\n"
        "open('pid', 'w').write(str(os.getpid()))\n"
        "open('request', 'w').write(os.environ['PYTEST_BANDWIDTH_REQUEST'])\n"
        "time.sleep(600)\n"
    )
    parent = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "from pathlib import Path\n"
            "from pytest_bandwidth.evidence.processes.child import Invocation\n"
            "from pytest_bandwidth.evidence.processes.requests import ChildRequest\n"
            f"with Invocation((), Path({str(tmp_path)!r}), True).start(ChildRequest('cpu')) as child:\n"
            "    child.rows(600)",
        ],
        stderr=subprocess.DEVNULL,
    )
    wait_for(tmp_path / "request")
    parent.send_signal(signal.SIGINT)
    assert parent.wait(HANGS_SECONDS) != 0
    assert gone(int((tmp_path / "pid").read_text()))
    assert not Path((tmp_path / "request").read_text()).parent.exists()


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
    with pytest.raises(SystemExit, match="needs it no more"):
        ParentLine(descriptor).wait_for_turn()
