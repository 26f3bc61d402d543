"""Tell errors apart by who has to act on them.

Every message is one line: what was found, what was expected, what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BandwidthError(Exception):
    """Base of every error that pytest-bandwidth raises on purpose."""


class UsageError(BandwidthError):
    """The fixture, a marker or an option was used in a way that has no meaning."""


class KernelError(BandwidthError):
    """A kernel file or kernel name does not exist, or does not compile."""


class KernelFault(BandwidthError):
    """A kernel did what no kernel may: out of bounds, misaligned, uninitialised reads, races. One line a fault."""


class DeviceUnavailable(BandwidthError):
    """The asked-for device cannot be used on this machine."""


class DeviceLost(BandwidthError):
    """The device's context is poisoned; nothing more can be measured in this process."""


class OutOfMemory(BandwidthError):
    """Arrays or the probe do not fit the device's memory."""


class NotOnThisDevice(BandwidthError):
    """The workload cannot run on the chosen device, for a reason that is no fault: the test skips with it."""


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing wrong with an input file; `line` counts from 1."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}"


class BaselineError(BandwidthError):
    """A baseline cannot be used; carries every problem found, one line each."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))
