"""The probe that belongs to a workload: the nearest mix of reads and writes."""

import pytest

from pytest_bandwidth.domain.traffic import ADD, COPY, READ, WRITE, Mix, Traffic, nearest_mix


@pytest.mark.parametrize(
    ("read", "written", "expected"),
    [
        (0, 100, WRITE),
        (100, 100, COPY),
        (10, 1, READ),  # 9 %, nearer to none than to a third
        (4, 1, ADD),  # 20 %
        (7, 5, ADD),  # 41.7 %: a tie between a third and a half goes to the one that writes less
        (1, 2, COPY),  # 67 %, nearer to a half than to all
        (1, 3, COPY),  # 75 %: a tie between a half and all
        (1, 4, WRITE),
    ],
)
def test_the_mix_nearest_to_the_share_written(read: int, written: int, expected: Mix) -> None:
    assert nearest_mix(Traffic(read, written)) is expected
