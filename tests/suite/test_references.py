"""The references against figures worked out by hand, and against properties that define them."""

import numpy as np
import pytest

from pytest_bandwidth.suite.operations import references


def test_streams():
    b, c = np.array([1, 2], "float16"), np.array([10, 20], "float16")
    np.testing.assert_array_equal(references.scale(b, 3), [3, 6])
    np.testing.assert_array_equal(references.add(b, c), [11, 22])
    np.testing.assert_array_equal(references.triad(b, c, 3), [31, 62])
    assert references.add(b, c).dtype == np.float64


def fmix32(h):
    """MurmurHash3's finaliser in plain integers; fmix32(1) is 0x514e28b7 in its published test vectors."""
    h = (h ^ (h >> 16)) * 0x85EBCA6B & 0xFFFFFFFF
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & 0xFFFFFFFF
    return h ^ (h >> 16)


def test_uniform_numbers_are_the_published_hash():
    assert fmix32(1) == 0x514E28B7
    seed = 0x5EED
    drawn = references.uniform(seed, 1000)
    np.testing.assert_array_equal(drawn, [(fmix32(i ^ seed) >> 8) / 2**24 for i in range(1000)])


def test_uniform_numbers_look_uniform():
    drawn = references.uniform(7, 1 << 16)
    assert drawn.min() >= 0
    assert drawn.max() < 1
    counts, _ = np.histogram(drawn, 16, (0, 1))
    # Each bin: 4096 ± 62; six standard deviations.
    assert np.abs(counts - 4096).max() < 372


def test_dropout_keeps_the_expected_value():
    dropped = references.bias_relu_dropout(np.full(1 << 16, 0.5), 0.5, 0.25, 3)
    assert set(np.unique(dropped)) == {0.0, 1 / 0.75}
    assert dropped.mean() == pytest.approx(1.0, abs=0.02)
    assert not references.bias_relu_dropout(np.array([-1.0] * 100), 0.5, 0.25, 3).any()


def test_chains_round_at_every_step():
    x = np.array([1], "float16")
    # 2048 + 1 is no float16: the sum stays.
    assert references.fma_chain(np.array([2048], "float16"), 1, 1, 5)[0] == 2048
    assert references.fma_chain(x, 0.5, 1, 3)[0] == ((1 * 0.5 + 1) * 0.5 + 1) * 0.5 + 1
    assert references.fma_chain(x, 0.5, 1, 0)[0] == 1


def test_softmax_by_hand_and_under_shifts():
    row = np.log([[1.0, 2.0, 5.0]])
    np.testing.assert_allclose(references.softmax(row), [[0.125, 0.25, 0.625]])
    np.testing.assert_allclose(references.softmax(row + 1000), references.softmax(row), rtol=1e-12)
    assert references.softmax(np.empty((3, 0))).shape == (3, 0)


def test_layer_norm_has_mean_beta_and_deviation_gamma():
    x = np.random.default_rng().normal(5, 3, (4, 1000))
    normal = references.layer_norm(x, np.full(1000, 2.0), np.full(1000, 7.0), 0.0)
    np.testing.assert_allclose(normal.mean(axis=1), 7)
    np.testing.assert_allclose(normal.std(axis=1), 2)


def test_logsumexp_by_hand():
    np.testing.assert_allclose(references.logsumexp(np.log([[1.0, 2.0, 5.0]])), [np.log(8)])
    np.testing.assert_allclose(references.logsumexp(np.array([[1000.0, 1000.0]])), [1000 + np.log(2)])
    np.testing.assert_array_equal(references.logsumexp(np.empty((2, 0))), [-np.inf, -np.inf])


def test_linear_is_a_product_with_the_transpose():
    x, w = np.array([[1.0, 2.0]]), np.array([[3.0, 4.0], [5.0, 6.0], [7.0, 8.0]])
    np.testing.assert_array_equal(references.linear(x, w), [[11, 17, 23]])


def test_attention_to_equal_keys_is_the_mean_of_the_values():
    q, k, v = np.ones((2, 4)), np.ones((3, 4)), np.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(references.attention(q, k, v), np.tile(v.mean(axis=0), (2, 1)))


def test_attention_scores_are_scaled_by_the_root_of_the_head():
    # One score of 4·ln 3 ÷ √4 = 2·ln 3 against 0: weights 9 to 1.
    q, k = np.array([[1.0, 1, 1, 1]]), np.array([[np.log(3)] * 4, [0, 0, 0, 0]])
    np.testing.assert_allclose(references.attention(q, k, np.array([[1.0], [0.0]])), [[0.9]])


def test_query_heads_share_cache_heads_in_order():
    cache = np.arange(4.0).reshape(1, 2, 2, 1)  # heads hold tokens 0, 1 and 2, 3
    q = np.zeros((1, 4, 1))
    np.testing.assert_allclose(references.kv_decode(q, cache, cache, 2).ravel(), [0.5, 0.5, 2.5, 2.5])
    np.testing.assert_allclose(references.kv_decode(q, cache, cache, 1).ravel(), [0, 0, 2, 2])
    np.testing.assert_array_equal(references.kv_decode(q, cache, cache, 0), np.zeros((1, 4, 1)))


def test_appending_changes_the_new_tokens_only():
    cache, new = np.zeros((1, 1, 4, 2)), np.ones((1, 1, 2, 2))
    appended = references.kv_append(cache, new, 1)
    np.testing.assert_array_equal(appended[0, 0, :, 0], [0, 1, 1, 0])
    assert not cache.any()


def test_q4_0_blocks_by_hand():
    block = np.zeros((1, 18), np.uint8)
    block[0, :2] = np.array([0.5], np.float16).view(np.uint8)
    block[0, 2] = 0xF0  # element 0: nibble 0, element 16: nibble 15
    block[0, 17] = 0x08  # element 15: nibble 8, element 31: nibble 0
    values = references.q4_0_dequantize(block, 32)
    assert (values[0], values[16], values[15], values[31]) == (-4.0, 3.5, 0.0, -4.0)
    assert references.q4_0_dequantize(block, 5).size == 5
