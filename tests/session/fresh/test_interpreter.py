"""Options of Python itself, which fresh processes are given as well."""

import json
import subprocess
import sys

import pytest

from pytest_bandwidth.session.fresh.interpreter import interpreter_options


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
from pytest_bandwidth.session.fresh.child import Invocation
print(json.dumps(Invocation(("tests",), Path(), as_module=True).command()))
"""
    flags = ["-O", "-X", "dev", "-W", "ignore"]
    said = subprocess.run([sys.executable, *flags, "-c", program], capture_output=True, text=True, check=True)
    assert json.loads(said.stdout) == [sys.executable, *flags, "-m", "pytest", "tests"]
