"""Declare what is asked of a framework about its arrays."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from pytest_bandwidth.frameworks.extents import Extent


class Framework(Protocol):
    """Declare what is asked of a framework about arrays of its own."""

    @property
    def name(self) -> str: ...
    @property
    def computes_later(self) -> bool:
        """Return whether arrays are computed after the call that returns them, on no stream that can be timed."""

    @property
    def own_graphs(self) -> str | None:
        """Return what captures its work into a CUDA graph, where nothing else may; None where its calls can be."""

    @property
    def known_to_devices(self) -> bool:
        """Return whether its arrays tell by a protocol where they lie, so that devices can size them."""

    def owns(self, value: object) -> bool:
        """Return whether the value is one of its arrays."""

    def extent(self, array: Any, path: str) -> Extent:
        """Return where the array lies. Raises UsageError where it has no memory, or its use would not be measured."""

    def is_on_host(self, array: Any) -> bool: ...
    def is_made(self, array: Any) -> bool:
        """Return whether the array has memory: no recipe that each use would follow anew, no stand-in, not given away.

        Where it has none, `extent` raises and says why.
        """

    def stream(self, array: Any) -> Any:
        """Return the stream that its work on a GPU is queued on; None where that is the device's current one."""

    def wait(self, arrays: Sequence[Any]) -> None:
        """Have the arrays computed, and wait until they are."""

    def as_numpy(self, array: Any) -> Any:
        """Return a host array as a view of NumPy's; None where it cannot be had without a copy."""
