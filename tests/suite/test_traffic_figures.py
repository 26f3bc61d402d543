"""Bytes and FLOP of every operation against figures worked out by hand or published."""

import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite import traffic_models as traffic

N = 1000


@pytest.mark.parametrize(
    ("model", "elements_read", "elements_written", "flop_per_element"),
    [
        (traffic.read, 1, 0, 0),
        (traffic.write, 0, 1, 0),
        (traffic.copy, 1, 1, 0),
        (traffic.scale, 1, 1, 1),
        (traffic.add, 2, 1, 1),
        (traffic.triad, 2, 1, 2),
        (traffic.dot, 2, 0, 2),
        (traffic.reduce_sum, 1, 0, 1),
    ],
)
@pytest.mark.parametrize(("dtype", "s"), [("float32", 4), ("float16", 2), ("bfloat16", 2), ("float64", 8)])
def test_streams_move_whole_arrays(model, elements_read, elements_written, flop_per_element, dtype, s):
    assert model(N, dtype) == Traffic(elements_read * N * s, elements_written * N * s, flop_per_element * N)
    assert model(0, dtype) == Traffic(0, 0, 0)


def test_add_of_ten_million_floats():
    model = traffic.add(10_000_000, "float32")
    assert model.bytes_moved == 120_000_000
    assert model.flop == 10_000_000
    assert model.arithmetic_intensity == pytest.approx(0.0833, abs=5e-5)


def test_add_of_a_million_floats_on_a_205_gb_per_s_5_3_tflop_device():
    model = traffic.add(1_000_000, "float32")
    assert model.bytes_moved == 12_000_000
    assert model.bytes_moved / 205e9 == pytest.approx(58.5e-6, abs=0.05e-6)
    assert model.flop / 5.3e12 == pytest.approx(0.189e-6, abs=0.0005e-6)


def test_partial_sums_count_where_they_are_declared():
    assert traffic.reduce_sum(N, "float16", partials=8) == Traffic(2000, 32, 1000)
    assert traffic.dot(N, "float64", partials=8, partial_dtype="float64") == Traffic(16000, 64, 2000)


def test_fusing_bias_relu_dropout_saves_a_factor_of_three():
    unfused = traffic.pointwise_chain(N, 3, "float32", fused=False)
    fused = traffic.pointwise_chain(N, 3, "float32", fused=True)
    one_pass = N * 4
    assert unfused.bytes_moved == 6 * one_pass
    assert fused.bytes_moved == 2 * one_pass
    assert unfused.flop == fused.flop == 3 * N


def test_fusing_two_cosines_saves_a_factor_of_two():
    one_pass = N * 4
    assert traffic.pointwise_chain(N, 2, "float32", fused=False).bytes_moved == 4 * one_pass
    assert traffic.pointwise_chain(N, 2, "float32", fused=True).bytes_moved == 2 * one_pass


def test_a_chain_has_at_least_one_operation():
    with pytest.raises(UsageError, match="operations is 0"):
        traffic.pointwise_chain(N, 0, "float32", fused=True)


def test_the_intensity_sweep_adds_work_and_no_bytes():
    assert traffic.intensity_sweep(N, 16, "float32") == Traffic(4000, 4000, 32_000)
    assert traffic.intensity_sweep(N, 16, "float32", fma=False) == Traffic(4000, 4000, 16_000)
    assert traffic.intensity_sweep(N, 0, "float32").flop == 0


def test_the_sweep_crosses_at_52_fmas_on_a_device_of_13_flop_per_byte():
    ridge_point = 19.5e12 / 1.5e12
    repeats = ridge_point * 4  # per float32: an FMA is two FLOP for two elements moved
    assert repeats == pytest.approx(52)
    at_ridge = traffic.intensity_sweep(N, round(repeats), "float32")
    assert at_ridge.flop / N == 104
    assert at_ridge.flop / (at_ridge.bytes_moved / 4) == 52
    assert at_ridge.arithmetic_intensity == pytest.approx(ridge_point)


def test_gather_reads_its_indices_too():
    assert traffic.gather(N, "float32") == Traffic(8000, 4000)
    assert traffic.gather(N, "float16", "int64") == Traffic(10_000, 2000)


def test_a_broadcast_moves_one_element_and_requests_all():
    assert traffic.broadcast(N, "float32") == Traffic(4, 4000, 0, 4000, 4000)
    assert traffic.broadcast(0, "float32").bytes_moved == 0


@pytest.mark.parametrize(
    ("dtype", "pattern", "sectors"),
    [
        ("float32", {}, 4),
        ("float16", {}, 2),
        ("float64", {}, 8),
        ("float32", {"offset": 1}, 5),
        ("float32", {"offset": 8}, 4),
        ("float32", {"stride": 2}, 8),
        ("float32", {"stride": 8}, 32),
        ("float32", {"stride": 4096}, 32),
        ("float32", {"stride": 0}, 1),
        ("float64", {"stride": 2, "offset": 1}, 16),
        ("float32", {"lanes": 0}, 0),
    ],
)
def test_sectors_of_a_warp_request(dtype, pattern, sectors):
    assert traffic.warp_sectors(dtype, **pattern) == sectors


def test_softmax_moves_each_element_twice_at_2_5_flop_each():
    model = traffic.softmax(64, 1024, "float32")
    assert model.bytes_moved == 2 * 64 * 1024 * 4
    assert model.flop / (model.bytes_moved / 4) == 2.5


def test_softmax_in_three_passes_moves_the_same_and_requests_more():
    naive = traffic.softmax(64, 1024, "float32", row_reads=3)
    assert naive.bytes_moved == traffic.softmax(64, 1024, "float32").bytes_moved
    assert naive.bytes_requested == 4 * 64 * 1024 * 4


def test_layer_norm_also_reads_two_rows_of_parameters():
    model = traffic.layer_norm(64, 1024, "float16")
    assert model.bytes_moved == 2 * 64 * 1024 * 2 + 2 * 1024 * 2
    assert model.flop == 10 * 64 * 1024
    assert model.requested_read == 64 * 1024 * 2 + 64 * 2 * 1024 * 2
    assert traffic.layer_norm(0, 1024, "float32").bytes_moved == 0


def test_fused_logsumexp_reads_once_where_max_exp_and_sum_pass_four_times():
    rows, cols = 16, 4096
    one_pass, results = rows * cols * 4, rows * 4
    assert traffic.logsumexp(rows, cols, "float32", fused=True) == Traffic(one_pass, results, 3 * rows * cols)
    unfused = traffic.logsumexp(rows, cols, "float32", fused=False)
    assert unfused == Traffic(3 * one_pass + 2 * results, one_pass + 2 * results, 3 * rows * cols)
