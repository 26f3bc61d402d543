"""numba-cuda's kernels on the traffic device: results by NumPy, sectors by hand."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("numba_cuda", reason="make frameworks installs numba-cuda")
pytest.importorskip("cuda.bindings", reason="the traffic device needs NVRTC: pip install 'pytest-bandwidth[traffic]'")

from numba import cuda
from user_project import bandwidth_on

from pytest_bandwidth.domain.errors import KernelFault, NotOnThisDevice, UsageError

N = 1 << 14


@cuda.jit
def scale(out, x, s):
    i = cuda.grid(1)
    if i < x.size:
        out[i] = s * x[i]


@cuda.jit
def strided(out, x, s):
    i = cuda.grid(1)
    out[i] = s * x[(8 * i) % x.size + 8 * i // x.size]


@cuda.jit
def sum_rows(out, x, wide):
    tile = cuda.shared.array(128, dtype=np.float32)
    t = cuda.threadIdx.x
    tile[t] = 0
    for column in range(t, x.shape[1], cuda.blockDim.x):
        tile[t] += x[cuda.blockIdx.x, column]
    half = 64
    while half > 0:
        cuda.syncthreads()
        if t < half:
            tile[t] += tile[t + half]
        half //= 2
    if t == 0 and wide:
        out[cuda.blockIdx.x] = tile[0]


@cuda.jit
def past_the_end(out, x):
    i = cuda.grid(1)
    out[i] = x[i + 1]


@cuda.jit
def rotated(out, x, by):
    i = cuda.grid(1)
    out[i] = x[i] * by


@cuda.jit
def of_a_tuple(out, sizes):
    out[0] = sizes[0]


@cuda.jit(device=True)
def eighth(x, i):
    return x[8 * i % x.size + 8 * i // x.size]


@cuda.jit
def by_a_function(out, x, s):
    i = cuda.grid(1)
    out[i] = s * eighth(x, i)


@pytest.fixture(params=["sm_80", "sm_90"])
def bandwidth(request, tmp_path):
    found = bandwidth_on(f"traffic:{request.param}", tmp_path)
    found._device.begin_test()
    return found


def arrays(bandwidth, shape=N):
    return bandwidth.empty(N, "float32"), bandwidth.random(shape, "float32")


@pytest.mark.parametrize("way", ["launch", "configured", "in a callable"])
def test_each_way_to_launch_is_counted(bandwidth, way):
    y, x = arrays(bandwidth)
    declared = {"reads": x, "writes": y}
    if way == "launch":
        found = bandwidth.launch(scale, N // 256, 256, (y, x, 2.0), **declared)
    elif way == "configured":
        found = bandwidth(scale[N // 256, 256], y, x, 2.0, **declared)
    else:
        found = bandwidth(lambda: scale[N // 256, 256](y, x, 2.0), **declared)
    np.testing.assert_array_equal(y, 2 * x)
    sectors = N * 4 // 32
    assert (found.counts["load_sectors"], found.counts["store_sectors"]) == (sectors, sectors)
    assert found.detail["kernel"] == "scale"
    (line,) = found.detail["lines"]
    assert (line["file"], line["text"]) == ("test_numba_traffic.py", "out[i] = s * x[i]")
    assert found.device.settings["numba-cuda"]
    assert "nvrtc" not in found.device.settings
    assert found.findings == ()


def test_a_sample_of_blocks_is_counted(bandwidth):
    bandwidth.marker = replace(bandwidth.marker, blocks=2)
    y, x = arrays(bandwidth)
    assert bandwidth.launch(scale, N // 256, 256, (y, x, 2.0), reads=x, writes=y).method == "ptx, 2 blocks"


def test_a_lost_pattern_is_counted_at_its_line(bandwidth):
    y, x = arrays(bandwidth)
    found = bandwidth.launch(strided, N // 256, 256, (y, x, 1.0), reads=x, writes=y)
    assert found.counts["load_sectors"] == N
    (line,) = found.detail["lines"]
    assert line["loads"]["pattern"] == "strided (32 bytes)"


def test_what_a_kernel_s_function_loads_is_counted(bandwidth):
    by_a_function.overloads.clear()
    eighth.overloads.clear()  # of the other architecture
    y, x = arrays(bandwidth)
    found = bandwidth.launch(by_a_function, N // 256, 256, (y, x, 1.0), reads=x, writes=y)
    np.testing.assert_array_equal(y.reshape(8, -1), x.reshape(-1, 8).T)
    assert found.counts["load_sectors"] == N


def test_shared_memory_flags_and_arrays_of_two_dimensions(bandwidth):
    y, x = arrays(bandwidth, (64, 1000))
    bandwidth(sum_rows[64, 128], y, x, True, reads=x, writes=256)
    np.testing.assert_allclose(y[:64], x.sum(axis=1), rtol=1e-5)


def test_views_with_gaps_and_complex_numbers(bandwidth):
    _, x = arrays(bandwidth, 2 * N)
    y = bandwidth.empty(N, "complex64")
    bandwidth(rotated[N // 256, 256], y, x[::2], 1j, reads=x, writes=y)
    np.testing.assert_array_equal(y, x[::2] * np.complex64(1j))


def test_code_does_not_depend_on_what_was_compiled_before(bandwidth):
    y, x = arrays(bandwidth)

    def code(kernel):
        return bandwidth(kernel[N // 256, 256], y, x, 2.0, reads=x, writes=y, label=str(id(kernel))).code

    first = code(cuda.jit(scale.py_func))
    assert code(cuda.jit(strided.py_func)) != first
    assert code(cuda.jit(scale.py_func)) == first
    assert first.ptx is not None


def test_an_access_out_of_bounds_names_the_python_line(bandwidth):
    y, x = arrays(bandwidth)
    line = past_the_end.py_func.__code__.co_firstlineno + 3
    with pytest.raises(KernelFault, match=rf"past_the_end: out-of-bounds: test_numba_traffic.py:{line}: .* of x"):
        bandwidth(past_the_end[N // 256, 256], y, x, reads=x, writes=y)


@pytest.mark.parametrize(
    ("kernel", "args", "error", "message"),
    [
        (scale, 2, UsageError, r"kernel scale takes 3 arguments \(out, x, s\), found 2"),
        (of_a_tuple, 2, NotOnThisDevice, "kernel of_a_tuple takes `sizes` of type UniTuple.*not modelled"),
        (cuda.jit(link=["more.cu"])(scale.py_func), 3, NotOnThisDevice, "is linked with other files"),
    ],
)
def test_what_cannot_be_counted_says_why(bandwidth, kernel, args, error, message):
    y, x = arrays(bandwidth)
    given = (y, (1, 2)) if kernel is of_a_tuple else (y, x, 2.0)[:args]
    with pytest.raises(error, match=message):
        bandwidth(kernel[1, 32], *given, reads=x, writes=y)


def test_text_is_no_argument(bandwidth):
    y, x = arrays(bandwidth)
    with pytest.raises(UsageError, match="argument `s` of kernel scale: found a str, expected a number or an array"):
        bandwidth(scale[1, 32], y, x, "2", reads=x, writes=y)


def test_a_configured_kernel_is_launched_without_its_brackets(bandwidth):
    x = bandwidth.random(N)
    with pytest.raises(UsageError, match=r"_LaunchConfiguration, expected numba-cuda's kernel without its brackets"):
        bandwidth.launch(scale[N // 256, 256], N // 256, 256, (x, x, 2), reads=x, writes=x)


def test_after_the_test_numba_launches_by_itself(bandwidth):
    from numba.cuda.dispatcher import CUDADispatcher

    replaced = CUDADispatcher.call
    bandwidth._device.end_test()
    assert CUDADispatcher.call is not replaced
    bandwidth._device.end_test()
    bandwidth._device.begin_test()
    test_each_way_to_launch_is_counted(bandwidth, "configured")
