"""Start Python anew as this process was started: its options, its package, and no module of the current folder.

Apart from `child`, since the history's command needs no more than this and is slowed by every import.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest_bandwidth
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.evidence.processes.endings import child_environment

# Python puts the current folder first for -c, as "", and for -m. There a `random.py` would be run for the library's,
# and a checkout would be measured for the installed package. -P, which leaves it out, is of Python 3.11.
WITHOUT_CURRENT_FOLDER = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\n"
_RUN_MODULE = f"""{WITHOUT_CURRENT_FOLDER}
from importlib import import_module
folder, module, *arguments = sys.argv[1:]
sys.path.insert(0, folder)
import pytest_bandwidth
sys.path.remove(folder)
from pytest_bandwidth.evidence.processes.endings import end_with_parent
end_with_parent()
sys.exit(import_module(module).main(*arguments))
"""
_PROGRAM_FOLLOWS = "cm"
_VALUE_FOLLOWS = "WX"


def python_command(module: str, *arguments: str) -> list[str]:
    """Return the command that calls `main(*arguments)` of a module of the very package that runs here.

    The process is to be started with `child_environment()` in its environment, and ends with this one.
    """
    folder = Path(pytest_bandwidth.__file__).resolve().parent.parent
    return [*this_python(), "-c", _RUN_MODULE, str(folder), module, *arguments]


def output_of(module: str, *arguments: str, seconds: float) -> str:
    """Return what `main(*arguments)` of a module prints in a fresh process, which ends with this one.

    Raises BandwidthError where the process failed, subprocess.TimeoutExpired where it took longer, OSError.
    """
    done = subprocess.run(
        python_command(module, *arguments),
        env=child_environment(),
        capture_output=True,
        text=True,
        timeout=seconds,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no output"])[-1]
        raise BandwidthError(f"it ended with exit status {done.returncode}: {last}")
    return done.stdout


def this_python(executable: str | None = None) -> list[str]:
    """Return the command that starts this interpreter once more, with its options; a program is to follow.

    executable: the same interpreter in another environment.
    """
    return [executable or sys.executable, *interpreter_options()]


def interpreter_options(command: Sequence[str] = ()) -> list[str]:
    """Return the options between the interpreter and its program as they were given: `-O`, `-W error`, `-X dev` …

    command: another command line than this process's, the interpreter first.
    """
    given = iter((command or sys.orig_argv)[1:])
    options: list[str] = []
    for argument in given:
        if argument.startswith("--"):  # the one there is, --check-hash-based-pycs, has a value
            options += [argument, next(given, "")]
            continue
        letters = argument[1:] if argument.startswith("-") else ""
        end = next((at for at, letter in enumerate(letters) if letter in _PROGRAM_FOLLOWS + _VALUE_FOLLOWS), None)
        if end is None and letters:
            options.append(argument)
        elif end is not None and letters[end] in _VALUE_FOLLOWS:
            options += [argument] if letters[end + 1 :] else [argument, next(given, "")]
        else:
            return options + [f"-{letters[:end]}"] * bool(letters[:end])
    return options
