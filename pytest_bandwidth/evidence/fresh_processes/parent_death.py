"""Let child processes die with their parent, even if the parent is killed (PR_SET_PDEATHSIG).

Where a program of others stands between, such as a profiler, that one goes as well: with the whole process group.
"""

from __future__ import annotations

import ctypes
import os
import select
import signal
import sys
import threading
from collections.abc import Mapping

from pytest_bandwidth.options.handed_over import ANCESTOR_VARIABLE, PARENT_VARIABLE

# <linux/prctl.h>: the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a child that is to end with this process."""
    return {**environment, PARENT_VARIABLE: str(os.getpid())}


def descendant_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a program whose child is to end, with its process group, when this process does."""
    return {**environment, ANCESTOR_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Have the kernel end this process when its parent dies. Does nothing but in children, and on Linux."""
    ancestor = os.environ.pop(ANCESTOR_VARIABLE, None)
    if ancestor is not None and hasattr(os, "pidfd_open"):
        _end_with_ancestor(int(ancestor))
    # Taken out: what this process starts in its turn has another parent.
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if str(os.getppid()) != parent:  # it died before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)


def _end_with_ancestor(pid: int) -> None:
    try:
        # No number of a process, which another may have by then.
        ancestor = os.pidfd_open(pid)
    except ProcessLookupError:
        _end_group()
    except OSError:  # a sandbox that knows no such call: who ends this process in order ends the group
        return
    else:
        threading.Thread(target=_end_group_after, args=(ancestor,), daemon=True).start()


def _end_group_after(process: int) -> None:
    ended = select.poll()  # select() takes no number above 1,023
    ended.register(process, select.POLLIN)
    ended.poll()
    _end_group()


def _end_group() -> None:
    os.killpg(0, signal.SIGKILL)
