import pytest

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.tiling import (
    Quantization,
    lane_quantization,
    output_tiles,
    tile_quantization,
    wave_quantization,
)

A100_MULTIPROCESSORS = 108


def test_33_rows_in_tiles_of_8_need_5_tiles():
    assert tile_quantization(33, 8) == Quantization(5, 33 / 40)


def test_1792_squared_is_one_wave_on_an_a100_and_one_row_more_is_two():
    assert output_tiles(1792, 1792, 256, 128) == 98
    assert wave_quantization(98, A100_MULTIPROCESSORS) == Quantization(1, 98 / 108)
    assert output_tiles(1793, 1793, 256, 128) == 120
    assert wave_quantization(120, A100_MULTIPROCESSORS) == Quantization(2, 120 / 216)


def test_more_blocks_at_once_make_fewer_waves():
    assert wave_quantization(217, A100_MULTIPROCESSORS, blocks_per_multiprocessor=2) == Quantization(2, 217 / 432)


@pytest.mark.parametrize(("innermost", "warps"), [(32, 1), (33, 2), (64, 2), (1, 1)])
def test_an_innermost_dimension_off_the_warp_width_wastes_lanes(innermost, warps):
    found = lane_quantization(innermost)
    assert found.units == warps
    assert found.used == innermost / (32 * warps)


def test_no_work_needs_no_units_and_wastes_nothing():
    assert tile_quantization(0, 8) == Quantization(0, 1.0)


def test_a_tile_has_at_least_one_element():
    with pytest.raises(UsageError, match="tile is 0"):
        tile_quantization(33, 0)
    with pytest.raises(UsageError, match="multiprocessors is 0"):
        wave_quantization(1, 0)
