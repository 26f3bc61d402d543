"""Arrays that are looked into and changed between samples: hashes, poison, regions."""

import numpy as np
import pytest

from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.features.honest.arrays import (
    changed_region,
    is_ordered,
    overlap,
    swap_halves,
    view_of,
)

RNG = np.random.default_rng(5)
DTYPES = ("u1", "i2", "f2", "f4", "f8", "c8", "c16", "?")


@pytest.fixture(scope="module")
def device():
    return open_device("cpu")


def filled(shape, dtype):
    size = int(np.prod(shape)) * np.dtype(dtype).itemsize
    bits = RNG.integers(0, 256, size, dtype="u1")
    return (bits & 1 if dtype == "?" else bits).view(dtype).reshape(shape)


LAYOUTS = {"C": lambda a: a, "Fortran": np.asfortranarray, "gaps": lambda a: np.repeat(a, 2, axis=1)[:, ::2]}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_poison_changes_every_element_and_the_hash(device, dtype, layout):
    array = LAYOUTS[layout](filled((37, 21), dtype))
    view, before = view_of(device, "x", array), array.copy()
    digest = view.digest()
    view.poison()
    raw = [one.view("u1").reshape(37, 21, -1) for one in map(np.ascontiguousarray, (before, array))]
    assert (raw[0] != raw[1]).any(axis=2).all()
    assert view.digest() != digest
    array[...] = before
    assert view.digest() == digest


@pytest.mark.parametrize("place", [0, 1, 65_535, 65_536, 200_000, -2, -1])
def test_one_changed_bit_shows_in_the_hash_of_a_large_array(device, place):
    array = filled(300_007, "f4")
    view = view_of(device, "x", array)
    digest = view.digest()
    array.view("u4")[place] ^= 1
    assert view.digest() != digest


@pytest.mark.parametrize("size", [1 << 16, 1 << 18, 3 << 17])
def test_halves_that_change_places_show_in_the_hash(device, size):
    view = view_of(device, "x", filled(size, "f4"))
    digest, parts = view.digest(), view.parts()
    assert swap_halves(parts)
    assert view.digest() != digest
    swap_halves(parts)
    assert view.digest() == digest


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ["all", "any", "largest", "one", "smallest"])
def test_a_changed_region_holds_the_arrays_own_values_and_is_given_back(device, kind, layout):
    array = LAYOUTS[layout](RNG.random((500, 300)).astype("f4"))
    before = array.copy()
    view = view_of(device, "x", array)
    region = changed_region(view, RNG, kind)
    changed = array != before
    assert changed.any()
    assert kind in ("all", "any") or np.count_nonzero(changed.any(axis=1)) == 1
    assert kind != "all" or changed.mean() > 0.99
    assert np.isin(array, before).all()
    extreme = {"largest": before.argmax(), "smallest": before.argmin()}.get(kind)
    assert extreme is None or changed.reshape(-1)[extreme]
    region.restore()
    np.testing.assert_array_equal(array, before)


@pytest.mark.parametrize(
    "array", [np.zeros(1000, "f4"), np.float32([3]), np.empty(0, "f4")], ids=["same", "one", "none"]
)
def test_what_has_one_value_alone_cannot_be_changed(device, array):
    assert changed_region(view_of(device, "x", array), RNG, "any") is None


def test_ordered_numbers_may_be_offsets(device):
    assert is_ordered(view_of(device, "x", np.array([0, 3, 3, 9])))
    assert not is_ordered(view_of(device, "x", np.array([3, 0, 9])))
    assert not is_ordered(view_of(device, "x", np.append(np.arange(5000), 0)))


@pytest.mark.parametrize("kind", ["all", "any", "largest", "one", "smallest"])
@pytest.mark.parametrize("size", [2, 5, 1000])
def test_numbers_in_order_stay_in_order(device, kind, size):
    array = np.arange(size, dtype="f4")
    region = changed_region(view_of(device, "x", array), RNG, kind)
    assert (np.diff(array) >= 0).all()
    assert (array != np.arange(size)).any()
    region.restore()
    np.testing.assert_array_equal(array, np.arange(size))


def test_views_of_one_memory_overlap_and_others_do_not():
    array = np.empty(100, "f4")
    assert overlap(array, array[50:])
    assert not overlap(array[:50], array[50:])
    assert not overlap(array, array.copy())


@pytest.mark.parametrize("array", [np.array([None]), np.array(["text"]), [1, 2], 3.0])
def test_what_holds_no_numbers_is_not_looked_into(device, array):
    assert view_of(device, "x", array) is None
