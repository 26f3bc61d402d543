"""What traffic models accept, and figures that are worked out by hand.

That kernels move and ask for what models say: tests/kernels/test_kernel_numerics.py. That the documented formulas are
the models: test_operations_table.py.
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


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        # Partial sums count where they are declared.
        (traffic.reduce_sum(N, "float16", partials=8), Traffic(2000, 32, 1000)),
        (traffic.dot(N, "float64", partials=8, partial_dtype="float64"), Traffic(16000, 64, 2000)),
        # An empty dimension reads nothing for it.
        (traffic.broadcast(0, "float32"), Traffic(0, 0, 0, 0, 0)),
        (traffic.rope(3, 0, 8, "float16"), Traffic(0, 0, 0, 0, 0)),
        (traffic.rms_norm_residual(0, 4096, "float32"), Traffic(0, 0, 0, 0, 0)),
        (traffic.gemm(0, 4, 4, "float32", tile=2), Traffic(0, 0, 0, 0, 0)),
        (traffic.gemm(4, 4, 0, "float32", tile=2), Traffic(0, 64, 0, 0, 64)),
    ],
)
def test_a_model_is_what_was_worked_out_by_hand(model, expected):
    """What no kernel shows: FLOP beside partial results, and what is read where there is nothing to do."""
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
