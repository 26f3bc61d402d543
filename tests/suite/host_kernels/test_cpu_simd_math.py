"""exp and cos of the host kernels, over their whole ranges, through the kernels that use them."""

import numpy as np
from host_launch import run


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
