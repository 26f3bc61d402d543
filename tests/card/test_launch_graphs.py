"""Launches that are timed from a CUDA graph, under real CuPy on the emulated card, as one process saw them."""

import json
from pathlib import Path
from typing import Any

import pytest
from card_processes import Card

TESTS = """
import cupy
import numpy as np
import pytest

PLUS = 'extern "C" __global__ void plus(const float* x, float* y, float a) {' \\
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

    refused(bandwidth, kernel, arrays(bandwidth), "the launch allocates 131 kB, which would be another's")


def test_overlaps(bandwidth):
    x, _ = arrays(bandwidth)
    kernel = bandwidth.kernel(PLUS, "plus")
    refused(bandwidth, kernel, (x[1:], x, np.float32(1)), "two of the arrays overlap")


@pytest.mark.parametrize("name", ["setup", "doubled"])
def test_no_place(bandwidth, name):
    with pytest.raises(Exception, match=f"graph=True and {name}=: a graph has several launches and no place for it"):
        plus(bandwidth, *arrays(bandwidth), graph=True, **{name: lambda: None})


def test_too_large(bandwidth):
    '''Two launches of 40 % of the memory do not fit beside one another.'''
    x = cupy.empty(cupy.cuda.runtime.memGetInfo()[1] * 2 // 5, np.uint8)
    kernel = lambda grid, block, args, shared_mem: None
    with pytest.raises(Exception, match="2 launches on arrays of their own take .* that are free: measure it without"):
        bandwidth.launch(kernel, 1, 1, (x,), reads=x, graph=True)
"""


@pytest.fixture(scope="module")
def seen(shared_card: Card, tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("user")
    (folder / "test_graphs.py").write_text(TESTS)
    plugins = ("-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:benchmark", "-p", "no:xdist")
    options = ("--bandwidth-device=cuda", "--bandwidth-max-time=0.05", f"--bandwidth-json={folder / 'out.json'}")
    done = shared_card.run(["-m", "pytest", *plugins, *options], {"L2_BYTES": 1 << 20, "JITTER": 0}, cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads(Path(folder / "out.json").read_text())["results"]
    return {row["nodeid"].partition("::test_")[2]: row for row in rows}


@pytest.mark.parametrize("way", ["graph", "streamed", "in_place"])
def test_a_sample_is_a_replay_of_many_launches(seen: Any, way: str) -> None:
    assert (seen[way]["method"], seen[way]["detail"]["graph_launches"]) == ("events+block+graph", 32)
    assert seen["plain"]["method"] == "events+block"
    assert "graph_launches" not in seen["plain"]["detail"]
    assert seen[way]["bytes_read"] == seen["plain"]["bytes_read"]


def test_the_hosts_launch_time_is_shared_by_the_launches(seen: Any) -> None:
    assert seen["graph"]["host_seconds"] < seen["plain"]["host_seconds"] / 3


def test_caches_stay_cold_where_arrays_are_rotated(seen: Any) -> None:
    plain, graph, same = (seen[way]["gbps"] for way in ("plain", "graph", "same_arrays"))
    assert graph == pytest.approx(plain, rel=0.25)
    assert same > 1.5 * graph


def test_what_cannot_be_captured_is_refused_and_leaves_nothing(seen: Any) -> None:
    assert {seen[name]["method"] for name in ("waits", "allocates", "overlaps")} == {"events+block"}
