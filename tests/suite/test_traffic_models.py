"""Models against figures worked out by hand or published, and what they accept.

That kernels move and ask for what models say: tests/kernels/test_kernel_numerics.py.
"""

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic

N = 1000

# ---- the value itself ------------------------------------------------------------------------------------------------


def test_moved_is_read_plus_written_and_intensity_is_flop_per_byte_moved():
    model = Traffic(bytes_read=300, bytes_written=100, flop=800)
    assert model.bytes_moved == 400
    assert model.arithmetic_intensity == 2.0
    assert Traffic(0, 0, flop=5).arithmetic_intensity is None


@pytest.mark.parametrize(
    "fields",
    [
        {"bytes_read": -1, "bytes_written": 0},
        {"bytes_read": 1.0, "bytes_written": 0},
        {"bytes_read": 0, "bytes_written": 0, "requested_read": -1},
        {"bytes_read": 0, "bytes_written": 0, "requested_written": 2.5},
    ],
)
def test_only_whole_non_negative_numbers_are_counts(fields):
    with pytest.raises(UsageError, match="expected a whole number that is not negative"):
        Traffic(**fields)


def test_launches_add_up_and_a_missing_request_count_falls_back_to_distinct_bytes():
    first = Traffic(10, 20, 1, requested_read=100)
    second = Traffic(1, 2, 3)
    assert first + second == Traffic(11, 22, 4, requested_read=101, requested_written=None)
    assert second + second == Traffic(2, 4, 6)
    assert (second.bytes_requested, first.bytes_requested) == (3, 120)


class _Itemsize:
    def __init__(self, itemsize):
        self.itemsize = itemsize


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        *(("float32", 4), ("float16", 2), ("bfloat16", 2), ("float64", 8), ("int8", 1)),
        *((np.float16, 2), (np.dtype("float64"), 8), (_Itemsize(3), 3)),
    ],
)
def test_a_dtype_is_a_name_or_has_an_itemsize(dtype, expected):
    assert bytes_per_element(dtype) == expected


@pytest.mark.parametrize(
    "dtype", ["float31", "", None, 4, _Itemsize(0), _Itemsize(-4), _Itemsize("4"), _Itemsize(True)]
)
def test_anything_else_is_no_dtype(dtype):
    with pytest.raises(UsageError, match="expected one of float64"):
        bytes_per_element(dtype)


@pytest.mark.parametrize("n", [-1, 1.5, "8", True, None])
def test_a_size_is_a_whole_number(n):
    with pytest.raises(UsageError, match=r"n is .* expected a whole number of at least 0"):
        traffic.copy(n, "float32")


def test_numpy_integers_are_sizes_and_give_plain_ints_that_do_not_wrap():
    model = traffic.copy(np.int64(3), "float32")
    assert model == Traffic(12, 12)
    assert type(model.bytes_read) is int
    assert traffic.triad(np.int32(2**31 - 1), "float64").bytes_moved == 3 * 8 * (2**31 - 1)


@pytest.mark.parametrize(
    ("model", "said"),
    [
        (lambda: traffic.pointwise_chain(N, 0, "float32", fused=True), "operations is 0"),
        (lambda: traffic.kv_cache_read(1, 8, 14, 4, 64, "float32"), "query_heads is 14, expected a multiple of"),
        (lambda: traffic.rope(1, 1, 33, "float32"), "d is 33, expected an even number"),
        (lambda: traffic.q4_0_fused(1, 4, 33, "float32"), "k is 33, expected a multiple of 32"),
        (lambda: traffic.q4_0_separate(1, 4, 33, "float32"), "k is 33, expected a multiple of 32"),
    ],
)
def test_sizes_that_no_kernel_takes_are_refused(model, said):
    with pytest.raises(UsageError, match=said):
        model()


# ---- whole models by hand --------------------------------------------------------------------------------------------

