"""A process that was ordered ends with the one that ordered it: that one, once killed, could end nothing."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from pytest_bandwidth.domain.errors import BandwidthError

PARENT_VARIABLE = "PYTEST_BANDWIDTH_PARENT"
# <linux/prctl.h>: the signal that this process gets when its parent dies.
_PR_SET_PDEATHSIG = 1


def as_parent(environment: Mapping[str, str] = os.environ) -> dict[str, str]:
    """The environment of a child that is to end with this process."""
    return {**environment, PARENT_VARIABLE: str(os.getpid())}


def output_of(module: str, *arguments: str, seconds: float) -> str:
    """What a module prints in a fresh process that ends with this one, by `end_with_parent`.

    Raises BandwidthError where the process failed, subprocess.TimeoutExpired where it took longer, OSError.
    """
    command = [sys.executable, "-m", module, *arguments]
    done = subprocess.run(
        command,
        env=as_parent(),
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


def end_with_parent() -> None:
    """In a child: from now on the kernel ends it when its parent dies. Nothing where it has no order, or no Linux."""
    # Taken out: what this process starts in its turn has another parent.
    ordered_by = os.environ.pop(PARENT_VARIABLE, None)
    if ordered_by is None or sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, ctypes.c_ulong(signal.SIGKILL))
    if str(os.getppid()) != ordered_by:  # it died before the kernel was asked
        os.kill(os.getpid(), signal.SIGKILL)
