"""Launches and callables timed from a CUDA graph, under real CuPy on the emulated card, as one process saw them."""

import re
from typing import Any

import pytest
from card_processes import Card

TESTS = r"""
import cupy
import numpy as np
import pytest

PLUS = 'extern "C" __global__ void plus(const float* x, float* y, float a) {' \
       ' int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i] + a; }'
N = 1 << 15


def arrays(bandwidth):
    return bandwidth.random(N, "float32"), bandwidth.empty(N, "float32")


def plus(bandwidth, x, y, **more):
    kernel = bandwidth.kernel(PLUS, "plus")
    return bandwidth.launch(kernel, N // 256, 256, (x, y, np.float32(1)), reads=x, writes=y, **more)


def test_plain(bandwidth):
    plus(bandwidth, *arrays(bandwidth))


def test_graph(bandwidth):
    x, y = arrays(bandwidth)
    plus(bandwidth, x, y, graph=True)
    cupy.testing.assert_array_equal(y, x + 1)


def test_streamed(bandwidth):
    plus(bandwidth, *arrays(bandwidth), graph=True, stream=cupy.cuda.Stream(non_blocking=True))


def test_in_place(bandwidth):
    x, _ = arrays(bandwidth)
    plus(bandwidth, x, x, graph=True)


def test_same_arrays(bandwidth):
    '''Not rotated: what a graph of one's own over the same arrays finds in the cache.'''
    x, y = arrays(bandwidth)
    kernel, stream = bandwidth.kernel(PLUS, "plus"), cupy.cuda.Stream(non_blocking=True)
    with stream:
        stream.begin_capture()
        for _ in range(32):
            kernel((N // 256,), (256,), (x, y, np.float32(1)))
        graph = stream.end_capture()
    bandwidth(lambda: graph.launch(stream), stream=stream, reads=32 * x.nbytes, writes=32 * y.nbytes)


def refused(bandwidth, kernel, args, match):
    with pytest.raises(Exception, match=match):
        bandwidth.launch(kernel, N // 256, 256, args, reads=args[0], graph=True)
    x, y = arrays(bandwidth)
    plus(bandwidth, x, y)  # nothing is left of it
    cupy.testing.assert_array_equal(y, x + 1)


def test_waits(bandwidth):
    def kernel(grid, block, args, shared_mem):
        cupy.cuda.get_current_stream().synchronize()

    refused(bandwidth, kernel, arrays(bandwidth), "CUDA does not capture the launch .*: it waits, or copies")


def test_allocates(bandwidth):
    def kernel(grid, block, args, shared_mem):
        args[1][...] = args[0] + 1

    refused(bandwidth, kernel, arrays(bandwidth), "the launch allocates 131 kB, which other code may use")


def test_overlaps(bandwidth):
    x, _ = arrays(bandwidth)
    kernel = bandwidth.kernel(PLUS, "plus")
    refused(bandwidth, kernel, (x[1:], x, np.float32(1)), "two of the arrays overlap")


def work(bandwidth, x, y):
    '''A callable of four launches: each of the first three writes what the next reads.'''
    kernel = bandwidth.kernel(PLUS, "plus")
    parts = [bandwidth.bind(kernel, N // 256, 256, (x if i == 0 else y, y, np.float32(1))) for i in range(4)]

    def run(*given):
        for part in parts:
            part()
        return y

    return run


def test_callable_plain(bandwidth):
    x, y = arrays(bandwidth)
    bandwidth(work(bandwidth, x, y), reads=x, writes=y)


def test_callable(bandwidth):
    x, y = arrays(bandwidth)
    measured = bandwidth(work(bandwidth, x, y), x, reads="args", writes="result", graph=True)
    assert measured.value is y
    cupy.testing.assert_array_equal(y, x + 1 + 1 + 1 + 1)


def test_callable_streamed(bandwidth):
    x, y = arrays(bandwidth)
    stream = cupy.cuda.Stream(non_blocking=True)
    bandwidth(work(bandwidth, x, y), reads=x, writes=y, graph=True, stream=stream)


def test_callable_allocates_in_a_pool(bandwidth):
    '''What it makes stays its own: nothing that is allocated later lies there.'''
    x, _ = arrays(bandwidth)
    measured = bandwidth(lambda x: cupy.sqrt(x) + x, x, reads="args", writes="result", graph=True)
    others = [cupy.zeros(N, np.float32) for _ in range(8)]
    cupy.testing.assert_allclose(measured.value, cupy.sqrt(x) + x, rtol=1e-6)
    assert not any(other.any() for other in others)


def test_callable_doubled(bandwidth):
    x, y = arrays(bandwidth)
    run = work(bandwidth, x, y)
    measured = bandwidth(run, reads=x, writes=y, graph=True, doubled=lambda: (run(), run()))
    assert any("twice the batch takes" in one.text for one in measured.findings)


def test_compared(bandwidth):
    x, y = arrays(bandwidth)
    kernel = bandwidth.kernel(PLUS, "plus")
    one = bandwidth.bind(kernel, N // 256, 256, (x, y, np.float32(1)))
    found = bandwidth.compare({"four": work(bandwidth, x, y), "one": one}, reads=x, writes=y, graph=True)
    assert found.ratio("one", over="four").value > 1.5


def callable_refused(bandwidth, call, match):
    x, y = arrays(bandwidth)
    with pytest.raises(Exception, match=match) as error:
        bandwidth(call, x, y, reads=x, writes=y, graph=True)
    assert "\n" not in str(error.value)
    bandwidth(lambda: cupy.add(x, 1, out=y), reads=x, writes=y)  # nothing is left of it
    cupy.testing.assert_array_equal(y, x + 1)


CAPTURED = r"graph=True: CUDA does not capture the (measured )?callable \(.*\): it waits, copies to the host, uses the"


def half_on_the_default_stream(x, y):
    cupy.add(x, 1, out=y)
    with cupy.cuda.Stream.null:
        cupy.add(x, 2, out=y)


@pytest.mark.parametrize(
    ("call", "match"),
    [
        (lambda x, y: (cupy.add(x, 1, out=y), cupy.cuda.get_current_stream().synchronize()), CAPTURED),
        (lambda x, y: float(x.sum()), CAPTURED),
        (lambda x, y: cupy.asarray([1.0]), CAPTURED),
        (lambda x, y, kept=[]: (kept.append(cupy.cuda.Memory(512)), cupy.add(x, 1, out=y)), CAPTURED),
        (half_on_the_default_stream, CAPTURED),
        (lambda x, y: None, "nothing ran on the timed stream"),
    ],
)
def test_callable_refused(bandwidth, call, match):
    callable_refused(bandwidth, call, match)


def test_callable_refused_in_a_library(bandwidth):
    square = cupy.ones((64, 64), np.float32)
    callable_refused(bandwidth, lambda x, y: square @ square, r"\(calling cuBLAS API during stream capture is .*\)")


def test_callable_refused_that_leaves_a_stream_at_work(bandwidth):
    other = cupy.cuda.Stream(non_blocking=True)

    def call(x, y):
        other.wait_event(cupy.cuda.get_current_stream().record())
        with other:
            cupy.add(x, 1, out=y)

    callable_refused(bandwidth, call, "cudaErrorStreamCaptureUnjoined.*leaves another stream busy")


def test_callable_that_forks_and_joins(bandwidth):
    other = cupy.cuda.Stream(non_blocking=True)
    x, y = arrays(bandwidth)

    def call():
        stream = cupy.cuda.get_current_stream()
        other.wait_event(stream.record())
        with other:
            cupy.add(x, 1, out=y)
        stream.wait_event(other.record())

    bandwidth(call, reads=x, writes=y, graph=True)
    cupy.testing.assert_array_equal(y, x + 1)


def test_refused_by_name(bandwidth):
    '''Of several callables: which.'''
    x, y = arrays(bandwidth)
    both = {"good": lambda: cupy.add(x, 1, out=y), "bad": lambda: float(x.sum())}
    with pytest.raises(Exception, match=r"CUDA does not capture the measured callable \(bad\) \("):
        bandwidth.compare(both, reads=x, writes=y, graph=True)
    with pytest.raises(Exception, match=r"CUDA does not capture the callable compared with it \("):
        bandwidth(both["good"], reads=x, writes=y, graph=True, doubled=both["bad"])


def test_callable_refused_on_another_stream(bandwidth):
    other = cupy.cuda.Stream(non_blocking=True)
    x, y = cupy.zeros(1 << 21, np.float32), cupy.zeros(1 << 21, np.float32)

    def call(*given):
        with other:
            cupy.add(x, 1, out=y)

    callable_refused(bandwidth, call, "after the timed stream had finished: the work runs on another stream")


def test_callable_refused_raising(bandwidth):
    '''An error of its own stays one.'''
    runs = []

    def call(x, y):
        runs.append(None)
        cupy.add(x, 1, out=y)
        if len(runs) > 5:
            raise KeyError("mine")

    callable_refused(bandwidth, call, "the measured callable raised KeyError: 'mine'")


def test_too_large(bandwidth):
    '''Two launches of 40 % of the memory do not fit beside one another.'''
    x = cupy.empty(cupy.cuda.runtime.memGetInfo()[1] * 2 // 5, np.uint8)
    kernel = lambda grid, block, args, shared_mem: None
    with pytest.raises(Exception, match="2 launches on arrays of their own need .* are free: measure without"):
        bandwidth.launch(kernel, 1, 1, (x,), reads=x, graph=True)
"""


