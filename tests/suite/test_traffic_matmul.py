"""Matrix products, attention, the KV cache and Q4_0 against figures worked out by hand or published."""

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite import traffic_models as traffic

APPLE_M1_PRO_BYTES_PER_S, APPLE_M1_PRO_FLOP_PER_S = 205e9, 5.3e12


@pytest.mark.parametrize(("n", "flop_per_byte"), [(64, 10.7), (256, 42.7), (1024, 170.7), (2048, 341.3), (4096, 682.7)])
def test_square_float32_gemm_has_an_intensity_of_a_sixth_of_its_side(n, flop_per_byte):
    intensity = traffic.gemm(n, n, n, "float32").arithmetic_intensity
    assert intensity == pytest.approx(n / 6)
    assert intensity == pytest.approx(flop_per_byte, abs=0.05)


def test_gemm_of_4096_is_26_times_more_compute_than_memory():
    model = traffic.gemm(4096, 4096, 4096, "float32")
    assert model.bytes_moved / 1e6 == pytest.approx(201.3, abs=0.05)
    assert model.flop / 1e9 == pytest.approx(137.4, abs=0.05)
    assert model.bytes_moved / APPLE_M1_PRO_BYTES_PER_S == pytest.approx(0.98e-3, abs=0.005e-3)
    assert model.flop / APPLE_M1_PRO_FLOP_PER_S == pytest.approx(25.9e-3, abs=0.05e-3)


@pytest.mark.parametrize(
    ("m", "n", "k", "elements"),
    [
        (1, 896, 896, 896 + 896 * 896 + 896),
        (32, 896, 896, 32 * 896 + 896 * 896 + 32 * 896),
        (128, 896, 896, 128 * 896 + 896 * 896 + 128 * 896),
        (128, 4864, 896, 128 * 896 + 896 * 4864 + 128 * 4864),
    ],
)
def test_gemm_shapes_of_inference(m, n, k, elements):
    single, half = traffic.gemm(m, n, k, "float32"), traffic.gemm(m, n, k, "float16")
    assert single.bytes_moved == 4 * elements
    assert half.bytes_moved == 2 * elements
    assert single.flop == half.flop == 2 * m * n * k


def test_both_ways_of_counting_a_2048_gemm_differ_by_the_reported_factor():
    model = traffic.gemm(2048, 2048, 2048, "float32", tile=32)
    assert model.bytes_moved == 3 * 2048**2 * 4
    assert model.requested_read == 2 * 2048**3 // 32 * 4
    # 10 GB/s by distinct bytes, 429 by requested ones, in one run: both are rounded figures.
    seconds = model.bytes_moved / 10e9
    assert model.bytes_requested / seconds / 1e9 == pytest.approx(429, rel=0.01)


def test_requested_bytes_of_ragged_tiles_follow_the_loads_that_are_made():
    # 33 rows are 2 tiles of 32, 5 columns are 1: A is asked for once, B twice.
    assert traffic.gemm(33, 5, 7, "float32", tile=32).requested_read == (33 * 7 * 1 + 7 * 5 * 2) * 4
    assert traffic.gemm(33, 5, 7, "float32", tile=(64, 2)).requested_read == (33 * 7 * 3 + 7 * 5 * 1) * 4


def test_the_naive_gemm_asks_for_two_operands_per_multiply_add():
    assert traffic.gemm(6, 10, 14, "float16", tile=1).requested_read == 2 * 6 * 10 * 14 * 2


def test_add_requests_exactly_what_it_moves():
    model = traffic.add(1000, "float32")
    assert model.bytes_requested == model.bytes_moved


@pytest.mark.parametrize(("m", "n", "k"), [(0, 4, 4), (4, 0, 4), (4, 4, 0)])
def test_an_empty_dimension_reads_nothing_for_it(m, n, k):
    model = traffic.gemm(m, n, k, "float32", tile=2)
    assert model.bytes_read == model.requested_read == 0
    assert model.bytes_written == m * n * 4
    assert model.flop == 0


def test_linear_is_a_gemm_whose_weights_are_read_once_per_row_group():
    assert traffic.linear(5, 7, 9, "float32", rows_together=2) == Traffic(
        (5 * 9 + 7 * 9) * 4, 5 * 7 * 4, 2 * 5 * 7 * 9, (5 * 9 * 7 + 7 * 9 * 3) * 4, 5 * 7 * 4
    )


def test_standard_attention_makes_four_passes_over_its_scores():
    b, h, n, d, s = 2, 3, 128, 64, 4
    model = traffic.attention_standard(b, h, n, d, "float32")
    assert model.bytes_moved == 4 * b * h * n * d * s + 4 * b * h * n * n * s
    assert model.flop == 4 * b * h * n * n * d


