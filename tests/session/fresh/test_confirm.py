"""The fresh processes of one suspect: who starts when, how long each may wait, and that none is left behind."""

import json
import signal
import subprocess
import sys
import time
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest
from children import HANGS_SECONDS, gone

from pytest_bandwidth.devices.memory_speed import LONGEST_WAIT_SECONDS
from pytest_bandwidth.domain.errors import DeviceUnavailable
from pytest_bandwidth.session.fresh import confirm as fresh_processes
from pytest_bandwidth.session.fresh.child import ChildRequest, FreshProcessFailed, Invocation, start_fresh
from pytest_bandwidth.session.fresh.confirm import LONG_WAIT_SECONDS, FreshProcesses, Waiting

# A stand-in for pytest that `python -m` finds first: it says what it does, and reports what the test wrote down.
FRESH = """
import json, os, socket
from pathlib import Path

def note(text):
    with open("seen", "a") as seen:
        seen.write(text + "\\n")

with socket.socket(fileno=int(os.environ["PYTEST_BANDWIDTH_LINE"])) as line, line.makefile("rw") as text:
    note("ready")
    Path(f"pid-{os.getpid()}").write_text(os.environ["PYTEST_BANDWIDTH_REQUEST"])
    print("ready", file=text, flush=True)
    go = json.loads(text.readline())
note(f"waits:{go['wait_seconds']}" if go["fastest_probes"] else "measures")
request = json.loads(Path(os.environ["PYTEST_BANDWIDTH_REQUEST"]).read_text())
Path(request["report"]).write_text(Path("rows.json").read_text())
note("reported")
"""
# Asks for fresh processes as a test does, in a process that may be interrupted.
PARENT = """
from contextlib import nullcontext
from pathlib import Path
from pytest_bandwidth.session.fresh.confirm import FreshProcesses, Waiting
from pytest_bandwidth.session.fresh.child import Invocation, ChildRequest, start_fresh

invocation, waiting = Invocation((), Path.cwd(), as_module=True), Waiting(on_host=True, most_in_vain=6)
budget = {"confirm": 2, "side_by_side": True, "peak": None, "timeout_seconds": 600.0, "measured_seconds": 1.0}
start = lambda: start_fresh(invocation, ChildRequest("cpu"))
with FreshProcesses(start, nullcontext, print, waiting, **budget) as processes:
    processes.run({})
"""
ROW = {"label": None, "status": "NO_BASELINE", "gbps": 80.0, "relative": 0.8, "probe_gbps": 100.0}
TURN = ["measures", "reported"]
SPEED = {None: 110.0}


class Clock:
    """Seconds that pass only where a test says so."""

    def __init__(self):
        self.seconds = 0.0

    def monotonic(self):
        return self.seconds


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    (tmp_path / "pytest.py").write_text(FRESH)
    (tmp_path / "rows.json").write_text(json.dumps([ROW]))
    monkeypatch.chdir(tmp_path)
    invocation = Invocation((), tmp_path, as_module=True)

    def begin(waiting=None, lock=nullcontext, **given):
        options = {"confirm": 2, "side_by_side": True, "peak": None, "timeout_seconds": 60.0, "measured_seconds": 1.0}
        return FreshProcesses(
            lambda: start_fresh(invocation, ChildRequest("cpu")),
            lock,
            lambda _: None,
            waiting or Waiting(on_host=True, most_in_vain=6),
            **{**options, **given},
        )

    return begin


def seen():
    return Path("seen").read_text().split()


@pytest.mark.parametrize(
    ("confirm", "side_by_side", "expected"),
    [
        (3, True, ["ready"] * 3 + TURN * 3),
        (3, False, ["ready", *TURN] * 3),
        (2, True, ["ready"] * 2 + TURN * 2 + ["ready", *TURN]),
        (1, True, ["ready", *TURN] * 3),
        (7, True, ["ready"] * 5 + TURN * 3),
    ],
)
def test_most_wait_before_the_first_measures_and_then_they_take_turns(fresh, confirm, side_by_side, expected):
    with fresh(confirm=confirm, side_by_side=side_by_side) as processes:
        for _ in range(3):
            processes.run({})
    assert seen() == expected


def test_who_is_needed_no_more_is_ended(fresh):
    with fresh() as processes:
        processes.run({})
        (waiting,) = [pid for pid in pids() if Path(f"/proc/{pid}").exists()]
    assert gone(waiting)
    assert seen() == ["ready", "ready", *TURN]
    assert not any(folder.exists() for folder in folders())


def pids():
    """Of all that stood by."""
    return [int(file.name.partition("-")[2]) for file in Path().glob("pid-*")]


def folders():
    """Those of the requests, which also take the output."""
    return [Path(file.read_text()).parent for file in Path().glob("pid-*")]


