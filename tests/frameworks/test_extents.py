"""Distinct bytes of views, held against bytes marked one by one."""

import itertools

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.frameworks import base
from pytest_bandwidth.frameworks.base import Extent, distinct_bytes


def extent_of(array):
    return Extent("host", array.ctypes.data, array.shape, array.strides, array.itemsize)


def bytes_of(extent):
    """Return the addresses of all bytes, element by element."""
    indices = itertools.product(*map(range, extent.shape))
    firsts = {extent.address + sum(i * s for i, s in zip(index, extent.strides, strict=True)) for index in indices}
    return {first + k for first in firsts for k in range(extent.itemsize)}


DIMENSION = st.tuples(st.integers(0, 4), st.integers(-9, 9))
EXTENTS = st.builds(
    lambda address, dimensions, size: Extent(
        "host", address, tuple(d[0] for d in dimensions), tuple(d[1] for d in dimensions), size
    ),
    st.integers(200, 240),
    st.lists(DIMENSION, max_size=3),
    st.sampled_from([1, 2, 4]),
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # as slow as the machine is busy
@given(st.lists(EXTENTS, max_size=4))
def test_each_byte_counts_once(found):
    assert distinct_bytes(found) == len(set().union(*map(bytes_of, found)))


X = np.zeros((64, 32), np.float32)


def test_the_same_address_on_two_devices_is_two_places():
    assert distinct_bytes([Extent(device, 64, (8,), (4,), 4) for device in ("cuda:0", "cuda:1")]) == 64


def test_too_much_to_mark_is_refused(monkeypatch):
    monkeypatch.setattr(base, "MOST_CELLS", 100)
    assert distinct_bytes(map(extent_of, (X[:, ::2],))) == 64 * 16 * 4  # nothing overlaps: reckoned
    with pytest.raises(UsageError, match=r"views with gaps overlap in 8\.\d+ kB of memory.*declare the bytes"):
        distinct_bytes(map(extent_of, (X[:, ::2], X[:, ::4])))
