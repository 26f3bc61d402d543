"""Find other processes that are busy on the GPU, and tell ours from them, also where NVML numbers them differently.

NVML reports the process ids of the host. Inside a container ours are numbered otherwise, and the kernel does not tell
a process its number outside. So our own entry is found by what it does: it appears when we open a context, or its
memory grows by what we just allocated. Where neither can be seen, none counts as another.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from pytest_bandwidth.devices.cuda.management import ProcessUse
from pytest_bandwidth.devices.own_processes import remembered
from pytest_bandwidth.domain.device import SAME_PROCESS_IDS

# A desktop's compositor holds the GPU at a few per cent for ever; below this nobody counts as busy.
ACTIVE_PERCENT = 5
# What is allocated to recognise ourselves by: large beside the chunks that drivers and pools work in.
FINGERPRINT_BYTES = 96 * 2**20
FINGERPRINT_SLACK_BYTES = 8 * 2**20

Uses = Mapping[int, int | None]


@dataclass(frozen=True, slots=True)
class Ownership:
    """Say which process ids (as NVML numbers them) are ours; `known` is False where that could not be found out.

    look: finds our ids anew, where they can be: children come and go.
    """

    own: frozenset[int] = frozenset()
    known: bool = True
    how: str = SAME_PROCESS_IDS
    look: Callable[[], frozenset[int]] | None = None


def own_process(before: Uses | None, after: Uses | None, pid: int) -> int | None:
    """Return our id as NVML has it, from the lists before and after we opened a context; None if they do not tell."""
    if after is None:
        return None
    if pid in after and (before is None or pid not in before or len(after) == 1):
        return pid
    fresh = set(after) - set(before or {})
    return fresh.pop() if before is not None and len(fresh) == 1 else None


def grown_process(before: Uses | None, after: Uses | None, grown_bytes: int) -> int | None:
    """Return the one process whose GPU memory grew by so much between two lists; None where none or several did."""
    if before is None or after is None:
        return None
    matching = [
        pid
        for pid, used in after.items()
        if used is not None and abs(used - (before.get(pid) or 0) - grown_bytes) <= FINGERPRINT_SLACK_BYTES
    ]
    return matching[0] if len(matching) == 1 else None


def parents_of_all(proc: Path = Path("/proc")) -> dict[int, int]:
    """Return parent by process id, of every process that /proc shows."""
    parents: dict[int, int] = {}
    for stat in proc.glob("[0-9]*/stat"):
        try:
            # The second field is the program's name in brackets, which may hold spaces and brackets itself.
            fields = stat.read_text(errors="replace").rpartition(")")[2].split()
            parents[int(stat.parent.name)] = int(fields[1])
        except (OSError, ValueError, IndexError):
            continue  # it ended meanwhile
    return parents


def process_tree(pid: int, parents: Mapping[int, int], siblings_too: bool = False) -> frozenset[int]:
    """Return a process, all above it and all below it.

    With `siblings_too` all below its parent (pytest-xdist's workers).
    """
    above: list[int] = []
    at = pid
    while at in parents and at not in above and at > 1:
        above.append(at)
        at = parents[at]
    root = parents.get(pid, pid) if siblings_too else pid
    tree = {root, pid} if root > 1 else {pid}
    while True:
        below = {child for child, parent in parents.items() if parent in tree} - tree
        if not below:
            return frozenset(tree | set(above))
        tree |= below


def find_ownership(
    before: Uses | None,
    after: Uses | None,
    fingerprint: Callable[[], tuple[Uses | None, Uses | None]],
    environ: Mapping[str, str] = os.environ,
) -> Ownership:
    """Return our ids as NVML numbers them. fingerprint: allocates FINGERPRINT_BYTES, gives the lists around that."""
    pid = os.getpid()
    own = own_process(before, after, pid)
    if own is None and after:
        own = grown_process(*fingerprint(), FINGERPRINT_BYTES)
    if own is None:
        return Ownership(known=False, how="own process not found in the list of processes")
    if own != pid:
        return Ownership(frozenset({own}), how=f"host process id {own} (another pid namespace)")
    workers = "PYTEST_XDIST_WORKER" in environ
    return Ownership(frozenset({pid}), look=lambda: process_tree(pid, parents_of_all(), workers))


def active_others(uses: Iterable[ProcessUse] | None, ownership: Ownership) -> tuple[ProcessUse, ...]:
    """Return processes that are busy and not ours; none where ownership is not known."""
    if uses is None or not ownership.known:
        return ()
    busy = [use for use in uses if use.percent >= ACTIVE_PERCENT and use.pid not in ownership.own]
    ours = ownership.look() | remembered() if busy and ownership.look is not None else frozenset()
    return tuple(use for use in busy if use.pid not in ours)


def describe(use: ProcessUse, name: str | None) -> str:
    """Format as ``python (pid 4711, 80 %)``."""
    return f"{Path(name).name if name else 'process'} (pid {use.pid}, {use.percent} %)"
