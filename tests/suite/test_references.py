"""References against figures worked out by hand, where kernels, twins and references could share a mistake."""

import numpy as np
import pytest

from pytest_bandwidth.suite.operations import references


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


def test_four_neighbours_share_a_hash_and_take_a_multiple_of_it_each():
    multipliers = (1, 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
    expected = [(fmix32(i // 4 ^ 7) * multipliers[i % 4] % 2**32 >> 8) / 2**24 for i in range(1001)]
    np.testing.assert_array_equal(references.uniform_of_four(7, 1001), expected)


def test_dropout_keeps_the_share_that_it_was_told_of_each_neighbour_whatever_the_others_do():
    kept = references.uniform_of_four(0x5EED, 1 << 20).reshape(-1, 4) >= 0.25
    np.testing.assert_allclose(kept.mean(axis=0), 0.75, atol=0.003)
    together = (kept[:, :, None] & kept[:, None, :]).mean(axis=0)
    np.testing.assert_allclose(together[~np.eye(4, dtype=bool)], 0.75**2, atol=0.003)


def test_gates_turns_and_root_mean_squares_by_hand():
    gate = np.array([0.0, np.log(3.0)])  # 1 ÷ (1 + e⁻ˣ): a half, three quarters
    np.testing.assert_allclose(references.swiglu(gate, np.array([9.0, 4.0])), [0, 3 * np.log(3)])
    x, zero, one = np.array([[[1.0, 2.0, 3.0, 4.0]]]), np.zeros((1, 2)), np.ones((1, 2))
    np.testing.assert_array_equal(references.rope(x, zero, one), [[[-3, -4, 1, 2]]])  # a quarter turn
    np.testing.assert_array_equal(references.rope(x, one, zero), x)
    out, total = references.rms_norm_residual(
        np.array([[1.0, 3.0]]), np.array([[2.0, 1.0]]), np.array([5.0, 10.0]), 0.0
    )
    np.testing.assert_array_equal(total, [[3, 4]])
    np.testing.assert_allclose(out, np.array([[3.0, 8.0]]) * 5 / np.sqrt(12.5))


def test_the_numbers_of_fp8_are_those_of_its_definition():
    float8 = pytest.importorskip("ml_dtypes").float8_e4m3fn
    codes = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(references.e4m3_values(codes), codes.view(float8).astype(np.float64))
    numbers = np.concatenate([references.E4M3, (references.E4M3[1:] + references.E4M3[:-1]) / 2, [447.0, np.nan]])
    numbers = np.concatenate([numbers, -numbers[:-1], np.nextafter(numbers, 0)]).astype(np.float32)
    np.testing.assert_array_equal(references.e4m3_codes(numbers), numbers.astype(float8).view(np.uint8))


def test_rows_in_8_bits_by_hand():
    rows = np.array([[-2.0, 1.0, 0.25, np.nan], [0.0, 0.0, 0.0, 0.0]])
    codes, scales = references.quantize_rows(rows, "int8")
    np.testing.assert_array_equal(codes, [[-127, 64, 16, 0], [0, 0, 0, 0]])  # 63.5 and 15.875 between
    np.testing.assert_array_equal(scales, np.array([2, 0], "float32") / np.float32(127))
    codes, scales = references.quantize_rows(rows, "fp8")
    np.testing.assert_array_equal(references.e4m3_values(codes), [[-448, 224, 56, np.nan], [0, 0, 0, 0]])
    back = references.dequantize_rows(codes, np.array([0.5, 7]))
    np.testing.assert_array_equal(back, [[-224, 112, 28, np.nan], [0, 0, 0, 0]])


def test_blocks_of_mxfp8_by_hand():
    block = np.zeros((1, 64), "float32")
    block[0, :4] = 3, -1.5, 2**-8, np.nan
    codes, scales = references.quantize_mxfp8(block)
    # 3 lies between 2 and 4: the scale brings 2 to 2⁸.
    np.testing.assert_array_equal(scales, [[127 + 1 - 8, 0]])
    np.testing.assert_array_equal(references.e4m3_values(codes[0, :4]), [384, -192, 0.5, np.nan])
    assert references.e4m3_values(references.quantize_mxfp8(np.full((1, 32), 3.9))[0])[0, 0] == 448  # not 499.2


def test_the_largest_by_hand():
    values, columns = references.topk(np.array([[1.0, np.nan, 5.0, 5.0]]), 5)
    np.testing.assert_array_equal(values, [[5, 5, 1, -np.inf, -np.inf]])
    np.testing.assert_array_equal(columns, [[2, 3, 0, -1, -1]])


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


def test_pages_are_put_in_order():
    cache = np.arange(12).reshape(3, 2, 2, 1)  # three pages of two heads' two tokens
    found = references.in_pages(cache, np.array([[2, 0]]))
    np.testing.assert_array_equal(found[0, :, :, 0], [[8, 9, 0, 1], [10, 11, 2, 3]])


def test_q4_0_blocks_by_hand():
    block = np.zeros((1, 18), np.uint8)
    block[0, :2] = np.array([0.5], np.float16).view(np.uint8)
    block[0, 2] = 0xF0  # element 0: nibble 0, element 16: nibble 15
    block[0, 17] = 0x08  # element 15: nibble 8, element 31: nibble 0
    values = references.q4_0_dequantize(block, 32)
    assert (values[0], values[16], values[15], values[31]) == (-4.0, 3.5, 0.0, -4.0)
    assert references.q4_0_dequantize(block, 5).size == 5
