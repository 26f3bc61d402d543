"""How fresh processes are started: Python's options as given, the package that runs here, no current folder."""

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import pytest_bandwidth
from pytest_bandwidth.evidence.processes.child import Invocation
from pytest_bandwidth.evidence.processes.start_and_end import interpreter_options


@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("python -m pytest -O", []),
        ("python -O -m pytest -W error", ["-O"]),
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


def test_a_fresh_process_is_started_with_them():
    program = """
import json, sys
from pathlib import Path
from pytest_bandwidth.evidence.processes.child import Invocation
print(json.dumps(Invocation(("tests",), Path(), as_module=True).command()))
"""
    flags = ["-O", "-X", "dev", "-W", "ignore"]
    done = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == [sys.executable, *flags, "-m", "pytest", "tests"]


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


def test_a_module_is_run_with_them(tmp_path):
    (tmp_path / "flags.py").write_text(
        "import sys\ndef main(word):\n    print(word, sys.flags.optimize, sys.flags.dev_mode, sys.warnoptions[-1])\n"
    )
    program = "from pytest_bandwidth.evidence.processes.start_and_end import output_of\n"
    program += "print(output_of('flags', 'is', seconds=60))"
    flags = ["-O", "-X", "dev", "-W", "ignore"]
    assert said(flags, program, tmp_path, PYTHONPATH=str(tmp_path)).strip() == "is 1 True ignore"


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
    (tmp_path / "pytest.py").write_text("def console_main():\n    print('found by PYTHONPATH')\n")
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
    "reports/pages/chart_library.py": "-I: isolated; it makes a script, and nothing of a user's",
}


def test_no_other_module_starts_an_interpreter_in_a_way_of_its_own():
    package = Path(pytest_bandwidth.__file__).parent
    naming = set()
    for file in package.rglob("*.py"):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        if any(map(names_the_interpreter, ast.walk(tree))):
            naming.add(file.relative_to(package).as_posix())
    assert naming == set(NAMES_THE_INTERPRETER)


def names_the_interpreter(node):
    """Whether it is `sys.executable`, or sys under another name, which might hide it."""
    if isinstance(node, ast.Attribute):
        return ast.unparse(node) in ("sys.executable", "sys._base_executable")
    if isinstance(node, ast.ImportFrom):
        return node.module == "sys" and any("executable" in name.name for name in node.names)
    return isinstance(node, ast.Import) and any(name.name == "sys" and name.asname for name in node.names)
