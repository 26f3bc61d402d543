"""Define the errors of the package, by what the user has to do about them.

Every message is one line: what was found, what was expected, what to do.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class BandwidthError(Exception):
    """Raised on purpose by pytest-bandwidth: the base of all its errors."""


class UsageError(BandwidthError):
    """Raised where the fixture, a marker or an option is used in a way that has no meaning."""


class KernelError(BandwidthError):
    """Raised where a kernel file or kernel name does not exist, or does not compile."""


class KernelFault(BandwidthError):
    """Raised for accesses out of bounds, misaligned accesses, reads of unwritten memory and races. One line a fault."""


class DeviceUnavailable(BandwidthError):
    """Raised where the requested device cannot be used on this machine."""


class DeviceLost(BandwidthError):
    """Raised where the device's context is poisoned: nothing more can be measured in this process."""


class OutOfMemory(BandwidthError):
    """Raised where arrays or the probe do not fit the device's memory."""


class NotOnThisDevice(BandwidthError):
    """Raised where the device cannot run the workload, which is not an error: its message is the reason of the skip."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Describe one error in an input file; `line` counts from 1, and is 0 for the file as a whole."""

    file: str
    line: int
    message: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.message}" if self.line else f"{self.file}: {self.message}"


class BaselineError(BandwidthError):
    """Raised where a baseline cannot be used; carries every problem found, one line each."""

    def __init__(self, problems: Sequence[Problem] | str) -> None:
        self.problems: tuple[Problem, ...] = () if isinstance(problems, str) else tuple(problems)
        super().__init__(problems if isinstance(problems, str) else "\n".join(map(str, self.problems)))
