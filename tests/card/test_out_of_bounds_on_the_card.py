"""Kernels that write beyond the ends of CuPy's arrays are found, and those that do not run as without zones."""

from typing import Any

import pytest
from card_processes import SMALL, Card

TESTS = """
import cupy
import numpy as np
import pytest

SOURCE = r'''
extern "C" __global__ void copy(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = x[i];
}
extern "C" __global__ void put(char* y, long long at, int size) {
    for (int i = 0; i < size; i++) y[at + i] = 0;
}
extern "C" __global__ void wild(float* x) { x[1ll << 36] = 1; }
'''
N = 10_001


def copied(bandwidth, more=0, **options):
    x, y = bandwidth.random(N), bandwidth.empty(N)
    kernel = bandwidth.kernel(SOURCE, "copy")
    bandwidth.launch(kernel, 64, 256, (x, y, np.int32(N + more)), reads=x, writes=y, **options)


def test_right(bandwidth):
    copied(bandwidth)


def test_right_graph(bandwidth):
    copied(bandwidth, graph=True)


def test_off_by_one(bandwidth):
    copied(bandwidth, more=1)


def test_off_by_one_graph(bandwidth):
    copied(bandwidth, more=1, graph=True)


@pytest.mark.parametrize("at", [4 * N, 4 * N + 32, 4 * N + 4096, -4, -36, -4100])
def test_put(bandwidth, at):
    y = bandwidth.empty(N)
    bandwidth.bind(bandwidth.kernel(SOURCE, "put"), 1, 1, (y, np.int64(at), np.int32(4)))()


def test_put_on_another_stream(bandwidth):
    y = bandwidth.empty(N)
    stream = cupy.cuda.Stream(non_blocking=True)
    bandwidth.bind(bandwidth.kernel(SOURCE, "put"), 1, 1, (y, np.int64(-8), np.int32(4)), stream=stream)()


def test_put_into_nothing(bandwidth):
    y = bandwidth.empty(0, "int8")
    bandwidth.bind(bandwidth.kernel(SOURCE, "put"), 1, 1, (y, np.int64(0), np.int32(1)))()


def test_kinds(bandwidth):
    for kind in ("int32", "float16", "complex64", "bool"):
        some = [bandwidth.empty(7, kind), bandwidth.random((3, 5), kind), bandwidth.empty(0, kind)]
        assert [(a.dtype, a.data.ptr % 512) for a in some] == [(kind, 0)] * 3
        for array in some:
            array[...] = 1
    assert not bandwidth.empty(1000, "int64").any()


def test_in_a_measurement(bandwidth):
    mem = set()
    x = bandwidth.random(N)
    def work():
        y = bandwidth.empty(N)
        y[...] = x
        mem.add(type(y.data.mem))
    bandwidth(work, reads=x, writes=x.nbytes)
    assert mem == {cupy.cuda.memory.PooledMemory}
    assert type(x.data.mem) not in mem


def test_wild(bandwidth):
    x = bandwidth.random(N)
    cupy.RawKernel(SOURCE, "wild")((1,), (1,), (x,))
"""


@pytest.fixture(scope="module")
def seen(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_far.py").write_text(TESTS)
    _, shown, rows = shared_card.tested(folder, "-rA", **SMALL)
    return shown, {row["nodeid"].partition("::test_")[2]: row["reason_code"] for row in rows}


def test_what_was_measured_is_a_mismatch(seen: tuple[str, dict[str, Any]]) -> None:
    assert seen[1] == {
        "right": "no-baseline",
        "right_graph": "no-baseline",
        "off_by_one": "out-of-bounds",
        "off_by_one_graph": "out-of-bounds",
        "in_a_measurement": "no-baseline",
    }


@pytest.mark.parametrize(
    ("test", "said"),
    [
        ("off_by_one", "4 bytes changed after array 2 of the test, (10001,) float32, 0 bytes"),
        ("put[40004]", "4 bytes changed after array 1 of the test, (10001,) float32, 0 bytes (0 elements)"),
        ("put[40036]", "4 bytes changed after array 1 of the test, (10001,) float32, 32 bytes (8 elements)"),
        ("put[44100]", "4 bytes changed after array 1 of the test, (10001,) float32, 4096 bytes (1024 elements)"),
        ("put[-4]", "4 bytes changed before array 1 of the test, (10001,) float32, 0 bytes (0 elements)"),
        ("put[-36]", "4 bytes changed before array 1 of the test, (10001,) float32, 32 bytes (8 elements)"),
        ("put[-4100]", "4 bytes changed before array 1 of the test, (10001,) float32, 4096 bytes (1024 elements)"),
        ("put_on_another_stream", "4 bytes changed before array 1 of the test, (10001,) float32, 4 bytes (1 element)"),
        ("put_into_nothing", "1 byte changed after array 1 of the test, (0,) int8, 0 bytes (0 elements)"),
    ],
)
def test_the_failure_names_array_and_place(seen: tuple[str, dict[str, Any]], test: str, said: str) -> None:
    of_test = seen[0].partition(f"_ test_{test} _")[2].partition("\n___")[0]
    assert f"a write out of bounds: {said}" in of_test


@pytest.mark.parametrize("test", ["right", "right_graph", "kinds", "in_a_measurement"])
def test_others_pass(seen: tuple[str, dict[str, Any]], test: str) -> None:
    assert f"PASSED test_far.py::test_{test}\n" in seen[0]


def test_a_lost_context_is_told_as_one(seen: tuple[str, dict[str, Any]]) -> None:
    assert "the GPU context is lost" in seen[0].partition("_ test_wild _")[2]
    assert "unraisable" not in seen[0].lower()
