"""Let child processes die with their parent, even if the parent is killed (PR_SET_PDEATHSIG)."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Mapping

PARENT_VARIABLE = "PYTEST_BANDWIDTH_PARENT"
# <linux/prctl.h>: the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


def child_environment(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the environment of a child that is to end with this process."""
    return {**environment, PARENT_VARIABLE: str(os.getpid())}


def end_with_parent() -> None:
    """Have the kernel end this process when its parent dies. Does nothing but in children, and on Linux."""
    # Taken out: what this process starts in its turn has another parent.
    parent = os.environ.pop(PARENT_VARIABLE, None)
    if parent is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if str(os.getppid()) != parent:  # it died before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)
