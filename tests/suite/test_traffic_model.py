"""The Traffic value itself, and what the model functions accept."""

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite import traffic_models as traffic


def test_moved_is_read_plus_written_and_intensity_is_flop_per_byte_moved():
    model = Traffic(bytes_read=300, bytes_written=100, flop=800)
    assert model.bytes_moved == 400
    assert model.arithmetic_intensity == 2.0


def test_nothing_moved_has_no_intensity():
    assert Traffic(0, 0, flop=5).arithmetic_intensity is None


@pytest.mark.parametrize(
    "fields",
    [
        {"bytes_read": -1, "bytes_written": 0},
        {"bytes_read": 1.0, "bytes_written": 0},
        {"bytes_read": True, "bytes_written": 0},
        {"bytes_read": 0, "bytes_written": 0, "flop": -1},
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


def test_requested_bytes_are_the_distinct_ones_where_not_known_apart():
    assert Traffic(10, 20).bytes_requested == 30
    assert Traffic(10, 20, requested_read=70).bytes_requested == 90


class _Itemsize:
    def __init__(self, itemsize):
        self.itemsize = itemsize


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("float32", 4),
        ("float16", 2),
        ("bfloat16", 2),
        ("float64", 8),
        ("int8", 1),
        (np.float16, 2),
        (np.dtype("float64"), 8),
        (_Itemsize(3), 3),
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


def test_numpy_integers_are_sizes_and_give_plain_ints():
    model = traffic.copy(np.int64(3), "float32")
    assert model == Traffic(12, 12)
    assert type(model.bytes_read) is int


def test_sizes_past_two_to_the_31_do_not_wrap():
    assert traffic.triad(np.int32(2**31 - 1), "float64").bytes_moved == 3 * 8 * (2**31 - 1)
    assert traffic.gemm(2**17, 2**17, 2**17, "float32").flop == 2**52
