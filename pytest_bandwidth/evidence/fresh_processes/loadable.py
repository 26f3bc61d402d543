"""Say before any test runs which of the baseline's old kernels this machine cannot load."""

from __future__ import annotations

from collections.abc import Collection
from contextlib import suppress

from pytest_bandwidth.devices.base import OldCodeDevice
from pytest_bandwidth.domain.baseline import Entry
from pytest_bandwidth.domain.code.machine_code import CUBIN, CubinSource
from pytest_bandwidth.domain.code.ptx_normal_form import PtxSource
from pytest_bandwidth.domain.code.ptx_version import version_of
from pytest_bandwidth.domain.device import COMPILER_SETTING, DeviceIdentity
from pytest_bandwidth.domain.errors import BandwidthError
from pytest_bandwidth.domain.units import counted


def why_not_loadable(
    device: OldCodeDevice,
    identity: DeviceIdentity,
    entries: Collection[Entry],
    old_ptx: PtxSource,
    old_cubin: CubinSource,
) -> str | None:
    """Say how many kernels of the entries the driver does not take, and what to do; None where it takes all.

    Only PTX of a version that is newer than the driver may be refused so, and is loaded. A file that is missing or
    damaged is left to the test that needs it.
    """
    takes = device.newest_ptx
    refused: list[str] = []
    kernels = {(entry.code["ptx"], entry.code.get(CUBIN)): entry for entry in entries if "ptx" in entry.code}
    for entry in kernels.values() if takes is not None else ():
        with suppress(BandwidthError):
            ptx = old_ptx(entry.code["ptx"])
            version = version_of(ptx)
            if version is None or takes is None or version <= takes:
                continue
            why = device.why_not_loaded(ptx, _kept(entry, old_cubin))
            if why is not None:
                refused.append(why)
    if not refused:
        return None
    compiler, driver = identity.facts.get(COMPILER_SETTING), identity.facts.get("cuda_driver")
    return (
        f"old kernels cannot run here: {len(refused)} of the baseline's {counted(len(kernels), 'kernel')} need a newer "
        f"driver than that of CUDA {driver} (NVRTC is {compiler}): {refused[0]}; update the driver, or run "
        "--bandwidth-update here, which keeps machine code"
    )


def _kept(entry: Entry, old_cubin: CubinSource) -> bytes | None:
    try:
        return old_cubin(entry.code)
    except BandwidthError:
        return None
