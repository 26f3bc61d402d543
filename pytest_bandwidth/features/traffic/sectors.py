"""Count the sectors that a kernel's old and new code ask for: a few blocks of each are executed on the CPU."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.domain.code.stored_kernel import entry_of
from pytest_bandwidth.domain.errors import BandwidthError, KernelError

# Evenly spread over the grid.
BLOCKS = 16
MAX_SECONDS = 3.0
MAX_ARRAY_BYTES = 1 << 30
_TARGET = re.compile(r"^\s*\.target\s+(\w+)", re.MULTILINE)


def sectors_of_both(
    old: str, new: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]]
) -> Mapping[str, int] | None:
    """Return what a block asks for by the old code and by the new one, `then` and `now`, in sectors of 32 bytes.

    old, new: PTX, each a module of one kernel. host_args: copies the launch's arguments, arrays as NumPy's.
    None where they cannot be counted: arrays of more than 1 GiB, a launch that takes more than seconds, what the
    traffic device does not model, or its extra is missing.
    """
    if sum(getattr(arg, "nbytes", 0) for arg in launch.args) > MAX_ARRAY_BYTES:
        return None
    try:
        then, now = (_sectors_of(ptx, launch, host_args()) for ptx in (old, new))
    except (BandwidthError, ImportError, MemoryError):
        return None
    return {"then": then, "now": now}


def _sectors_of(text: str, launch: Launch, args: tuple[Any, ...]) -> int:
    """Return loads', stores' and atomics' sectors, a block's share of all those that ran."""
    from pytest_bandwidth.features.traffic import ptx  # of the extra `traffic`

    entry, target = entry_of(text), _TARGET.search(text)
    if entry is None or target is None:
        raise KernelError("its PTX holds no kernel, or several")
    execution = ptx.execute(
        ptx.Program(ptx.PtxModule(text, nvrtc_version="", arch=target[1])),
        entry.name,
        launch.grid,
        launch.block,
        args,
        shared_bytes=launch.shared_bytes,
        blocks=BLOCKS,
        max_seconds=MAX_SECONDS,
    )
    counts = execution.counts
    return round(sum(of.sectors for of in (counts.loads, counts.stores, counts.atomics)) / execution.blocks_run)
