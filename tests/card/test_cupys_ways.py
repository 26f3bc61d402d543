"""What CuPy's users have besides plain arrays and launches, measured through the fixture, as one process saw it."""

from typing import Any

import pytest
from card_processes import Card

TESTS = """
import cupy
import numpy as np
import pytest

ADD = 'extern "C" __global__ void add(const float* x, float* y) {' \\
      ' int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i] + 1; }'
N = 1 << 19


def test_plain(bandwidth):
    x, y = bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")
    bandwidth.launch(bandwidth.kernel(ADD, "add"), N // 256, 256, (x, y), reads=x, writes=y)


def test_stream_ordered_pool(bandwidth):
    with cupy.cuda.using_allocator(cupy.cuda.MemoryAsyncPool().malloc):
        x = bandwidth.random(N, "float32")
        bandwidth(lambda: x + 1, reads=x, writes=x.nbytes)


def test_graph(bandwidth):
    x, y = bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")
    add, stream = cupy.RawKernel(ADD, "add"), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        add((N // 256,), (256,), (x, y))
        graph = stream.end_capture()
    bandwidth(lambda: graph.launch(stream), stream=stream, reads=x, writes=y)
    cupy.testing.assert_array_equal(y, x + 1)


def test_peer(bandwidth):
    x = bandwidth.random(N, "float32")
    with cupy.cuda.Device(1):
        y = cupy.empty(N, "float32")
    copy = cupy.cuda.runtime.memcpyPeerAsync

    def call():
        copy(y.data.ptr, 1, x.data.ptr, 0, x.nbytes, cupy.cuda.get_current_stream().ptr)

    bandwidth(call, reads=x)
    assert (x.get() == y.get()).all()


def test_arrays_of_the_other_card_are_refused(bandwidth):
    with cupy.cuda.Device(1):
        y = cupy.empty(N, "float32")
    with pytest.raises(Exception, match="lies on cuda:1, not on cuda:0"):
        bandwidth(lambda: y + 1, reads=y)


def test_arrays_of_both_cards_in_one_call_are_refused(bandwidth):
    x = bandwidth.random(N, "float32")
    with cupy.cuda.Device(1):
        y = cupy.empty(N, "float32")
    with pytest.raises(Exception, match="y: .* lies on cuda:1, not on cuda:0"):
        bandwidth(lambda x, y: x + y, x, y, reads="args")
"""


@pytest.fixture(scope="module")
def seen(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_ways.py").write_text(TESTS)
    options = ("--bandwidth-device=cuda:0", "--bandwidth-max-time=0.1")
    status, shown, rows = shared_card.tested(folder, *options, DEVICES=2, L2_BYTES=1 << 18)
    assert status == 0, shown
    return {row["nodeid"].partition("::test_")[2]: row for row in rows}


def test_all_are_measured_behind_a_hold(seen: Any) -> None:
    assert {name: (row["reason_code"], row["method"]) for name, row in seen.items()} == dict.fromkeys(
        ("plain", "stream_ordered_pool", "graph", "peer"), ("no-baseline", "events+block")
    )


def test_they_are_as_fast_as_a_plain_launch_and_a_copy_between_cards_takes_the_link(seen: Any) -> None:
    for way in ("stream_ordered_pool", "graph"):
        assert seen[way]["gbps"] == pytest.approx(seen["plain"]["gbps"], rel=0.05), way
    assert seen["peer"]["gbps"] == pytest.approx(3, rel=0.05)  # the bus of the first card in time_model.c
