"""What a launch on the host refuses: whatever a kernel would misread, and arrays too small for the sizes."""

import numpy as np
import pytest
from host_launch import cpu, run

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.cpu.kernels import parameters
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.errors import UsageError

N = 32


def array(n=N, dtype="float32"):
    return np.ones(n, dtype)


def triad(a=None, b=None, c=None, scalar=None, n=N):
    run(
        "stream.cu",
        "triad_f32",
        array() if a is None else a,
        array() if b is None else b,
        array() if c is None else c,
        np.float32(3) if scalar is None else scalar,
        n,
    )


def test_parameters_are_read_from_text():
    read = parameters("out:f16* scalar:f32 n:i64")
    assert [p.cuda for p in read] == ["__half*", "float", "long long"]
    assert [p.name for p in read] == ["out", "scalar", "n"]


def test_a_launch_that_fits_runs():
    triad()
    triad(a=array().reshape(4, 8))
    triad(n=np.int32(N))
    triad(n=0)


class TestRefused:
    def test_a_bare_float_with_the_remedy(self):
        with pytest.raises(UsageError, match=r"argument 4 \(float scalar\).* write np.float32\(3.0\)"):
            triad(scalar=3.0)

    @pytest.mark.parametrize("scalar", [np.float64(3), 3, np.int32(3), True, "3", None.__class__])
    def test_any_other_type_of_scalar(self, scalar):
        with pytest.raises(UsageError, match=r"argument 4 .*expected np.float32"):
            triad(scalar=scalar)

    @pytest.mark.parametrize("wrong", [array(dtype="float64"), array(dtype="float16"), array(dtype="int32")])
    def test_another_dtype(self, wrong):
        with pytest.raises(UsageError, match=r"argument 2 \(float\* b\) is an array of .*, expected float32"):
            triad(b=wrong)

    @pytest.mark.parametrize("wrong", [[1.0] * N, 1.0, None.__class__, "array"])
    def test_what_is_no_array(self, wrong):
        with pytest.raises(UsageError, match=r"argument 2 .*expected a NumPy array"):
            triad(b=wrong)

    def test_an_array_with_gaps(self):
        with pytest.raises(UsageError, match=r"argument 2 .*not contiguous.*ascontiguousarray"):
            triad(b=array(2 * N)[::2])

    def test_an_array_off_its_elements_boundary(self):
        with pytest.raises(UsageError, match="argument 2"):
            triad(b=np.ones(4 * N + 4, np.uint8)[1 : 4 * N + 1].view(np.float32))

    @pytest.mark.parametrize("which", ["a", "b", "c"])
    def test_an_array_one_element_too_small(self, which):
        with pytest.raises(UsageError, match=rf"{which} has 31 elements, expected at least 32 for n = 32"):
            triad(**{which: array(N - 1)})

    def test_a_negative_size(self):
        with pytest.raises(UsageError, match=r"n is -1, expected 0 or more"):
            triad(n=-1)

    @pytest.mark.parametrize("n", [32.0, True, "32", None])
    def test_a_size_that_is_no_whole_number(self, n):
        with pytest.raises(UsageError, match="argument 5"):
            triad(n=n)

    def test_a_size_that_does_not_fit(self):
        with pytest.raises(UsageError, match="does not fit long long"):
            triad(n=2**63)

    def test_a_wrong_number_of_arguments_names_the_right_ones(self):
        with pytest.raises(
            UsageError, match=r"copy_f32 got 2 arguments, expected 3: float\* out, float\* in, long long n"
        ):
            run("stream.cu", "copy_f32", array(), array())

    def test_fewer_partial_sums_than_blocks(self):
        with pytest.raises(UsageError, match=r"partials has 3 elements, expected at least 4 for n = 32, blocks = 4"):
            run("reductions.cu", "sum_f32", array(3), array(), N, blocks=4)

    def test_a_seed_that_is_negative(self):
        with pytest.raises(UsageError, match="does not fit unsigned int"):
            run("pointwise.cu", "dropout_f32", array(), array(), np.float32(0.5), -1, N)

    def test_query_heads_that_share_no_whole_number(self):
        cache = array(1000)
        with pytest.raises(UsageError, match="multiple of kv_heads"):
            run("kvcache.cu", "kv_decode_f32", cache, cache, cache, cache, np.float32(1), 1, 3, 2, 8, 4, 4)

    @pytest.mark.parametrize(
        ("file", "name", "args"),
        [
            ("access.cu", "strided_read_f32", (array(), array(62), 2, N)),
            ("access.cu", "strided_write_f32", (array(62), array(), 2, N)),
            ("access.cu", "misaligned_f32", (array(), array(34), 3, N)),
            ("access.cu", "gather_f32_i32", (array(), array(9), array(dtype="int32"), 10, N)),
            ("transpose.cu", "transpose_tiled_f32", (array(), array(), 6, 6)),
            ("softmax.cu", "softmax_staged_f32", (array(), array(), 3, 11)),
            ("layernorm.cu", "layer_norm_naive_f32", (array(), array(), array(7), array(8), np.float32(1), 4, 8)),
            ("logsumexp.cu", "logsumexp_fused_f32", (array(3), array(), 4, 8)),
            ("gemm.cu", "gemm_blocked_f32", (array(), array(), array(), 4, 8, 9)),
            ("q4_0.cu", "q4_0_dequantize_f32", (array(33), array(18, "uint8"), 33)),
            ("q4_0.cu", "q4_0_gemv_f32", (array(), array(), array(35, "uint8"), 1, 2, 32)),
            ("attention.cu", "attention_flash_f32", (array(), array(), array(31), array(), np.float32(1), 1, 4, 8)),
            ("kvcache.cu", "kv_append_f32", (array(), array(31), array(), array(), 0, 1, 1, 4, 8, 4)),
            ("kvcache.cu", "kv_decode_combine_f32", (array(), array(64), array(7), array(8), 4, 8, 2)),
        ],
    )
    def test_too_small_an_array_in_every_family(self, file, name, args):
        with pytest.raises(UsageError, match=r"expected at least"):
            run(file, name, *args)


def test_something_else_than_a_kernel():
    with pytest.raises(
        UsageError, match=r"found an object of type builtin_function_or_method, expected a kernel from bandwidth.kernel"
    ):
        cpu().launcher(Launch(print, (1, 1, 1), (1, 1, 1), ()), None)


def test_any_grid_and_block_will_do():
    kernel = cpu().kernel(read_source("stream.cu", "copy_f32", []))
    out, x = np.zeros(N, np.float32), array()
    cpu().launcher(Launch(kernel, (1, 7, 2), (3, 1, 1), (out, x, N)), None)()
    assert (out == 1).all()


TWIN = """
from numba import njit, prange
from pytest_bandwidth.hooks import HostKernel

@njit(parallel=True)
def twice(threads, out, x, n):
    for i in prange(n):
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
    result.stdout.fnmatch_lines(["*on the host only those with a twin run*"])
