"""What a launch on the host refuses: whatever a kernel would misread, and arrays too small for the sizes."""

import numpy as np
import pytest
from host_launch import cpu, run

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import UsageError

N = 32


def array(n=N, dtype="float32"):
    return np.ones(n, dtype)


def triad(**given):
    arguments = {"a": array(), "b": array(), "c": array(), "scalar": np.float32(3), "n": N, **given}
    run("stream.cu", "triad_f32", *arguments.values())


def test_a_launch_that_fits_runs():
    triad()
    triad(a=array().reshape(4, 8))
    triad(n=np.int32(N))
    triad(n=0)
    kernel, out = cpu().kernel(read_source("stream.cu", "copy_f32", [])), np.zeros(N, np.float32)
    cpu().launcher(Launch(kernel, (1, 7, 2), (3, 1, 1), (out, array(), N)), None)()
    assert (out == 1).all(), "whatever the grid and the block"


OFF_ITS_BOUNDARY = np.ones(4 * N + 4, np.uint8)[1 : 4 * N + 1].view(np.float32)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"scalar": 3.0}, r"argument 4 \(float scalar\).* write np.float32\(3.0\)"),
        *(
            ({"scalar": scalar}, "argument 4 .*expected np.float32")
            for scalar in (np.float64(3), 3, np.int32(3), True, "3", None)
        ),
        *(
            ({"b": array(dtype=dtype)}, r"argument 2 \(float\* b\) is an array of .*, expected float32")
            for dtype in ("float64", "float16", "int32")
        ),
        *(({"b": b}, "argument 2 .*expected a NumPy array") for b in ([1.0] * N, 1.0, None, "array")),
        ({"b": array(2 * N)[::2]}, "argument 2 .*not contiguous.*ascontiguousarray"),
        ({"b": OFF_ITS_BOUNDARY}, "argument 2"),
        *(({x: array(N - 1)}, rf"{x} has 31 elements, expected at least 32 for n = 32") for x in "abc"),
        ({"n": -1}, "n is -1, expected 0 or more"),
        *(({"n": n}, "argument 5") for n in (32.0, True, "32", None)),
        ({"n": 2**63}, "does not fit long long"),
    ],
)
def test_what_a_kernel_would_misread_is_refused(given, said):
    with pytest.raises(UsageError, match=said):
        triad(**given)


LEAST = "expected at least"


@pytest.mark.parametrize(
    ("file", "name", "args", "said"),
    [
        (
            *("stream.cu", "copy_f32", (array(), array())),
            r"copy_f32 got 2 arguments, expected 3: float\* out, float\* in, long long n",
        ),
        ("pointwise.cu", "dropout_f32", (array(), array(), np.float32(0.5), -1, N), "does not fit unsigned int"),
        ("kvcache.cu", "kv_decode_f32", (*[array(1000)] * 4, np.float32(1), 1, 3, 2, 8, 4, 4), "multiple of kv_heads"),
        ("reductions.cu", "sum_f32", (array(3), array(), N), "3 elements, expected at least 4 for n = 32, blocks = 4"),
        ("access.cu", "strided_read_f32", (array(), array(62), 2, N), LEAST),
        ("access.cu", "strided_write_f32", (array(62), array(), 2, N), LEAST),
        ("access.cu", "misaligned_f32", (array(), array(34), 3, N), LEAST),
        ("access.cu", "gather_f32_i32", (array(), array(9), array(dtype="int32"), 10, N), LEAST),
        ("transpose.cu", "transpose_tiled_f32", (array(), array(), 6, 6), LEAST),
        ("softmax.cu", "softmax_staged_f32", (array(), array(), 3, 11), LEAST),
        ("layernorm.cu", "layer_norm_naive_f32", (array(), array(), array(7), array(8), np.float32(1), 4, 8), LEAST),
        ("logsumexp.cu", "logsumexp_fused_f32", (array(3), array(), 4, 8), LEAST),
        ("gemm.cu", "gemm_blocked_f32", (array(), array(), array(), 4, 8, 9), LEAST),
        ("q4_0.cu", "q4_0_dequantize_f32", (array(33), array(18, "uint8"), 33), LEAST),
        ("q4_0.cu", "q4_0_gemv_f32", (array(), array(), array(35, "uint8"), 1, 2, 32), LEAST),
        ("attention.cu", "attention_flash_f32", (array(), array(), array(31), array(), np.float32(1), 1, 4, 8), LEAST),
        ("kvcache.cu", "kv_append_f32", (array(), array(31), array(), array(), 0, 1, 1, 4, 8, 4), LEAST),
    ],
)
def test_what_does_not_fit_a_kernel_of_any_family_is_refused(file, name, args, said):
    with pytest.raises(UsageError, match=said):
        run(file, name, *args, blocks=4)


def test_something_else_than_a_kernel():
    with pytest.raises(
        UsageError, match=r"found an object of type builtin_function_or_method, expected a kernel from bandwidth.kernel"
    ):
        cpu().launcher(Launch(print, (1, 1, 1), (1, 1, 1), ()), None)


TWIN = """
from numba import njit
from pytest_bandwidth.hooks import HostKernel

@njit
def twice(threads, out, x, n):
    for i in range(n):
        out[i] = 2 * x[i]

def pytest_bandwidth_host_kernels():
    return [HostKernel("twice", twice, "out:f32* x:f32* n:i64", lambda n: (n, n), file="twice.cu")]
"""
CUDA = 'extern "C" __global__ void twice(float* out, const float* x, long long n) { }\n'
USED = """
import numpy as np

def test_twice(bandwidth):
    kernel, n = bandwidth.kernel("twice.cu", "twice"), 1000
    x, out = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    bandwidth.launch(kernel, 4, 256, (out, x, n), reads=x, writes=out)
    np.testing.assert_array_equal(out, 2 * x)

def test_of_another_file(bandwidth):
    bandwidth.kernel("other.cu", "twice")
"""


def test_a_conftest_adds_a_twin_of_its_own_kernel(pytester):
    pytester.makeconftest(TWIN)
    pytester.makepyfile(USED)
    for name in ("twice.cu", "other.cu"):
        (pytester.path / name).write_text(CUDA)
    result = pytester.runpytest_subprocess("--bandwidth-device=cpu", "--bandwidth-max-time=0.1", "-rs")
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(["*on the host only those with a Numba twin run*"])
