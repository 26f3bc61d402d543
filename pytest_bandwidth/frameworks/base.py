"""Say what is asked of a framework about its arrays, for frameworks that plug in, too."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from pytest_bandwidth.frameworks.extents import Extent


class Framework(ABC):
    """Answer for a framework's arrays; what is not overridden holds for one whose work a call or a stream ends.

    computes_later: arrays are computed after the call that returns them, on no stream that can be timed. is_lazy: they
    are recipes until they are realized, so that an argument may become one again. known_to_devices: they tell by a
    protocol where they lie, so that devices can size them. own_graphs: what captures the framework's work into a CUDA
    graph, where nothing else may. own_device: the device that measures its work, where `cpu` and `cuda` cannot.
    """

    name: str
    computes_later = False
    is_lazy = False
    known_to_devices = True
    own_graphs: str | None = None
    own_device: str | None = None

    @abstractmethod
    def owns(self, value: object) -> bool:
        """Return whether the value is one of its arrays."""

    @abstractmethod
    def extent(self, array: Any, path: str) -> Extent:
        """Return where the array lies. Raises UsageError where it has no memory, or its use would not be measured."""

    @abstractmethod
    def is_on_host(self, array: Any) -> bool:
        """Return whether the array lies in host memory."""

    def is_made(self, array: Any) -> bool:
        """Return whether the array has memory: no recipe that each use would follow anew, no stand-in, not given away.

        Where it has none, `extent` raises and says why.
        """
        del array
        return True

    def stream(self, array: Any) -> Any:
        """Return the stream that its work on a GPU is queued on; None where that is the device's current one."""
        del array

    def wait(self, arrays: Sequence[Any]) -> None:
        """Have the arrays computed, and wait until they are."""
        del arrays

    def kernels_run(self) -> int | None:
        """Return how many kernels it has run so far; None where it does not count them."""
        return None

    def as_numpy(self, array: Any) -> Any:
        """Return a host array as a view of NumPy's; None where it cannot be had without a copy."""
        del array