MATRIX, ROWS = 16 * 4096 * 4, 16 * 4  # bytes of 16 rows of 4096 float32, and of a value for each row
RMS_NORM = 2 * MATRIX + 4096 * 4, 2 * MATRIX
NEW_HALF = 2 * 2 * 16 * 4 * 64 * 2  # keys and values


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # Partial sums count where they are declared.
        (traffic.reduce_sum(N, "float16", partials=8), Traffic(2000, 32, 1000)),
        (traffic.dot(N, "float64", partials=8, partial_dtype="float64"), Traffic(16000, 64, 2000)),
        # The sweep adds work and no bytes. 19.5 TFLOP/s over 1.5 TB/s: 13 FLOP per byte, 4 FMAs for each.
        (traffic.intensity_sweep(N, 52, "float32"), Traffic(4000, 4000, round(19.5 / 1.5 * 8000))),
        (traffic.intensity_sweep(N, 16, "float32", fma=False), Traffic(4000, 4000, 16_000)),
        (traffic.intensity_sweep(N, 0, "float32"), Traffic(4000, 4000, 0)),
        # A gather reads its indices, too; a broadcast moves one element and requests all.
        (traffic.gather(N, "float32"), Traffic(8000, 4000)),
        (traffic.gather(N, "float16", "int64"), Traffic(10_000, 2000)),
        (traffic.broadcast(N, "float32"), Traffic(4, 4000, 0, 4000, 4000)),
        (traffic.broadcast(0, "float32"), Traffic(0, 0, 0, 0, 0)),
        # A gate reads two arrays; a turn two parts of an angle for each pair, which the heads of a token share.
        (traffic.swiglu(N, "bfloat16"), Traffic(4000, 2000, 5000)),
        (traffic.rope(3, 4, 8, "float16"), Traffic(192 + 96, 192, 288, 192 + 4 * 96, 192)),
        (traffic.rope(3, 4, 8, "float16", angle_loads=2), Traffic(192 + 96, 192, 288, 192 + 2 * 96, 192)),
        (traffic.rope(3, 0, 8, "float16"), Traffic(0, 0, 0, 0, 0)),
        # Two matrices in, two out, and a row of factors, which each row asks for.
        (traffic.rms_norm_residual(16, 4096, "float32"), Traffic(*RMS_NORM, 5 * 16 * 4096, 3 * MATRIX, 2 * MATRIX)),
        (
            traffic.rms_norm_residual(16, 4096, "float32", row_reads=2),
            Traffic(*RMS_NORM, 5 * 16 * 4096, 5 * MATRIX, 2 * MATRIX),
        ),
        # 1000 elements of 2 bytes, as many codes, 5 scales.
        (traffic.quantize_rows(5, 200, "float16", row_reads=2), Traffic(2000, 1020, 3000, 4000, 1020)),
        (traffic.quantize_mxfp8(30, "float16", row_reads=2), Traffic(1920, 990, 2880, 3840, 990)),
        (traffic.topk(5, 200, 3, "float16", row_reads=3), Traffic(2000, 90, 1000, 6000, 90)),
        (traffic.dequantize_rows(5, 200, "float16"), Traffic(1020, 2000, 1000)),
        (traffic.rms_norm_residual(0, 4096, "float32"), Traffic(0, 0, 0, 0, 0)),
        # Fused it reads once, where max, exp and sum pass four times.
        (traffic.logsumexp(16, 4096, "float32", fused=True), Traffic(MATRIX, ROWS, 3 * 16 * 4096)),
        (
            traffic.logsumexp(16, 4096, "float32", fused=False),
            Traffic(3 * MATRIX + 2 * ROWS, MATRIX + 2 * ROWS, 3 * 16 * 4096),
        ),
        # Weights are read once for each group of rows.
        (
            traffic.linear(5, 7, 9, "float32", rows_together=2),
            Traffic((5 * 9 + 7 * 9) * 4, 5 * 7 * 4, 2 * 5 * 7 * 9, (5 * 9 * 7 + 7 * 9 * 3) * 4, 5 * 7 * 4),
        ),
        # An empty dimension reads nothing for it.
        (traffic.gemm(0, 4, 4, "float32", tile=2), Traffic(0, 0, 0, 0, 0)),
        (traffic.gemm(4, 4, 0, "float32", tile=2), Traffic(0, 64, 0, 0, 64)),
        (traffic.kv_cache_append(2, 16, 4, 64, "float16"), Traffic(NEW_HALF, NEW_HALF, 0)),
    ],
)
def test_a_model_is_what_was_worked_out_by_hand(model, expected):
    assert model == expected


