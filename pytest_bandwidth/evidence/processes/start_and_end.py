"""Start Python anew as this process was started, and end processes in order.

A new one has this one's options and package, and no module of the current folder. A child ends with its parent, a
process with its group, and this one by tidying up. Where a program of others stands between parent and child, such as a
profiler, it ends too: with the process group.

Apart from `child`, since the history's command needs no more than this and is slowed by every import.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import pytest_bandwidth
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.options.handed_over import ANCESTOR_VARIABLE, PARENT_VARIABLE

# Python puts the current folder first for -c, as "", and for -m. There a `random.py` would be run for the library's,
# and a checkout would be measured for the installed package. -P, which leaves it out, is of Python 3.11.
WITHOUT_CURRENT_FOLDER = "import sys\nif sys.path[:1] == ['']: del sys.path[0]\n"
_RUN_MODULE = f"""{WITHOUT_CURRENT_FOLDER}
from importlib import import_module
folder, module, *arguments = sys.argv[1:]
sys.path.insert(0, folder)
import pytest_bandwidth
sys.path.remove(folder)
from pytest_bandwidth.evidence.processes.start_and_end import end_with_parent
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


# <linux/prctl.h>: the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1
# Those that end a process without a word.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a child that is to end with this process."""
    return {**environment, PARENT_VARIABLE: str(os.getpid())}


def descendant_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a program whose child is to end, with its process group, when this process does."""
    return {**environment, ANCESTOR_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Have the kernel end this process when its parent dies. Does nothing but in children."""
    ancestor = os.environ.pop(ANCESTOR_VARIABLE, None)
    if ancestor is not None and hasattr(os, "pidfd_open"):
        try:
            # No number of a process, which another may have by then.
            process = os.pidfd_open(int(ancestor))
        except ProcessLookupError:
            os.killpg(0, signal.SIGKILL)
        except OSError:  # a sandbox that knows no such call: who ends this process in order ends the group
            pass
        else:
            threading.Thread(target=_end_group_after, args=(process,), daemon=True).start()
    # Taken out: what this process starts in its turn has another parent.
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if str(os.getppid()) != parent:  # it died before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def _end_group_after(process: int) -> None:
    ended = select.poll()  # select() takes no number above 1,023
    ended.register(process, select.POLLIN)
    ended.poll()
    os.killpg(0, signal.SIGKILL)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, unless something handles them already."""

    def interrupt(number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt(signal.Signals(number).name)

    replaced = []
    if threading.current_thread() is threading.main_thread():
        replaced = [number for number in _ENDING if signal.getsignal(number) is signal.SIG_DFL]
    for number in replaced:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number in replaced:
            signal.signal(number, signal.SIG_DFL)


@contextmanager
def own_group(command: Sequence[str], grace_seconds: float, **options: Any) -> Iterator[subprocess.Popen[Any]]:
    """Run a command in a process group of its own, which ends in order whatever breaks this context off."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options) as process:
        try:
            yield process
        except BaseException:
            end_group(process, grace_seconds)
            raise


def end_group(process: subprocess.Popen[Any], grace_seconds: float) -> None:
    """End the leader of a process group with its group, if it has not ended by itself.

    grace_seconds: how long it may tidy up; with 0 it is killed at once.
    """
    if process.poll() is not None:
        return
    if grace_seconds:
        _send(process, signal.SIGTERM)
        wait_for_end(process, grace_seconds)
    _send(process, signal.SIGKILL)
    process.wait()


def finish(process: subprocess.Popen[Any], timeout_seconds: float, grace_seconds: float) -> int | None:
    """Wait for the leader of a process group, and kill what it left of its group.

    Return its exit status; None after the time-out, where all of the group was ended.
    """
    if not wait_for_end(process, timeout_seconds):
        end_group(process, grace_seconds)
        return None
    if process.returncode is None:
        _send(process, signal.SIGKILL)
    return process.wait()


def wait_for_end(process: subprocess.Popen[Any], timeout_seconds: float) -> bool:
    """Wait until a process has ended; return whether it has.

    Its number stays taken where the system allows that: its process group may have other members.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # a Python or a sandbox that knows no such call
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_seconds)
        return process.returncode is not None
    try:
        ended = select.poll()  # select() takes no number above 1,023
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(timeout_seconds * 1e3))
    finally:
        os.close(descriptor)


def _send(process: subprocess.Popen[Any], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
