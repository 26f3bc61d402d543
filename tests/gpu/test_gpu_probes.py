"""Whether probes reach what the memory can give: their grids, and beside copies by others."""

from typing import Any

import pytest
from gpu_work import large, measured, median_seconds

from pytest_bandwidth.devices.base import KernelSource, Launch, Workload
from pytest_bandwidth.devices.cuda.device import CudaDevice
from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.domain.traffic import MIXES, Mix, Traffic
from pytest_bandwidth.suite.operations import OPERATIONS


class Arrays:
    """Make an operation's arrays, as the fixture does."""

    def __init__(self, device: CudaDevice) -> None:
        self.xp, self.random, self.empty = device.xp, device.random, device.empty


# A better grid than one in which no thread has a second turn is worth having from this gain on.
WORTH = 0.02


@pytest.mark.parametrize("mix", MIXES, ids=[mix.name for mix in MIXES])
def test_no_smaller_grid_is_faster(device: CudaDevice, mix: Mix, monkeypatch: pytest.MonkeyPatch) -> None:
    size = large(device)
    traffic = Traffic(mix.reads * size, mix.writes * size)
    multiprocessors = int(device.identity.facts["sm_count"] or 1)
    real = device._probes.blocks
    gbps = {}
    for blocks in (None, 8, 16, 32, 64):
        monkeypatch.setattr(
            device._probes, "blocks", real if blocks is None else lambda *_, many=blocks: many * multiprocessors
        )
        probe = device.probe(traffic)
        seconds = median_seconds(device, Workload(probe.call, traffic))
        gbps["one turn a thread" if blocks is None else f"{blocks} an SM"] = probe.bytes_moved / seconds / 1e9
    print(mix.name, {grid: f"{found:.0f} GB/s" for grid, found in gbps.items()})
    assert gbps["one turn a thread"] >= (1 - WORTH) * max(gbps.values()), f"choose another grid for {mix.name}: {gbps}"


def test_the_probe_is_about_as_fast_as_torchs_copy(device: CudaDevice, torch: Any) -> None:
    x = torch.rand(large(device) // 4, device="cuda")
    y = torch.empty_like(x)
    found = measured(device, Workload(lambda: y.copy_(x), Traffic(x.nbytes, x.nbytes), reads=(x,), writes=(y,)))
    assert 0.9 < found.relative < 1.1


@pytest.mark.parametrize("kernel", ["read", "copy", "triad"])
def test_wide_stream_kernels_reach_their_probe(device: CudaDevice, kernel: str) -> None:
    # One element a thread does not on a fast card; the plain kernel's share is printed beside it.
    operations = {o.version: o for o in OPERATIONS if o.name == kernel}
    shares = {}
    for version, operation in operations.items():
        sizes = operation.shapes(8 * large(device), "float32")[0]
        case = operation.prepare(Arrays(device), "float32", sizes)
        (step,) = case.steps
        text = (shipped_folder() / step.file).read_text(encoding="utf-8")
        launch = Launch(device.kernel(KernelSource(text, step.kernel)), step.grid, step.block, step.args)
        shares[version] = measured(device, Workload(device.launcher(launch, None), case.traffic)).relative
    print(kernel, shares)
    assert shares["wide"] is not None
    assert shares["wide"] > 0.9