@pytest.fixture(scope="module")
def seen(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_graphs.py").write_text(TESTS)
    # Samples do not differ; and so little memory that one test fills nearly half of it in no time.
    settings: dict[str, object] = {"L2_BYTES": 1 << 20, "MEMORY_BYTES": 2 << 30, "JITTER": 0}
    _, shown, rows = shared_card.tested(folder, "--bandwidth-min-samples=8", **settings)
    # The one whose figure no memory has.
    assert re.search(r"^=+ 1 failed, 26 passed in ", shown, re.MULTILINE), shown
    return {row["nodeid"].partition("::test_")[2]: row for row in rows}


@pytest.mark.parametrize("way", ["graph", "streamed", "in_place"])
def test_a_sample_is_a_replay_of_many_launches(seen: Any, way: str) -> None:
    assert (seen[way]["method"], seen[way]["detail"]["graph_launches"]) == ("events+block+graph", 32)
    assert seen["plain"]["method"] == "events+block"
    assert "graph_launches" not in seen["plain"]["detail"]
    assert seen[way]["bytes_read"] == seen["plain"]["bytes_read"]


def test_launches_of_a_graph_cost_the_host_one(seen: Any) -> None:
    assert seen["graph"]["host_seconds"] < seen["plain"]["host_seconds"] / 3
    assert seen["callable"]["host_seconds"] < seen["callable_plain"]["host_seconds"] / 1.5


def test_caches_stay_cold_where_arrays_are_rotated_and_before_a_callables_replay(seen: Any) -> None:
    assert seen["callable"]["detail"]["cache_flushed"]
    assert seen["callable"]["gbps"] == pytest.approx(seen["callable_plain"]["gbps"], rel=0.1)
    plain, graph, same = (seen[way]["gbps"] for way in ("plain", "graph", "same_arrays"))
    assert graph == pytest.approx(plain, rel=0.25)
    assert same > 1.5 * graph
    assert (seen["same_arrays"]["status"], seen["same_arrays"]["reason_code"]) == ("MISMATCH", "faster-than-light")


@pytest.mark.parametrize("way", ["callable", "callable_streamed", "callable_allocates_in_a_pool"])
def test_a_callables_run_is_replayed_from_a_graph(seen: Any, way: str) -> None:
    assert (seen[way]["method"], seen[way]["detail"]["graph_launches"]) == ("events+block+graph", 1)


def test_what_cannot_be_captured_is_refused_and_leaves_nothing(seen: Any) -> None:
    assert {seen[name]["method"] for name in ("waits", "allocates", "overlaps")} == {"events+block"}
