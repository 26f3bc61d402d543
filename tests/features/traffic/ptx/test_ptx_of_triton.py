"""PTX that Triton 3.9 made of tests/support/triton_kernels.py, kept so that no test here needs Triton.

tests/frameworks/test_triton_traffic.py compiles the same kernels anew. Of these files debug information was left out.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from pytest_bandwidth.features.traffic import ptx

FOLDER = Path(__file__).with_name("made_by_triton")
# Without what the compiler needs itself, which comes last and is empty here.
PARAMETERS = {
    "softmax": ("out", "x", "stride", "columns", "scratch", "profile"),
    "matmul": ("a", "b", "c", "m", "n", "k", "scratch", "profile"),
}
architectures = pytest.mark.parametrize("arch", ["sm_80", "sm_90"])


def run(kernel: str, arch: str, grid: int, *args: object, shared_bytes: int) -> ptx.Execution:
    text = (FOLDER / f"{kernel}.{arch}.ptx").read_text(encoding="utf-8")
    module = ptx.PtxModule(text, "", arch, filename="triton_kernels.py", parameters=PARAMETERS[kernel])
    return ptx.execute(ptx.Program(module), kernel, (grid,), (128,), (*args, None, None), shared_bytes=shared_bytes)


@architectures
def test_softmax(arch: str) -> None:
    rows, columns = 5, 1008
    x = np.random.default_rng(1).standard_normal((rows, columns)).astype(np.float32)
    out = np.zeros_like(x)
    execution = run("softmax", arch, rows, out, x, np.int32(columns), np.int32(columns), shared_bytes=16)
    assert not execution.faults
    powers = np.exp(x - x.max(axis=1, keepdims=True))
    np.testing.assert_allclose(out, powers / powers.sum(axis=1, keepdims=True), rtol=1e-5)
    # 16 bytes a thread; half of the last warp of each row's eight has nothing to do.
    loads = execution.counts.loads
    assert (loads.requests, loads.sectors, loads.describe()) == (rows * 8, rows * columns // 8, "coalesced")
    assert {line.file for line in execution.lines} == {"triton_kernels.py"}


@architectures
def test_a_product_of_matrices(arch: str) -> None:
    """Copies to shared memory and mma for sm_80, the product of a warp group for sm_90."""
    m, n, k = 96, 48, 80
    generator = np.random.default_rng(2)
    a, b = (generator.integers(-4, 5, shape).astype(np.float16) for shape in ((m, k), (k, n)))
    c = np.zeros((m, n), np.float16)
    sizes = (np.int32(size) for size in (m, n, k))
    execution = run("matmul", arch, 4, a, b, c, *sizes, shared_bytes=1 << 14)
    assert not execution.faults
    np.testing.assert_array_equal(c, a @ b)
    tiles = 4
    assert execution.counts.loads.bytes_requested == tiles * (64 + 32) * k * 2
    assert execution.counts.stores.bytes_requested == c.nbytes


def test_a_lost_guard_is_out_of_bounds_at_a_line_of_python() -> None:
    x = np.ones((1, 1008), np.float32)
    out = np.zeros((1, 1000), np.float32)
    (fault,) = run("softmax", "sm_80", 1, out, x, np.int32(1008), np.int32(1008), shared_bytes=16).faults
    source = (Path(__file__).parents[3] / "support" / "triton_kernels.py").read_text(encoding="utf-8").splitlines()
    assert (fault.code, fault.array, fault.file) == ("out-of-bounds", "out", "triton_kernels.py")
    assert "tl.store(out + row" in source[fault.line - 1]
