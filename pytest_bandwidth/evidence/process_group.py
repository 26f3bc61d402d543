"""End a process with all the processes that it started: by SIGTERM first, so that they may tidy up, then by force."""

from __future__ import annotations

import os
import select
import signal
import subprocess
from contextlib import suppress
from typing import Any


def end_group(process: subprocess.Popen[Any], grace_seconds: float) -> None:
    """End the leader of a process group with its group, if it has not ended by itself.

    grace_seconds: how long it may tidy up; with 0 it is killed at once.
    """
    if process.poll() is not None:
        return
    if grace_seconds:
        _send(process, signal.SIGTERM)
        wait_for_end(process, grace_seconds)
    _send(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    process.wait()


def finish(process: subprocess.Popen[Any], timeout_seconds: float, grace_seconds: float) -> int | None:
    """Wait for the leader of a process group, and kill what it left of its group.

    Return its exit status; None after the time-out, where all of the group was ended.
    """
    if not wait_for_end(process, timeout_seconds):
        end_group(process, grace_seconds)
        return None
    if process.returncode is None:
        _send(process, getattr(signal, "SIGKILL", signal.SIGTERM))
    return process.wait()


def wait_for_end(process: subprocess.Popen[Any], timeout_seconds: float) -> bool:
    """Wait until a process has ended; return whether it has.

    Its number stays taken where the system allows that: its process group may have other members.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except (AttributeError, OSError):  # another system, or a sandbox that knows no such call
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
    if hasattr(os, "killpg"):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
    else:
        process.send_signal(number)