@pytest.mark.usefixtures("fresh")
def test_an_interrupt_ends_who_measures_and_who_stands_by(tmp_path):
    never_returns = "import time\nnote('measures')\ntime.sleep(600)\n"
    Path("pytest.py").write_text(FRESH[: FRESH.index("request =")] + never_returns)
    parent = subprocess.Popen([sys.executable, "-c", PARENT], cwd=tmp_path, stderr=subprocess.DEVNULL)
    for _ in range(10 * HANGS_SECONDS):
        if Path("seen").exists() and seen().count("measures") == 2:
            break
        time.sleep(0.1)  # its file is all that a grandchild tells
    assert seen() == ["ready", "ready", "measures", "measures"]
    parent.send_signal(signal.SIGINT)
    assert parent.wait(HANGS_SECONDS) != 0
    assert len(pids()) == 2
    assert all(gone(pid) for pid in pids())
    assert not any(folder.exists() for folder in folders())


def test_the_others_are_ended_where_the_first_fails(fresh):
    Path("rows.json").write_text("[]")
    with pytest.raises(FreshProcessFailed, match="measured nothing"), fresh() as processes:
        processes.run({})
    assert len(pids()) == 2
    assert all(gone(pid) for pid in pids())


def test_none_starts_while_somebody_else_measures(fresh):
    @contextmanager
    def taken():
        raise DeviceUnavailable("taken")
        yield

    with pytest.raises(DeviceUnavailable), fresh(lock=taken) as processes:
        processes.run({})
    assert not Path("seen").exists()


@pytest.mark.parametrize(("seconds", "runs"), [(1000.0, True), (0.0, False)])
def test_more_than_were_asked_for_run_while_there_is_time(fresh, monkeypatch, seconds, runs):
    monkeypatch.setattr(fresh_processes, "LEAST_SECONDS", seconds)
    with fresh(confirm=1, measured_seconds=0.0) as processes:
        assert processes.run(SPEED) is not None
        assert (processes.run(SPEED) is not None) is runs


@pytest.mark.parametrize(("waited", "runs"), [(3.0, False), (1.0, True)])
def test_waiting_for_a_memory_speed_takes_the_time_of_those_that_were_asked_for(fresh, monkeypatch, waited, runs):
    monkeypatch.setattr(fresh_processes, "time", clock := Clock())
    monkeypatch.setattr(fresh_processes, "LEAST_SECONDS", 5.0)
    monkeypatch.setattr(fresh_processes, "rows_of", after(clock, waited + 1.0, waited_seconds=waited))
    with fresh(confirm=3, measured_seconds=1.0) as processes:
        assert processes.run(SPEED) is not None
        assert (processes.run(SPEED) is not None) is runs


def test_those_that_were_asked_for_run_whatever_they_take_where_none_waits(fresh, monkeypatch):
    monkeypatch.setattr(fresh_processes, "time", clock := Clock())
    monkeypatch.setattr(fresh_processes, "LEAST_SECONDS", 0.0)
    monkeypatch.setattr(fresh_processes, "rows_of", after(clock, 100.0, waited_seconds=LONG_WAIT_SECONDS))
    with fresh(confirm=2) as processes:
        assert [processes.run(SPEED) is not None for _ in range(3)] == [True, True, False]


def after(clock, seconds, **row):
    """A fresh process that takes so long by the clock."""

    def rows_of(_child, _go, _timeout_seconds):
        clock.seconds += seconds
        return [{**ROW, **row}]

    return rows_of


@pytest.mark.parametrize(("seconds", "waits"), [(1000.0, LONGEST_WAIT_SECONDS), (3.5, 1.75), (1.75, 0.0)])
def test_who_waits_leaves_time_to_measure(fresh, monkeypatch, seconds, waits):
    monkeypatch.setattr(fresh_processes, "time", Clock())
    monkeypatch.setattr(fresh_processes, "LEAST_SECONDS", seconds)
    with fresh(confirm=1, measured_seconds=1.0) as processes:
        processes.run(SPEED)
    assert seen()[1] == f"waits:{waits}"


def test_waiting_for_the_device_takes_no_time_from_waiting_for_its_memory_speed(fresh, monkeypatch):
    clock = Clock()
    monkeypatch.setattr(fresh_processes, "time", clock)

    @contextmanager
    def after_a_while():
        clock.seconds += 1000.0
        yield

    with fresh(lock=after_a_while, measured_seconds=0.1) as processes:
        processes.run(SPEED)
        processes.run(SPEED)
    assert [word for word in seen() if word.startswith("waits")] == [f"waits:{LONGEST_WAIT_SECONDS}"] * 2


def test_what_each_saw_and_waited_is_kept_by_label(fresh):
    rows = [{**ROW, "label": "a", "waited_seconds": 0.25}, {**ROW, "label": "b", "status": "INVALID", "reason": "hot"}]
    Path("rows.json").write_text(json.dumps(rows))
    with fresh() as processes:
        figures = processes.run({})
    assert list(figures) == ["a"]
    (row,) = processes.of("a")
    assert (row.figures.gbps, row.waited_seconds, row.wall_seconds > 0) == (80.0, 0.25, True)
    assert processes.of("b") == ()
