"""How a launch's grid and block are recorded, read back, and said to have changed."""

import pytest

from pytest_bandwidth.domain.code.launch_shape import LaunchShape, changes, shape_of

FLAT = LaunchShape((4096, 1, 1), (256, 1, 1))
DEEP = LaunchShape((8, 4, 2), (32, 1, 4), 49152)


@pytest.mark.parametrize(
    ("shape", "recorded"),
    [
        (FLAT, {"grid_x": 4096, "block_x": 256}),
        (DEEP, {"grid_x": 8, "grid_y": 4, "grid_z": 2, "block_x": 32, "block_z": 4, "dynamic_shared_bytes": 49152}),
        (LaunchShape((1, 1, 1), (1, 1, 1)), {"grid_x": 1, "block_x": 1}),
    ],
)
def test_it_is_read_back_as_it_was_recorded(shape, recorded):
    assert shape.recorded() == recorded
    assert shape_of({"registers": 32, **recorded}) == shape


@pytest.mark.parametrize("recorded", [{}, {"registers": 32}, {"grid_x": 8}, {"block_x": 8}])
def test_what_was_not_recorded_is_not_guessed(recorded):
    assert shape_of(recorded) is None


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        (FLAT, FLAT, []),
        (FLAT, FLAT._replace(block=(128, 1, 1)), ["block 256 → 128"]),
        (FLAT, DEEP._replace(shared_bytes=0), ["grid 4,096 → 8 × 4 × 2", "block 256 → 32 × 1 × 4"]),
        (FLAT, FLAT._replace(shared_bytes=1024), ["dynamic shared memory 0 → 1,024 B a block"]),
    ],
)
def test_only_what_changed_is_said(then, now, said):
    assert changes(then, now) == said
