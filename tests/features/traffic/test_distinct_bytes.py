"""The distinct bytes that a launch on a GPU moves, counted on the CPU for the least time that it can take."""

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.domain.errors import KernelError
from pytest_bandwidth.features import traffic
from pytest_bandwidth.features.traffic import pytest_bandwidth_distinct_bytes as distinct_bytes

ptx = pytest.importorskip("pytest_bandwidth.features.traffic.ptx", reason="needs the extra traffic")

KERNEL = """
extern "C" __global__ void work(float* x, float* y, float* scratch) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {body}
}}
"""
N = 1 << 12


def counted(body: str, blocks: int = N // 256, **more: object) -> object:
    code = ptx.compile_ptx(KERNEL.format(body=body), arch="sm_90", filename="work.cu").ptx
    arrays = tuple(np.ones(N, np.float32) for _ in range(3))
    launch = Launch(None, (blocks, 1, 1), (256, 1, 1), arrays)
    return distinct_bytes(code, launch, more.get("host_args", lambda: arrays))


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
def test_each_byte_counts_once_of_the_whole_grid(body, read, written):
    assert counted(body) == {"read": read, "written": written}


def test_what_cannot_be_counted_is_left_out(monkeypatch):
    assert counted("y[N_TOO_FAR] = x[i];".replace("N_TOO_FAR", str(N))) is None, "a fault"
    monkeypatch.setattr(traffic, "MAX_SECONDS", 0.1)
    assert counted("volatile float* z = y; while (z[i] == 1) {}") is None, "it takes too long"
    monkeypatch.setattr(traffic, "MAX_THREADS", N - 1)

    def not_asked():
        raise AssertionError("arrays are copied in vain")

    assert counted("y[i] = x[i];", host_args=not_asked) is None


def test_arguments_that_are_not_all_there_are_left_out():
    def unknown():
        raise KernelError("the test sets variables of the kernel")

    assert counted("y[i] = x[i];", host_args=unknown) is None
