"""Programs of our own in the shape of real ones, for tests/compat and the documentation's table."""

from compat import blocks, networks, samples
from compat.registry import PROGRAMS

__all__ = ["PROGRAMS", "blocks", "networks", "samples"]
