"""How many launches a graph holds."""

import pytest

from pytest_bandwidth.devices.cuda.graphs import launches_in_graph

MIB = 2**20


@pytest.mark.parametrize(
    ("data", "cache", "launches"),
    [(64 * 1024, 50 * MIB, 32), (0, 50 * MIB, 32), (50 * MIB, 50 * MIB, 16), (10**9, 50 * MIB, 2), (1024, 0, 2)],
)
def test_enough_pass_through_the_cache_within_limits(data, cache, launches):
    assert launches_in_graph(data, cache) == launches
