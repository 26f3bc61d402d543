"""Remember the processes that are no others: those that this one started, and one that takes turns with it.

A GPU's driver still names one as busy for a while after it ended.
"""

from __future__ import annotations

_started: set[int] = set()


def remember(pid: int) -> None:
    """Count a process as ours from now on, when it has ended as well."""
    _started.add(pid)


def remembered() -> frozenset[int]:
    return frozenset(_started)
