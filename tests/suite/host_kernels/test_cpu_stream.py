"""Streams, reductions, chains and the intensity sweep: right at every size and alignment, nothing written beside."""

import platform

import numpy as np
import pytest
from host_launch import SIZES, STORED, SUFFIXES, TOLERANCE, Guarded, cpu, numbers, run
from numba import jit

from pytest_bandwidth.suite.host_kernels import stream
from pytest_bandwidth.suite.operations import references

OFFSETS = (0, 1, 5)
COMPUTED = {"f16": np.float32, "f32": np.float32, "f64": np.float64}


@pytest.mark.parametrize("suffix", ["f32", "f16", "f64"])
@pytest.mark.parametrize("offset", OFFSETS)
class TestElementwise:
    def check(self, name, suffix, offset, inputs, expected, *scalars):
        for n in SIZES:
            arrays = [numbers(n, STORED[suffix], seed, offset=shift) for seed, shift in enumerate(inputs, start=1)]
            out = Guarded(n, STORED[suffix], offset)
            run("stream.cu", f"{name}_{suffix}", out.array, *arrays, *map(COMPUTED[suffix], scalars), n)
            wide = [array.astype(np.float64) for array in arrays]
            scale = max((np.abs(array).max(initial=1.0) for array in wide), default=1.0) * 4
            np.testing.assert_allclose(out.check(), expected(*wide), rtol=0, atol=TOLERANCE[suffix] * scale)

    def test_write(self, suffix, offset):
        for n in SIZES:
            out = Guarded(n, STORED[suffix], offset)
            run("stream.cu", f"write_{suffix}", out.array, COMPUTED[suffix](1.75), n)
            assert (out.check() == 1.75).all()

    def test_copy_moves_every_bit(self, suffix, offset):
        for n in SIZES:
            source = numbers(n, STORED[suffix], offset=3)
            source[: n // 3] = np.nan
            source[n // 3 : n // 2] = np.inf
            out = Guarded(n, STORED[suffix], offset)
            run("stream.cu", f"copy_{suffix}", out.array, source, n)
            assert out.check().tobytes() == source.tobytes()

    def test_scale(self, suffix, offset):
        self.check("scale", suffix, offset, (3,), lambda x: 3 * x, 3)

    def test_add(self, suffix, offset):
        self.check("add", suffix, offset, (3, 2), lambda x, y: x + y)

    def test_triad(self, suffix, offset):
        self.check("triad", suffix, offset, (3, 2), lambda x, y: x - 3 * y, -3)


def test_only_the_first_n_elements_are_touched():
    out = Guarded(1000, np.float32)
    run("stream.cu", "copy_f32", out.array, np.ones(1000, np.float32), 37)
    assert (out.check()[:37] == 1).all()
    assert (np.ascontiguousarray(out.array[37:]).view(np.uint8) == 0x5A).all()


@pytest.mark.parametrize("suffix", ["f32", "f16", "f64"])
class TestReductions:
    @pytest.mark.parametrize("blocks", [1, 3, 1000])
    def test_sum(self, suffix, blocks):
        for n in SIZES:
            x = numbers(n, STORED[suffix], offset=1)
            partials = Guarded(blocks, COMPUTED[suffix])
            run("reductions.cu", f"sum_{suffix}", partials.array, x, n, blocks=blocks)
            wanted = x.astype(np.float64).sum()
            assert partials.check().sum(dtype=np.float64) == pytest.approx(wanted, abs=1e-6 * max(n, 1))

    def test_dot(self, suffix):
        for n in SIZES:
            x, y = numbers(n, STORED[suffix], 1), numbers(n, STORED[suffix], 2, offset=3)
            partials = Guarded(7, COMPUTED[suffix])
            run("reductions.cu", f"dot_{suffix}", partials.array, x, y, n, blocks=7)
            wanted = x.astype(np.float64) @ y.astype(np.float64)
            assert partials.check().sum(dtype=np.float64) == pytest.approx(wanted, abs=4e-6 * max(n, 1))

    def test_read_sees_every_element(self, suffix):
        """The sum is stored only where it equals the value that never comes up; here it does."""
        kind = COMPUTED[suffix]
        for n in SIZES[1:]:
            for changed in {0, n // 2, n - 1}:
                x = np.zeros(n, STORED[suffix])
                x[changed] = 2
                sink = Guarded(1, kind)
                run("stream.cu", f"read_{suffix}", sink.array, x, kind(2), n)
                assert sink.check()[0] == 2, (n, changed)

    def test_read_of_the_unexpected_stores_nothing(self, suffix):
        kind = COMPUTED[suffix]
        sink = Guarded(1, kind)
        run("stream.cu", f"read_{suffix}", sink.array, np.ones(100, STORED[suffix]), kind(np.nan), 100)
        assert (np.ascontiguousarray(sink.check()).view(np.uint8) == 0x5A).all()


def test_the_sum_of_partial_sums_is_exact_for_whole_numbers():
    x = np.arange(100_003, dtype=np.float64)
    partials = np.empty(64)
    run("reductions.cu", "sum_f64", partials, x, x.size, blocks=64)
    total = np.empty(1)
    run("reductions.cu", "sum_f64", total, partials, 64)
    assert total[0] == x.size * (x.size - 1) / 2


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


# ---- pointwise chains ------------------------------------------------------------------------------------------------


def dropped_out(x, probability):
    return references.bias_relu_dropout(x, 0, float(np.float32(probability)), 7)


F32 = np.float32
CHAINS = {
    "bias": (lambda x: x + 1.5, (F32(1.5),), 1),
    "relu": (lambda x: np.maximum(x, 0), (), 1),
    "cos": (np.cos, (), 1),
    "cos_cos": (references.cos_cos, (), 1),
    "bias_relu_dropout": (lambda x: dropped_out(x + 1.5, 0.25), (F32(1.5), F32(0.25), np.uint32(7)), 2),
    **{
        f"dropout {probability}": (
            lambda x, p=probability: dropped_out(x, p) - dropped_out(-x, p),
            (F32(probability), np.uint32(7)),
            1 / (1 - probability),
        )
        for probability in (0.0, 0.1, 0.75)
    },
}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", list(CHAINS))
def test_chains(name, suffix):
    expected, scalars, tolerance = CHAINS[name]
    for n in SIZES:
        x = numbers(n, STORED[suffix], offset=3)
        out = Guarded(n, STORED[suffix], 1)
        run("pointwise.cu", f"{name.split()[0]}_{suffix}", out.array, x, *scalars, n)
        atol = TOLERANCE[suffix] * 4 * tolerance
        np.testing.assert_allclose(out.check(), expected(x.astype(np.float64)), rtol=0, atol=atol)


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
@pytest.mark.parametrize(("kernel", "coefficients"), [("fma", (0.5, 1.25)), ("add", (0.25,))])
def test_intensity(suffix, repeats, kernel, coefficients):
    factor, addend = (1.0, *coefficients)[-2:]
    for n in SIZES:
        x = numbers(n, STORED[suffix], offset=1)
        out = Guarded(n, STORED[suffix], 2)
        given = map(COMPUTED[suffix], coefficients)
        run("intensity.cu", f"intensity_{kernel}_{suffix}", out.array, x, *given, repeats, n)
        wanted = references.fma_chain(x.astype(np.float64), factor, addend, repeats)
        atol = TOLERANCE[suffix] * (4 if kernel == "fma" else 16)
        np.testing.assert_allclose(out.check(), wanted, rtol=0, atol=atol)
