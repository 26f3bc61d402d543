"""The pointwise family and the intensity sweep on the host, against NumPy."""

import numpy as np
import pytest
from host_launch import SIZES, STORED, TOLERANCE, Guarded, numbers, run

# Halves are compiled apart, which takes as long again.
SUFFIXES = ("f32", pytest.param("f16", marks=pytest.mark.slow))


def uniform(seed, i):
    """The generator of cuda_src/pointwise.cu, written again in NumPy."""
    i = np.asarray(i, np.uint64)
    h = (i & np.uint64(0xFFFFFFFF)).astype(np.uint32) ^ np.uint32(seed)
    h ^= (i >> np.uint64(32)).astype(np.uint32) * np.uint32(0x9E3779B9)
    h = (h ^ (h >> np.uint32(16))) * np.uint32(0x85EBCA6B)
    h = (h ^ (h >> np.uint32(13))) * np.uint32(0xC2B2AE35)
    h ^= h >> np.uint32(16)
    return (h >> np.uint32(8)) / 2.0**24


def dropped_out(x, probability, seed):
    kept = uniform(seed, np.arange(x.size)) >= np.float32(probability)
    return np.where(kept, x / np.float64(np.float32(1) - np.float32(probability)), 0.0)


def check(name, suffix, expected, *scalars, tolerance=1.0, offset=1):
    for n in SIZES:
        x = numbers(n, STORED[suffix], offset=3)
        out = Guarded(n, STORED[suffix], offset)
        run("pointwise.cu", f"{name}_{suffix}", out.array, x, *scalars, n)
        np.testing.assert_allclose(
            out.check(), expected(x.astype(np.float64)), rtol=0, atol=TOLERANCE[suffix] * 4 * tolerance
        )


@pytest.mark.parametrize("suffix", SUFFIXES)
class TestPointwise:
    def test_bias(self, suffix):
        check("bias", suffix, lambda x: x + 1.5, np.float32(1.5))

    def test_relu(self, suffix):
        check("relu", suffix, lambda x: np.maximum(x, 0))

    def test_cos(self, suffix):
        check("cos", suffix, np.cos)

    def test_cos_of_cos(self, suffix):
        check("cos_cos", suffix, lambda x: np.cos(np.cos(x)))

    @pytest.mark.parametrize("probability", [0.0, 0.1, 0.75])
    def test_dropout_drops_what_the_cuda_kernel_drops(self, suffix, probability):
        check(
            "dropout",
            suffix,
            lambda x: dropped_out(x, probability, 7),
            np.float32(probability),
            np.uint32(7),
            tolerance=1 / (1 - probability),
        )

    def test_the_fused_chain(self, suffix):
        check(
            "bias_relu_dropout",
            suffix,
            lambda x: dropped_out(np.maximum(x + 1.5, 0), 0.25, 7),
            np.float32(1.5),
            np.float32(0.25),
            np.uint32(7),
            tolerance=2,
        )


def test_relu_of_what_is_no_number_is_zero_as_on_a_gpu():
    x = np.full(40, np.nan, np.float32)
    out = np.empty_like(x)
    run("pointwise.cu", "relu_f32", out, x, x.size)
    assert (out == 0).all()


def test_fused_and_unfused_chains_give_the_same_bits():
    n = 4099
    x = numbers(n, np.float32)
    fused, one, two, three = (np.empty(n, np.float32) for _ in range(4))
    bias, probability, seed = np.float32(0.5), np.float32(0.3), np.uint32(2**32 - 1)
    run("pointwise.cu", "bias_relu_dropout_f32", fused, x, bias, probability, seed, n)
    run("pointwise.cu", "bias_f32", one, x, bias, n)
    run("pointwise.cu", "relu_f32", two, one, n)
    run("pointwise.cu", "dropout_f32", three, two, probability, seed, n)
    np.testing.assert_array_equal(fused, three)
    assert 0.2 < (three[two > 0] == 0).mean() < 0.4


@pytest.mark.parametrize("suffix", ["f32", "f16", "f64"])
@pytest.mark.parametrize("repeats", [0, 1, 17])
class TestIntensity:
    def expected(self, x, factor, addend, repeats):
        for _ in range(repeats):
            x = x * factor + addend
        return x

    def test_multiply_and_add(self, suffix, repeats):
        kind = np.float64 if suffix == "f64" else np.float32
        for n in SIZES:
            x = numbers(n, STORED[suffix], offset=1)
            out = Guarded(n, STORED[suffix], 2)
            run("intensity.cu", f"intensity_fma_{suffix}", out.array, x, kind(0.5), kind(1.25), repeats, n)
            wanted = self.expected(x.astype(np.float64), 0.5, 1.25, repeats)
            np.testing.assert_allclose(out.check(), wanted, rtol=0, atol=TOLERANCE[suffix] * 4)

    def test_add(self, suffix, repeats):
        kind = np.float64 if suffix == "f64" else np.float32
        for n in SIZES:
            x = numbers(n, STORED[suffix], offset=1)
            out = Guarded(n, STORED[suffix], 2)
            run("intensity.cu", f"intensity_add_{suffix}", out.array, x, kind(0.25), repeats, n)
            wanted = self.expected(x.astype(np.float64), 1.0, 0.25, repeats)
            np.testing.assert_allclose(out.check(), wanted, rtol=0, atol=TOLERANCE[suffix] * 16)
