"""Declare what is asked of a framework about its arrays."""

from __future__ import annotations

from typing import Any, Protocol

from pytest_bandwidth.frameworks.extents import Extent


class Framework(Protocol):
    """Declare what is asked of a framework about arrays of its own."""

    @property
    def name(self) -> str: ...
    def owns(self, value: object) -> bool:
        """Return whether the value is one of its arrays."""

    def extent(self, array: Any, path: str) -> Extent:
        """Return where the array lies. Raises UsageError where it has no memory, or its use would not be measured."""

    def as_numpy(self, array: Any) -> Any:
        """Return a host array as a view of NumPy's; None where it cannot be had without a copy."""
