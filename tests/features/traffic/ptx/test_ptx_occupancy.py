"""Occupancy of a launch, against figures of NVIDIA's occupancy calculator."""

import pytest

from pytest_bandwidth.domain.measured.measurement import KernelResources
from pytest_bandwidth.features.traffic.ptx.occupancy import Occupancy, most_shared_bytes, occupancy_of

H100, T4, RTX_4090, RTX_5090 = "sm_90a", "sm_75", "sm_89", "sm_120"


@pytest.mark.parametrize(
    ("arch", "registers", "shared", "threads", "dynamic", "warps", "share", "limited_by"),
    [
        (H100, 32, 0, 1024, 0, 64, 1.0, "threads"),
        (H100, 33, 0, 256, 0, 48, 0.75, "registers"),  # 40 registers a thread are allocated
        (H100, 72, 0, 256, 0, 24, 0.375, "registers"),
        (H100, 255, 0, 256, 0, 8, 0.125, "registers"),
        (H100, 128, 0, 160, 0, 15, 0.234375, "registers"),  # 16 warps fit: 3 blocks of 5
        (H100, 16, 0, 32, 0, 32, 0.5, "blocks"),
        (H100, 16, 0, 33, 0, 64, 1.0, "threads"),
        (H100, 16, 48 * 1024, 128, 0, 16, 0.25, "shared memory"),
        (H100, 16, 1024, 128, 226 * 1024, 4, 0.0625, "shared memory"),
        (H100, 128, 0, 1024, 0, 0, 0.0, "registers"),  # such a block cannot be launched
        (T4, 16, 16 * 1024, 128, 0, 16, 0.5, "shared memory"),
        (T4, 16, 0, 32, 0, 16, 0.5, "blocks"),
        ("sm_86", 16, 0, 64, 0, 32, 2 / 3, "blocks"),
        (RTX_4090, 200, 16888, 64, 0, 8, 1 / 6, "registers"),  # 168 registers would leave room for one block more
        (RTX_4090, 168, 16888, 64, 0, 10, 5 / 24, "shared memory"),
        (RTX_5090, 40, 0, 256, 0, 48, 1.0, "threads"),
    ],
)
def test_the_scarcest_part_of_an_sm_limits_its_warps(
    arch, registers, shared, threads, dynamic, warps, share, limited_by
):
    found = occupancy_of(arch, KernelResources(registers, 0, shared), threads, dynamic)
    if warps == 0:
        assert (found.warps, found.limited_by) == (0, "registers")
    else:
        assert found == Occupancy(warps, pytest.approx(share), limited_by)


def test_an_unknown_architecture_has_no_occupancy():
    assert occupancy_of("sm_999", KernelResources(32, 0, 0), 256, 0) is None


@pytest.mark.parametrize(("arch", "kib"), [(T4, 64), ("sm_80", 163), ("sm_86", 99), (H100, 227), ("sm_999", 227)])
def test_the_shared_memory_of_a_block(arch, kib):
    assert most_shared_bytes(arch) == kib * 1024