def test_flash_attention_moves_its_four_tensors_only():
    b, h, n, d, s = 2, 3, 128, 64, 2
    model = traffic.attention_flash(b, h, n, d, "float16", query_tile=32)
    assert model.bytes_moved == 4 * b * h * n * d * s
    assert model.flop == 4 * b * h * n * n * d
    assert model.bytes_requested == (2 + 2 * 4) * b * h * n * d * s


def test_requests_of_standard_attention_are_those_of_its_three_launches():
    b, h, n, d = 1, 2, 64, 32
    model = traffic.attention_standard(b, h, n, d, "float32", tile=32, row_reads=2)
    scores, softmax_reads = 2 * n * d * 2 * 4, 2 * n * n * 4
    output = (n * n * 1 + n * d * 2) * 4
    assert model.requested_read == b * h * (scores + softmax_reads + output)


def test_appending_to_the_kv_cache_reads_and_writes_keys_and_values():
    b, tokens, heads, d, s = 2, 16, 4, 64, 2
    model = traffic.kv_cache_append(b, tokens, heads, d, "float16")
    assert model.bytes_moved == 4 * b * tokens * heads * d * s
    assert model.bytes_read == model.bytes_written
    assert model.flop == 0


def test_decoding_reads_the_cache_once_whatever_the_number_of_query_heads():
    b, tokens, hq, hkv, d, s = 2, 1024, 14, 2, 64, 2
    model = traffic.kv_cache_read(b, tokens, hq, hkv, d, "float16")
    assert model.bytes_moved == 2 * b * tokens * hkv * d * s + 2 * b * hq * d * s
    assert model.flop == 4 * b * tokens * hq * d
    naive = traffic.kv_cache_read(b, tokens, hq, hkv, d, "float16", query_loads=4)
    assert naive.bytes_moved == model.bytes_moved
    assert naive.requested_read == 2 * b * tokens * hq * d * s + 4 * b * hq * d * s


def test_query_heads_share_whole_groups_of_kv_heads():
    with pytest.raises(UsageError, match="query_heads is 14, expected a multiple of the 4 kv_heads"):
        traffic.kv_cache_read(1, 8, 14, 4, 64, "float16")


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (1, 18), (32, 18), (33, 36), (4096, 2304)])
def test_q4_0_stores_32_weights_in_18_bytes(n, expected):
    assert traffic.q4_0_bytes(n) == expected


def test_q4_0_dequantise_reads_18_bytes_per_32_weights():
    assert traffic.q4_0_dequantize(32_000, "float32") == Traffic(18_000, 128_000, 32_000, 18_000, 128_000)


def test_threads_that_share_a_q4_0_block_each_ask_for_its_scale():
    one, sixteen = (traffic.q4_0_dequantize(64, "float32", scale_loads=loads) for loads in (1, 16))
    assert one.bytes_moved == sixteen.bytes_moved
    assert (one.requested_read, sixteen.requested_read) == (2 * 18, 2 * (16 + 16 * 2))
    fused = traffic.q4_0_fused(16, 4, 64, "float32", rows_together=8, scale_loads=8)
    assert fused.requested_read == 2 * 4 * 2 * (16 + 8 * 2) + 16 * 64 * 4 * 4


def test_fused_q4_0_moves_fifteen_times_less_weight_traffic_at_float32():
    n, k = 4864, 896
    # No rows of activations: what is left is the weights'.
    separate = traffic.q4_0_separate(1, n, k, "float32").bytes_moved - (k + n) * 4
    fused = traffic.q4_0_fused(1, n, k, "float32").bytes_moved - (k + n) * 4
    assert fused == n * k * 18 // 32
    assert separate == n * k * 18 // 32 + 2 * n * k * 4
    assert separate / fused == pytest.approx(15.2, abs=0.05)


def test_fused_and_separate_q4_0_compute_the_same():
    fused, separate = (f(8, 64, 32, "float16") for f in (traffic.q4_0_fused, traffic.q4_0_separate))
    assert fused.flop == separate.flop == 2 * 8 * 64 * 32
    assert fused.bytes_moved == (8 * 32 + 8 * 64) * 2 + 64 * 18


def test_rows_of_q4_0_weights_are_whole_blocks():
    for model in (traffic.q4_0_fused, traffic.q4_0_separate):
        with pytest.raises(UsageError, match="k is 33, expected a multiple of 32"):
            model(1, 4, 33, "float32")
