"""Count the memory requests of kernels, without a GPU or a clock, by executing their PTX on the CPU."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pytest_bandwidth.hooks import hookimpl

if TYPE_CHECKING:
    import pytest

    from pytest_bandwidth.features.traffic.ptx.counts import Execution
    from pytest_bandwidth.hooks import Column, DeviceType, Launch

# So many blocks of old and of new code are executed to count the sectors of a block; they are spread over the grid.
BLOCKS = 16
MAX_SECONDS = 3.0
MAX_ARRAY_BYTES = 1 << 30
# The largest grid that is executed whole: ten instructions of each thread take about MAX_SECONDS.
MAX_THREADS = 1 << 26


@hookimpl
def pytest_bandwidth_devices() -> list[DeviceType]:
    """Add `traffic`; its variants are architectures, one or several."""
    from pytest_bandwidth.domain.device import DeviceType

    return [DeviceType("traffic", _open, "nothing", "traffic, traffic:sm_90", r"sm_\d\w*(,\w*)*")]


@hookimpl(trylast=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test by architecture where the run names several: each gets its row, its entry and its verdict."""
    if "bandwidth" not in metafunc.fixturenames:
        return
    from pytest_bandwidth.options.options import settings_of

    kind, _, variant = settings_of(metafunc.config).device.partition(":")
    if kind == "traffic" and "," in variant:
        metafunc.parametrize("bandwidth", variant.split(","), indirect=True)


@hookimpl
def pytest_bandwidth_columns() -> list[Column]:
    """Add the columns for what the device counted."""
    from pytest_bandwidth.features.traffic.columns import COLUMNS

    return list(COLUMNS)


@hookimpl
def pytest_bandwidth_sectors(
    old: str, new: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]]
) -> Mapping[str, int] | None:
    """Execute a few blocks of both kernels on the CPU, and return the sectors of a block. None where that fails: arrays
    of more than 1 GiB, a launch that takes more than some seconds, a kernel that is not modelled, a missing extra.
    """
    found = {}
    for name, text in (("then", old), ("now", new)):
        execution = _executed(text, launch, host_args, BLOCKS)
        if execution is None:
            return None
        counts = execution.counts  # of all blocks that ran
        sectors = counts.loads.sectors + counts.stores.sectors + counts.atomics.sectors
        found[name] = round(sectors / execution.blocks_run)
    return found


@hookimpl
def pytest_bandwidth_distinct_bytes(
    ptx: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]]
) -> Mapping[str, int] | None:
    """Execute the whole grid on the CPU, and return its distinct bytes. None as above, and for too many threads."""
    if math.prod((*launch.grid, *launch.block)) > MAX_THREADS:
        return None
    execution = _executed(ptx, launch, host_args, None)
    if execution is None or execution.faults:
        return None
    return {"read": execution.bytes_fetched, "written": execution.bytes_written}


def _executed(
    text: str, launch: Launch, host_args: Callable[[], tuple[Any, ...]], blocks: int | None
) -> Execution | None:
    """Execute a launch from its PTX, or so many of its blocks; None where that fails or takes too long."""
    from pytest_bandwidth.domain.code.stored_kernel import entry_of
    from pytest_bandwidth.domain.errors import BandwidthError

    entry, target = entry_of(text), re.search(r"^\s*\.target\s+(\w+)", text, re.MULTILINE)
    too_large = sum(getattr(arg, "nbytes", 0) for arg in launch.args) > MAX_ARRAY_BYTES
    if too_large or entry is None or target is None:  # no kernel, or several
        return None
    try:
        from pytest_bandwidth.features.traffic import ptx

        return ptx.execute(
            ptx.Program(ptx.PtxModule(text, nvrtc_version="", arch=target[1])),
            entry.name,
            launch.grid,
            launch.block,
            host_args(),
            shared_bytes=launch.shared_bytes,
            blocks=blocks,
            max_seconds=MAX_SECONDS,
        )
    except (BandwidthError, ImportError, MemoryError):
        return None


def _open(architecture: str) -> Any:
    try:
        from pytest_bandwidth.features.traffic.device import open_traffic
    except ModuleNotFoundError as error:
        from pytest_bandwidth.domain.errors import DeviceUnavailable

        missing = f"the traffic device needs {error.name}: pip install 'pytest-bandwidth[traffic]'"
        raise DeviceUnavailable(missing) from None

    return open_traffic(architecture) if architecture else open_traffic()
