"""Start new Python processes in the same way as this one, and end processes in order.

A new process has this one's interpreter options and package, and imports nothing from the current folder. A child ends
when its parent ends, also if another program, such as a profiler, runs between them: the process group ends as a whole.
Signals end this process with clean-up.

This module is separate from `child`, because the history's command needs only this, and each import makes it slower.
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

# With -c (as "") and -m, Python puts the current folder first on sys.path. A `random.py` there would replace the
# standard library's, and a checkout would replace the installed package. The option -P needs Python 3.11.
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
    """Return the command that calls `main(*arguments)` of a module of this same package.

    The caller starts it with the environment of `child_environment()`; the process then ends with this one.
    """
    folder = Path(pytest_bandwidth.__file__).resolve().parent.parent
    return [*this_python(), "-c", _RUN_MODULE, str(folder), module, *arguments]


def output_of(module: str, *arguments: str, seconds: float) -> str:
    """Return the output of a module's `main(*arguments)` in a fresh process, which ends with this one.

    Raises BandwidthError if the process failed, subprocess.TimeoutExpired if it took longer, OSError.
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
    """Return the command that starts this interpreter with its options; the caller appends a program.

    executable: the same interpreter in another environment.
    """
    return [executable or sys.executable, *interpreter_options()]


def interpreter_options(command: Sequence[str] = ()) -> list[str]:
    """Return the options between the interpreter and its program, as given: `-O`, `-W error`, `-X dev` …

    command: a command line, the interpreter first; by default this process's.
    """
    given = iter((command or sys.orig_argv)[1:])
    options: list[str] = []
    for argument in given:
        if argument.startswith("--"):  # the only such option, --check-hash-based-pycs, has a value
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
# Signals that by default end a process without clean-up.
_ENDING = (signal.SIGTERM, signal.SIGHUP)


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for a child that ends when this process ends."""
    return {**environment, PARENT_VARIABLE: str(os.getpid())}


def descendant_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment for a program whose child ends, with its process group, when this process ends."""
    return {**environment, ANCESTOR_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Make the kernel end this process when its parent dies; in a process that is no child, do nothing."""
    ancestor = os.environ.pop(ANCESTOR_VARIABLE, None)
    if ancestor is not None and hasattr(os, "pidfd_open"):
        try:
            # A descriptor: the system may give the process id to another process later.
            process = os.pidfd_open(int(ancestor))
        except ProcessLookupError:
            os.killpg(0, signal.SIGKILL)
        except OSError:  # a sandbox without this system call: an orderly end of this process still ends the group
            pass
        else:
            threading.Thread(target=_end_group_after, args=(process,), daemon=True).start()
    # Removed from the environment, because this process's own children have another parent.
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None:
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if str(os.getppid()) != parent:  # the parent died before the call to prctl
        os.kill(os.getpid(), signal.SIGKILL)


def _end_group_after(process: int) -> None:
    ended = select.poll()  # select() takes no descriptor above 1,023
    ended.register(process, select.POLLIN)
    ended.poll()
    os.killpg(0, signal.SIGKILL)


@contextmanager
def signals_as_interrupts() -> Iterator[None]:
    """Make SIGTERM and SIGHUP raise KeyboardInterrupt in the main thread, unless they have a handler already."""

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
    """Run a command in its own process group, and end the group in order if an exception leaves this context."""
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True, **options) as process:
        try:
            yield process
        except BaseException:
            end_group(process, grace_seconds)
            raise


def end_group(process: subprocess.Popen[Any], grace_seconds: float) -> None:
    """End the leader of a process group with its group, if it has not ended by itself.

    grace_seconds: how long the group may clean up; with 0 it is killed at once.
    """
    if process.poll() is not None:
        return
    if grace_seconds:
        _send(process, signal.SIGTERM)
        wait_for_end(process, grace_seconds)
    _send(process, signal.SIGKILL)
    process.wait()


def finish(process: subprocess.Popen[Any], timeout_seconds: float, grace_seconds: float) -> int | None:
    """Wait for the leader of a process group, then kill the rest of the group.

    Return the leader's exit status; None after the time-out, when the whole group was ended.
    """
    if not wait_for_end(process, timeout_seconds):
        end_group(process, grace_seconds)
        return None
    if process.returncode is None:
        _send(process, signal.SIGKILL)
    return process.wait()


def wait_for_end(process: subprocess.Popen[Any], timeout_seconds: float) -> bool:
    """Wait until a process has ended; return whether it has.

    The process is not reaped, if the system allows that: its id stays valid for signals to its group.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # a Python or a sandbox without this system call
        with suppress(subprocess.TimeoutExpired):
            process.wait(timeout_seconds)
        return process.returncode is not None
    try:
        ended = select.poll()  # select() takes no descriptor above 1,023
        ended.register(descriptor, select.POLLIN)
        return bool(ended.poll(timeout_seconds * 1e3))
    finally:
        os.close(descriptor)


def _send(process: subprocess.Popen[Any], number: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)
