"""A fresh process whose parent was killed ends as well, though what it measures never returns."""

import os
import signal
import subprocess
import sys
from textwrap import indent

import pytest
from children import HANGS_SECONDS, gone, wait_for

from pytest_bandwidth.evidence.processes.start_and_end import PARENT_VARIABLE

ENDLESS = """
import os, time

def never_returns():
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)

def test_endless(bandwidth):
    bandwidth(never_returns, reads=1, writes=1)
"""
STARTS_A_TEST = """
from pathlib import Path
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.requests import ChildRequest
request = ChildRequest("cpu", target="test_endless.py::test_endless")
with Invocation(("--rootdir=.",), Path.cwd(), True).start(request) as child:
    child.rows(600)
"""
STARTS_A_TREE = """
from pathlib import Path
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.commit_pairs.process import Worktrees
from pytest_bandwidth.evidence.commit_pairs.worktree import Revision
revision = Revision(**{REVISION})
Worktrees(Invocation(("--rootdir=.",), Path.cwd(), True), revision, "cpu", "test_endless.py::test_endless",
          Path("test_endless.py").resolve(), 600).head()
"""
STARTS_A_SELFTEST = "from pytest_bandwidth.cli.main import main\nmain(['selftest', '--device=cpu', '--mib=1'])\n"
# Found by the interpreter at its start: a device that never opens.
STUCK_DEVICE = """
import os, time
import pytest_bandwidth.devices.open as opening

def never_opens(name):
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)

opening.open_device = never_opens
"""
# The self-test opens the device itself before it starts a process.
STUCK_IN_CHILDREN = f"""
import sys

if any("selftest_process" in word for word in sys.orig_argv):
{indent(STUCK_DEVICE, "    ")}
"""
STARTS_CHANGE_POINTS = """
from pytest_bandwidth.features.history.change_points import start_search
with start_search() as search:
    search([([1.0] * 10, False)])
"""
# Found in the place of ruptures, whose import the process begins with.
STUCK_IMPORT = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"


def ends_with(parent_code, folder, how, **environment):
    """Whether the process that writes `pid` is gone once its parent was killed."""
    # What a killed process kept in the temporary folder stays there.
    told = {**os.environ, "TMPDIR": str(folder), **environment}
    parent = subprocess.Popen([sys.executable, "-c", parent_code], cwd=folder, env=told, stderr=subprocess.DEVNULL)
    try:
        wait_for(folder / "pid")
    finally:
        parent.send_signal(how)
        parent.wait(HANGS_SECONDS)
    child = int((folder / "pid").read_text())
    try:
        return gone(child)
    finally:
        if os.path.exists(f"/proc/{child}"):
            os.kill(child, signal.SIGKILL)


STARTS = {
    "a test": (STARTS_A_TEST, "test_endless.py", ENDLESS),
    "a tree": (STARTS_A_TREE, "test_endless.py", ENDLESS),
    "the self-test": (STARTS_A_SELFTEST, "sitecustomize.py", STUCK_IN_CHILDREN),
    "change points": (STARTS_CHANGE_POINTS, "ruptures.py", STUCK_IMPORT),
}


@pytest.mark.parametrize(("of", "how"), [("a test", signal.SIGTERM), *((of, signal.SIGKILL) for of in STARTS)])
def test_a_process_ends_with_its_parent(tmp_path, of, how):
    parent, file, code = STARTS[of]
    (tmp_path / file).write_text(code)
    revision = {"name": "HEAD", "commit": "0" * 40, "top": str(tmp_path), "tree": str(tmp_path / "elsewhere")}
    environment = {} if code is ENDLESS else {"PYTHONPATH": str(tmp_path)}
    assert ends_with(parent.replace("{REVISION}", repr(revision)), tmp_path, how, **environment)


def test_a_parent_that_was_gone_before_is_noticed():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from pytest_bandwidth.evidence.processes.start_and_end import end_with_parent\n"
            "end_with_parent()\nprint('alive')",
        ],
        env={**os.environ, PARENT_VARIABLE: "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "")


def test_what_a_child_starts_is_not_told_of_the_childs_parent():
    code = (
        "import os\n"
        "from pytest_bandwidth.evidence.processes.start_and_end import PARENT_VARIABLE, end_with_parent\n"
        "end_with_parent()\nprint(PARENT_VARIABLE in os.environ)"
    )
    environment = {**os.environ, PARENT_VARIABLE: str(os.getpid())}
    assert subprocess.check_output([sys.executable, "-c", code], env=environment, text=True) == "False\n"
