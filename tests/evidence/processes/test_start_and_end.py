"""Fresh processes start by Python's options as given and the package that runs here, and end with their parent."""

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from children import HANGS_SECONDS, gone, wait_for

import pytest_bandwidth
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.start_and_end import PARENT_VARIABLE, interpreter_options, own_group


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("python -m pytest -O", []),
        ("python -OO -B script.py -X dev", ["-OO", "-B"]),
        ("python -Om pytest -x", ["-O"]),
        ("python -W error -X dev -c pass -O", ["-W", "error", "-X", "dev"]),
        ("python -Werror -Xdev -mpytest", ["-Werror", "-Xdev"]),
        ("python -BW error /venv/bin/pytest -B", ["-BW", "error"]),
        ("python --check-hash-based-pycs never -E -m pytest", ["--check-hash-based-pycs", "never", "-E"]),
        ("python - -O", []),
        ("python", []),
    ],
)
def test_what_stands_before_the_program(command, options):
    assert interpreter_options(command.split()) == options


def said(options, program, folder, **environment):
    """What Python prints that is started in a folder with these options."""
    return subprocess.run(
        [sys.executable, *options, "-c", program],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    ).stdout


def test_a_module_and_a_fresh_process_are_run_with_them(tmp_path):
    (tmp_path / "flags.py").write_text(
        "import sys\ndef main(word):\n    print(word, sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions[-1])\n"
    )
    program = "from pytest_bandwidth.evidence.processes.start_and_end import output_of\n"
    program += "from pathlib import Path\nfrom pytest_bandwidth.evidence.processes.child import Invocation\n"
    program += "print(output_of('flags', 'is', seconds=60), Invocation(('tests',), Path(), as_module=True).command())"
    flags = ["-O", "-X", "dev", "-W", "ignore"]
    command = [sys.executable, *flags, "-m", "pytest", "tests"]
    paths = os.pathsep.join([str(tmp_path), *os.environ.get("PYTHONPATH", "").split(os.pathsep)])
    assert said(flags, program, tmp_path, PYTHONPATH=paths).split("\n")[:2] == [
        "is 1 True ignore",
        f" {command}",
    ]


def test_the_package_of_a_child_is_its_parents(tmp_path):
    """Not the one that is installed, where a process runs another: it would measure what was not asked for."""
    copy = shutil.copytree(Path(pytest_bandwidth.__file__).parent, tmp_path / "copies" / "pytest_bandwidth")
    (copy / "where.py").write_text("def main():\n    print(__file__)\n")
    program = f"import sys\nsys.path.insert(0, {str(copy.parent)!r})\n"
    program += "from pytest_bandwidth.evidence.processes.start_and_end import output_of\n"
    program += "print(output_of('pytest_bandwidth.where', seconds=60))"
    assert said([], program, tmp_path).strip() == str(copy / "where.py")


def test_where_python_leaves_the_current_folder_out_itself_nothing_else_goes(tmp_path):
    """-P and PYTHONSAFEPATH, from Python 3.11 on: the first entry is one of PYTHONPATH then."""
    (tmp_path / "pytest.py").write_text("def main():\n    print('found by PYTHONPATH')\n")
    command = Invocation((), tmp_path, as_module=False).command()
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "PYTHONSAFEPATH": "1"}
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == "found by PYTHONPATH\n"


# All others ask `this_python` or `python_command`.
NAMES_THE_INTERPRETER = {
    "evidence/processes/start_and_end.py": "the one way",
    "evidence/commit_pairs/run_in_worktree.py": "becomes itself once more, by its own command line",
    "features/fleet/on_node.py": "another machine's, which Ray started with options of its own",
    "features/traffic/ptx/nvrtc.py": "-I: isolated; this is a compiler, and nothing of a user's",
}


def test_no_other_module_starts_an_interpreter_in_a_way_of_its_own():
    package = Path(pytest_bandwidth.__file__).parent
    named = re.compile(r"sys\.(_base_)?executable|from sys import.*executable|import sys as")
    found = {file for file in package.rglob("*.py") if named.search(file.read_text(encoding="utf-8"))}
    assert {file.relative_to(package).as_posix() for file in found} == set(NAMES_THE_INTERPRETER)


ENDLESS = """
import os, time

def never_returns():
    open("pid", "w").write(str(os.getpid()))
    time.sleep(600)

def test_endless(bandwidth):
    bandwidth(never_returns, reads=1, writes=1)
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
STARTS_CHANGE_POINTS = """
from pytest_bandwidth.features.history.change_points import start_search
with start_search() as search:
    search([([1.0] * 10, False)])
"""
# Found in the place of ruptures, whose import the process begins with.
STUCK_IMPORT = "import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"


def ends_with(parent_code, folder, **environment):
    """Whether the process that writes `pid` is gone once its parent was killed."""
    # What a killed process kept in the temporary folder stays there.
    told = {**os.environ, "TMPDIR": str(folder), **environment}
    parent = subprocess.Popen([sys.executable, "-c", parent_code], cwd=folder, env=told, stderr=subprocess.DEVNULL)
    try:
        wait_for(folder / "pid")
    finally:
        parent.kill()
        parent.wait(HANGS_SECONDS)
    child = int((folder / "pid").read_text())
    try:
        return gone(child)
    finally:
        if os.path.exists(f"/proc/{child}"):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize(
    ("parent", "file", "code"),
    [(STARTS_A_TREE, "test_endless.py", ENDLESS), (STARTS_CHANGE_POINTS, "ruptures.py", STUCK_IMPORT)],
    ids=["a test in a tree", "a module"],
)
def test_a_process_ends_with_its_parent(tmp_path, parent, file, code):
    (tmp_path / file).write_text(code)
    revision = {"name": "HEAD", "commit": "0" * 40, "top": str(tmp_path), "tree": str(tmp_path / "elsewhere")}
    environment = {} if code is ENDLESS else {"PYTHONPATH": str(tmp_path)}
    assert ends_with(parent.replace("{REVISION}", repr(revision)), tmp_path, **environment)


def test_a_group_is_ended_where_an_exception_leaves_it():
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    with pytest.raises(ZeroDivisionError), own_group(command, 0.0) as process:
        raise ZeroDivisionError
    assert process.returncode == -signal.SIGKILL


ENDS = """
import os
from pytest_bandwidth.evidence.processes.start_and_end import PARENT_VARIABLE, end_with_parent
end_with_parent()
print(PARENT_VARIABLE in os.environ)
"""


@pytest.mark.parametrize(("parent", "end"), [("1", (-signal.SIGKILL, "")), (None, (0, "False\n"))])
def test_a_parent_that_was_gone_before_is_noticed_and_what_a_child_starts_is_not_told_of_it(parent, end):
    environment = {**os.environ, PARENT_VARIABLE: parent or str(os.getpid())}
    done = subprocess.run([sys.executable, "-c", ENDS], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == end
