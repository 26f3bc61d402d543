"""Softmax, layer norm and log-sum-exp on the host, against NumPy in double precision."""

import numpy as np
import pytest
from host_launch import STORED, SUFFIXES, Guarded, numbers, run

from pytest_bandwidth.suite.operations import references

# Rows shorter than a line, rows whose lines begin anywhere, and one that no stage holds.
SHAPES = ((0, 5), (1, 1), (7, 3), (5, 16), (3, 100), (2, 1000), (9, 257), (1, 9001))
TOLERANCE = {"f32": 3e-6, "f16": 2e-3}


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("version", ["naive", "online", "staged"])
def test_softmax(suffix, version):
    for rows, cols in SHAPES:
        x = numbers(rows * cols, STORED[suffix], spread=20)
        out = Guarded(rows * cols, STORED[suffix], 1)
        run("softmax.cu", f"softmax_{version}_{suffix}", out.array, x, rows, cols)
        wanted = references.softmax(x.reshape(rows, cols))
        np.testing.assert_allclose(out.check().reshape(rows, cols), wanted, rtol=TOLERANCE[suffix], atol=1e-7)


@pytest.mark.parametrize("version", ["naive", "online", "staged"])
def test_softmax_of_rows_without_a_finite_maximum_is_nan(version):
    x = np.ones((4, 40), np.float32)
    x[0], x[1, 3], x[2, 39] = -np.inf, np.inf, np.nan
    out = np.empty_like(x)
    run("softmax.cu", f"softmax_{version}_f32", out, x, 4, 40)
    assert np.isnan(out[0]).any()
    assert np.isnan(out[1]).any()
    assert np.isnan(out[2]).all()
    np.testing.assert_allclose(out[3], 1 / 40, rtol=1e-6)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("version", ["naive", "staged"])
@pytest.mark.parametrize("mean", [0.0, 100.0])
def test_layer_norm(suffix, version, mean):
    for rows, cols in SHAPES:
        x = numbers(rows * cols, STORED[suffix])
        x += STORED[suffix](mean)
        gamma, beta = numbers(cols, STORED[suffix], 2, offset=1), numbers(cols, STORED[suffix], 3, offset=3)
        out = Guarded(rows * cols, STORED[suffix], 1)
        run("layernorm.cu", f"layer_norm_{version}_{suffix}", out.array, x, gamma, beta, np.float32(1e-3), rows, cols)
        wanted = references.layer_norm(x.reshape(rows, cols), gamma, beta, 1e-3)
        # Around a mean of 100, a float32 has 1.5e-5 to give.
        atol = (1e-4 if mean and suffix == "f32" else TOLERANCE[suffix]) * 4
        np.testing.assert_allclose(out.check().reshape(rows, cols), wanted, rtol=0, atol=atol)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_logsumexp_fused_and_unfused(suffix):
    for rows, cols in SHAPES:
        x = numbers(rows * cols, STORED[suffix], spread=8)
        fused, top, unfused = (Guarded(rows, STORED[suffix], 1) for _ in range(3))
        exps = Guarded(rows * cols, STORED[suffix], 1)
        run("logsumexp.cu", f"logsumexp_fused_{suffix}", fused.array, x, rows, cols)
        run("logsumexp.cu", f"row_max_{suffix}", top.array, x, rows, cols)
        run("logsumexp.cu", f"exp_shifted_{suffix}", exps.array, x, top.array, rows, cols)
        run("logsumexp.cu", f"row_log_sum_{suffix}", unfused.array, exps.array, top.array, rows, cols)
        np.testing.assert_array_equal(top.check(), x.reshape(rows, cols).max(axis=1, initial=-65504))
        wanted = references.logsumexp(x.reshape(rows, cols))
        exps.check()
        for found in (fused.check(), unfused.check()):
            np.testing.assert_allclose(found, wanted, rtol=TOLERANCE[suffix], atol=TOLERANCE[suffix] * 4)


def test_logsumexp_of_a_row_whose_maximum_comes_late_shrinks_what_was_summed_before():
    x = np.linspace(-30, 30, 10_000, dtype=np.float32)
    out = np.empty(1, np.float32)
    run("logsumexp.cu", "logsumexp_fused_f32", out, x, 1, x.size)
    assert out[0] == pytest.approx(references.logsumexp(x), rel=1e-6)


def test_logsumexp_of_no_columns_is_minus_infinity():
    out = np.empty(3, np.float32)
    with np.errstate(divide="ignore"):
        run("logsumexp.cu", "logsumexp_fused_f32", out, np.empty(0, np.float32), 3, 0)
    assert np.isneginf(out).all()
