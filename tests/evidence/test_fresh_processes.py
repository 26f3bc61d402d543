"""The new processes of one suspect: which start when, and that none is left behind."""

import json
from pathlib import Path

import pytest
from children import gone
from judged_kernels import asked_test

from pytest_bandwidth.evidence.fresh_processes import FreshProcesses
from pytest_bandwidth.evidence.processes.child import Invocation

# A stand-in for pytest that `python -m` finds first: it says what it does, and reports what the test wrote down.
FRESH = """
import json, os, socket
from pathlib import Path

def note(text):
    with open("seen", "a") as seen:
        seen.write(text + "\\n")

request = json.loads(Path(os.environ["PYTEST_BANDWIDTH_REQUEST"]).read_text())["child"]
with socket.socket(fileno=request["line"]) as line, line.makefile("rw") as text:
    note("ready")
    Path(f"pid-{os.getpid()}").write_text(os.environ["PYTEST_BANDWIDTH_REQUEST"])
    print("ready", file=text, flush=True)
    text.readline()
note("measures")
Path(request["report"]).write_text(Path("rows.json").read_text())
note("reported")
"""
ROW = {"label": None, "status": "UNDECIDED", "gbps": 80.0, "relative": 0.8, "probe_gbps": 100.0}
TURN = ["measures", "reported"]


@pytest.fixture
def fresh(tmp_path, monkeypatch):
    (tmp_path / "pytest.py").write_text(FRESH)
    (tmp_path / "rows.json").write_text(json.dumps([ROW]))
    monkeypatch.chdir(tmp_path)
    invocation = Invocation((), tmp_path, as_module=True)

    def begin(confirm=2, room=None):
        return FreshProcesses(asked_test(room or 8, invocation.start), confirm)

    return begin


def seen():
    return Path("seen").read_text().split()


@pytest.mark.parametrize(
    ("confirm", "most_ahead", "expected"),
    [
        (3, 2, ["ready"] * 2 + TURN * 2 + ["ready", *TURN]),
        (2, 8, ["ready"] * 2 + TURN * 2 + ["ready", *TURN]),
        (7, 8, ["ready"] * 5 + TURN * 3),
    ],
)
def test_most_wait_before_the_first_measures_and_then_they_take_turns(fresh, confirm, most_ahead, expected):
    with fresh(confirm=confirm, room=most_ahead) as processes:
        for _ in range(3):
            processes.run()
    assert seen() == expected


def test_who_is_needed_no_more_is_ended(fresh):
    with fresh() as processes:
        processes.run()
        (waiting,) = [pid for pid in pids() if Path(f"/proc/{pid}").exists()]
    assert gone(waiting)
    assert seen() == ["ready", "ready", *TURN]
    # Those of the requests, which also take the output.
    assert not any(Path(file.read_text()).parent.exists() for file in Path().glob("pid-*"))


def pids():
    """Of all that stood by."""
    return [int(file.name.partition("-")[2]) for file in Path().glob("pid-*")]
