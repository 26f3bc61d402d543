"""Holds the card's lock, as a process that measures does, until its input ends."""

import sys

from pytest_bandwidth.devices.cuda.device import open_cuda
from pytest_bandwidth.measuring.measurer import DeviceLock

with DeviceLock(open_cuda(0).identity, 0.1).held():
    print("held", flush=True)
    sys.stdin.read()
