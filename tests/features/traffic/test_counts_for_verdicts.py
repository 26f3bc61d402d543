"""What a launch on a GPU asks of memory, counted on the CPU: for a verdict's likely cause, and for its least time."""

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.domain.errors import KernelError
from pytest_bandwidth.features import traffic
from pytest_bandwidth.features.traffic import pytest_bandwidth_distinct_bytes as distinct_bytes
from pytest_bandwidth.features.traffic import pytest_bandwidth_sectors as sectors_of_both

ptx = pytest.importorskip("pytest_bandwidth.features.traffic.ptx", reason="needs the extra traffic")

KERNEL = """
extern "C" __global__ void work(float* x, float* y, float* scratch, int step) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""
N, STEP = 1 << 13, 8


def compiled(body: str) -> str:
    return ptx.compile_ptx(KERNEL.format(body=body), arch="sm_90", filename="work.cu").ptx


@pytest.fixture
def launch() -> Launch:
    x, y, scratch = (np.ones(size, np.float32) for size in (N * STEP, N, N))
    return Launch(None, (N // 256, 1, 1), (256, 1, 1), (x, y, scratch, np.int32(STEP)))


def test_a_strided_load_asks_for_a_sector_an_element(launch):
    plain, strided = compiled("y[i] = x[i];"), compiled("y[i] = x[i * step];")
    assert sectors_of_both(plain, strided, launch, lambda: launch.args) == {"then": 64, "now": 256 + 32}


@pytest.mark.parametrize(
    ("body", "read", "written"),
    [
        ("y[i] = x[i];", 4 * N, 4 * N),
        ("y[i] = x[i / 2] + x[i / 4];", 2 * N, 4 * N),
        ("x[i] += 1;", 4 * N, 4 * N),
        ("atomicAdd(&x[i % 32], 1.0f);", 128, 128),
        # What it wrote itself needs not come from memory.
        ("volatile float* s = scratch; s[i] = x[i]; y[i] = s[i];", 4 * N, 8 * N),
        ("if (i < 1024) y[i] = x[i];", 4096, 4096),
    ],
)
def test_each_byte_counts_once_of_the_whole_grid(launch, body, read, written):
    assert distinct_bytes(compiled(body), launch, lambda: launch.args) == {"read": read, "written": written}


def test_what_cannot_be_counted_is_left_out(launch, monkeypatch):
    plain, endless, given = (
        compiled("y[i] = x[i];"),
        compiled("volatile float* z = y; while (z[i] == 1);"),
        lambda: launch.args,
    )

    def not_asked():
        raise AssertionError("arrays are copied in vain")

    def unknown():
        raise KernelError("the test sets variables of the kernel")

    assert distinct_bytes(compiled(f"y[i + {N}] = x[i];"), launch, given) is None, "a fault"
    assert distinct_bytes(plain, launch, unknown) is None
    assert sectors_of_both(plain, "rot 3;", launch, given) is None
    monkeypatch.setattr(traffic, "MAX_SECONDS", 0.1)
    assert distinct_bytes(endless, launch, given) is None, "it takes too long"
    assert sectors_of_both(endless, plain, launch, given) is None
    monkeypatch.setattr(traffic, "MAX_THREADS", N - 1)
    assert distinct_bytes(plain, launch, not_asked) is None
    monkeypatch.setattr(traffic, "MAX_ARRAY_BYTES", 1 << 10)
    assert sectors_of_both(plain, plain, launch, not_asked) is None
