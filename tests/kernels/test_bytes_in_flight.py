"""Whether the wide stream kernels ask for enough at once to fill a fast memory. How fast they are, a GPU has to say."""

import re

import kernel_resources
import pytest

from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.suite.operations.stream import WIDE_BYTES_AHEAD

KIB = 1024
REGISTERS_PER_SM, THREADS_PER_SM, BLOCK = 64 * KIB, 2048, 256
# What CUB wants in flight on each multiprocessor (cub/device/dispatch/tuning/tuning_transform.cuh): A100, H200, B200.
WANTED_BYTES = {"sm_80": 16 * KIB, "sm_90": 48 * KIB, "sm_100": 64 * KIB}
LOADING = [f"{name}_{width}" for name in ("read", "copy", "scale", "add", "triad") for width in ("f32x4", "f16x8")]


def resident_threads(registers: int) -> int:
    """Return how many threads of blocks of 256 fit: registers are given out by eights."""
    return min(THREADS_PER_SM, REGISTERS_PER_SM // (-(-registers // 8) * 8) // BLOCK * BLOCK)


@pytest.mark.parametrize("arch", WANTED_BYTES)
@pytest.mark.parametrize("kernel", LOADING)
def test_enough_is_in_flight_on_each_multiprocessor(kernel, arch):
    registers = kernel_resources.recorded("stream.cu")[kernel][arch].registers
    assert resident_threads(registers) * WIDE_BYTES_AHEAD >= WANTED_BYTES[arch]


@pytest.fixture(scope="module")
def ptx() -> str:
    nvrtc = pytest.importorskip("pytest_bandwidth.features.traffic.ptx.nvrtc")
    text = (shipped_folder() / "stream.cu").read_text(encoding="ascii")
    return str(nvrtc.compile_ptx(text, arch="sm_90", filename="stream.cu").ptx)


@pytest.mark.parametrize("kernel", LOADING)
def test_a_thread_loads_64_bytes_before_it_uses_the_first(ptx, kernel):
    body = ptx.split(f".entry {kernel}(")[1].split("\n}")[0]
    accesses = "".join("L" if name == "ld" else "x" for name in re.findall(r"\b(ld|st)\.global\S*\.v4|\bbra\b", body))
    assert max(map(len, accesses.split("x"))) * 16 >= WIDE_BYTES_AHEAD
