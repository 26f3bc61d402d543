"""What a traffic is and how a formula is read. That kernels move and ask for so much: tests/kernels."""

import numpy as np
import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element
from pytest_bandwidth.suite.traffic_models import Formula, warp_sectors

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


# ---- formulas --------------------------------------------------------------------------------------------------------


def test_a_formula_is_a_sum_of_products_whose_blocks_are_whole():
    found = Formula("2·n·s + n²·i", "0", "n", "loads·n·s").at({"n": 3, "i": 8}, "float16", {"loads": 2})
    assert found == Traffic(12 + 72, 0, 3, 12, 0)
    assert Formula("k·n·18/32", "1").at({"k": 2, "n": 17}, "float32") == Traffic(36, 1)


@pytest.mark.parametrize("text", ["__import__('os')", "n.__class__", "rows·s", "2**9", "n-1", ""])
def test_a_formula_is_never_executed(text):
    with pytest.raises(KeyError):
        Formula(text, "0").at({"n": 3}, "float32")


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
    assert warp_sectors(dtype, **pattern) == sectors
