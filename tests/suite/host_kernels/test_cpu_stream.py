"""Streams, reductions and chains on the host: what their operations do not show."""

import platform

import numpy as np
import pytest
from host_launch import SIZES, STORED, Guarded, cpu, numbers, run
from numba import jit

from pytest_bandwidth.suite.host_kernels import stream
from pytest_bandwidth.suite.operations import references


@pytest.mark.parametrize("suffix", list(STORED))
@pytest.mark.parametrize("offset", [0, 5])
def test_copy_moves_every_bit(suffix, offset):
    for n in SIZES:
        source = numbers(n, STORED[suffix], offset=3)
        source[: n // 3] = np.nan
        source[n // 3 : n // 2] = np.inf
        out = Guarded(n, STORED[suffix], offset)
        run("stream.cu", f"copy_{suffix}", out.array, source, n)
        assert out.check().tobytes() == source.tobytes()


def test_only_the_first_n_elements_are_touched():
    out = Guarded(1000, np.float32)
    run("stream.cu", "copy_f32", out.array, np.ones(1000, np.float32), 37)
    assert (out.check()[:37] == 1).all()
    assert (np.ascontiguousarray(out.array[37:]).view(np.uint8) == 0x5A).all()


@pytest.mark.parametrize("blocks", [3, 1000])
def test_sums_over_fewer_and_more_blocks_than_threads(blocks):
    for n in SIZES:
        x = numbers(n, np.float32, offset=1)
        partials = Guarded(blocks, np.float32)
        run("reductions.cu", "sum_f32", partials.array, x, n, blocks=blocks)
        wanted = x.astype(np.float64).sum()
        assert partials.check().sum(dtype=np.float64) == pytest.approx(wanted, abs=1e-6 * max(n, 1))


def test_read_sees_every_element():
    """The sum is stored only where it equals the value that never comes up; here it does."""
    for n in SIZES[1:]:
        for changed in {0, n // 2, n - 1}:
            x = np.zeros(n, np.float32)
            x[changed] = 2
            sink = Guarded(1, np.float32)
            run("stream.cu", "read_f32", sink.array, x, np.float32(2), n)
            assert sink.check()[0] == 2, (n, changed)


def test_halves_are_rounded_once_to_the_nearest():
    x = np.array([1 + 2**-10, 65504, 6e-8, 1 / 3], np.float16)
    out = np.empty_like(x)
    run("stream.cu", "scale_f16", out, x, np.float32(1.5), x.size)
    with np.errstate(over="ignore"):
        wanted = (x.astype(np.float32) * np.float32(1.5)).astype(np.float16)
    np.testing.assert_array_equal(out, wanted)
    assert np.isinf(out[1])


@pytest.mark.skipif(
    platform.machine().lower() not in ("x86_64", "amd64"),
    reason="non-temporal stores have names of their own on other processors",
)
def test_the_triads_stores_pass_the_caches():
    # Anew: of what comes from Numba's cache on disk no assembly can be had.
    triad = jit(**stream.triad.targetoptions)(stream.triad.py_func)
    out, x, y = cpu().empty(64, np.float32), numbers(64, np.float32, 1), numbers(64, np.float32, 2)
    triad(1, out, x, y, np.float32(3), out.size)
    (assembly,) = triad.inspect_asm().values()
    assert "movnt" in assembly


@pytest.mark.parametrize("probability", [0.0, 0.1, 0.75])
def test_dropout_drops_what_the_cuda_kernel_drops(probability):
    def dropped_out(x):
        return references.bias_relu_dropout(x, 0, float(np.float32(probability)), 7)

    for n in SIZES:
        x = numbers(n, np.float32, offset=3)
        out = Guarded(n, np.float32, 1)
        run("pointwise.cu", "dropout_f32", out.array, x, np.float32(probability), np.uint32(7), n)
        atol = 8e-6 / (1 - probability)
        np.testing.assert_allclose(out.check(), dropped_out(x) - dropped_out(-x), rtol=0, atol=atol)


def test_relu_of_what_is_no_number_is_zero_as_on_a_gpu():
    x = np.full(40, np.nan, np.float32)
    out = np.empty_like(x)
    run("pointwise.cu", "relu_f32", out, x, x.size)
    assert (out == 0).all()


# ---- exp and cos over their whole ranges, through the kernels that use them -----------------------------------------


def exponentials(x):
    out = np.empty_like(x)
    run("logsumexp.cu", "exp_shifted_f32", out, x, np.zeros(1, np.float32), 1, x.size)
    return out


def test_exponential_is_right_to_two_units_in_the_last_place():
    x = np.linspace(-87, 88, 200_001, dtype=np.float32)
    wanted = np.exp(x.astype(np.float64))
    assert np.abs(exponentials(x) / wanted - 1).max() < 2.4e-7


def test_exponential_at_the_ends():
    x = np.array([0, -0.0, -np.inf, -1e30, -88, np.inf, 1e30, 89, np.nan] * 7, np.float32)
    out = exponentials(x)
    assert out[:2].tolist() == [1, 1]
    assert (out.reshape(7, 9)[:, 2:5] == 0).all()
    assert np.isposinf(out.reshape(7, 9)[:, 5:8]).all()
    assert np.isnan(out.reshape(7, 9)[:, 8]).all()


def test_cosine_over_many_periods():
    x = np.linspace(-1000, 1000, 200_001, dtype=np.float32)
    out = np.empty_like(x)
    run("pointwise.cu", "cos_f32", out, x, x.size)
    assert np.abs(out - np.cos(x.astype(np.float64))).max() < 2.5e-7


def test_an_element_does_not_depend_on_whether_it_lies_in_a_line():
    """Lines and ends use one formula: the same values at another alignment give the same bits."""
    x = np.linspace(-20, 20, 1000, dtype=np.float32)
    whole = exponentials(x)
    for start in range(1, 17):
        np.testing.assert_array_equal(exponentials(x[start:]), whole[start:])