# ---- orders of access ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("dtype", "pattern", "sectors"),
    [
        ("float32", {}, 4),
        ("float32", {"offset": 1}, 5),
        ("float32", {"offset": 8}, 4),
        ("float32", {"stride": 8}, 32),
        ("float32", {"stride": 0}, 1),
        ("float64", {"stride": 2, "offset": 1}, 16),
    ],
)
def test_sectors_of_a_warp_request(dtype, pattern, sectors):
    assert traffic.warp_sectors(dtype, **pattern) == sectors


# ---- products --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "flop_per_byte"), [(64, 10.7), (4096, 682.7)])
def test_square_float32_gemm_has_an_intensity_of_a_sixth_of_its_side(n, flop_per_byte):
    intensity = traffic.gemm(n, n, n, "float32").arithmetic_intensity
    assert intensity == pytest.approx(n / 6)
    assert intensity == pytest.approx(flop_per_byte, abs=0.05)


def test_both_ways_of_counting_a_2048_gemm_differ_by_the_reported_factor():
    model = traffic.gemm(2048, 2048, 2048, "float32", tile=32)
    assert model.bytes_moved == 3 * 2048**2 * 4
    assert model.requested_read == 2 * 2048**3 // 32 * 4
    # 10 GB/s by distinct bytes, 429 by requested ones, in one run: both are rounded figures.
    assert model.bytes_requested / model.bytes_moved * 10 == pytest.approx(429, rel=0.01)


# ---- attention and its cache -----------------------------------------------------------------------------------------


def test_decoding_reads_the_cache_once_whatever_the_number_of_query_heads():
    b, tokens, hq, hkv, d, s = 2, 1024, 14, 2, 64, 2
    model = traffic.kv_cache_read(b, tokens, hq, hkv, d, "float16")
    assert model.bytes_moved == 2 * b * tokens * hkv * d * s + 2 * b * hq * d * s
    assert model.flop == 4 * b * tokens * hq * d
    naive = traffic.kv_cache_read(b, tokens, hq, hkv, d, "float16", query_loads=4)
    assert naive.bytes_moved == model.bytes_moved
    assert naive.requested_read == 2 * b * tokens * hq * d * s + 4 * b * hq * d * s
    in_8_bits = traffic.kv_cache_read(b, tokens, hq, hkv, d, "float16", in_8_bits=True)
    assert in_8_bits.bytes_moved == 2 * b * tokens * hkv * (d + 4) + 2 * b * hq * d * s


# ---- weights of four bits --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("n", "expected"), [(0, 0), (1, 18), (32, 18), (33, 36), (4096, 2304)])
def test_q4_0_stores_32_weights_in_18_bytes(n, expected):
    assert traffic.q4_0_bytes(n) == expected
    assert traffic.q4_0_dequantize(n, "float32") == Traffic(expected, 4 * n, n, expected, 4 * n)


def test_fused_q4_0_moves_fifteen_times_less_weight_traffic_at_float32():
    n, k = 4864, 896
    # Without the activations: what is left is the weights'.
    separate = traffic.q4_0_separate(1, n, k, "float32").bytes_moved - (k + n) * 4
    fused = traffic.q4_0_fused(1, n, k, "float32").bytes_moved - (k + n) * 4
    assert fused == n * k * 18 // 32
    assert separate == n * k * 18 // 32 + 2 * n * k * 4
    assert separate / fused == pytest.approx(15.2, abs=0.05)
