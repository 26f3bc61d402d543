"""Hashes of arrays of whole numbers: they depend on each element and its place alone."""

from types import SimpleNamespace

import numpy as np
import pytest

from pytest_bandwidth.devices import contents
from pytest_bandwidth.devices.contents import bytes_digest, holds_whole_numbers, host_contents
from pytest_bandwidth.domain.errors import UsageError


def test_one_element_or_two_that_change_places_are_other_contents():
    index = np.arange(10_000, dtype=np.int32)
    seen = {host_contents(index)}
    for place in (0, 1, 5_000, 9_999):
        other = index.copy()
        other[place] += 1
        seen.add(host_contents(other))
        swapped = index.copy()
        swapped[[place, 17]] = swapped[[17, place]]
        seen.add(host_contents(swapped))
    others = index[::-1], np.roll(index, 1), np.sort(index)[:-1], index.astype(np.int64)
    seen |= {host_contents(one) for one in others}
    assert len(seen) == 13
    assert host_contents(index.copy()) == host_contents(index)


@pytest.mark.parametrize("order", ["C", "F"])
def test_views_hold_what_they_show(order):
    whole = np.asarray(np.random.default_rng(2).integers(0, 99, (40, 30)), order=order)
    assert host_contents(whole[::2, 3:]) == host_contents(whole[::2, 3:].copy())
    assert len({host_contents(np.broadcast_to(np.int32(number), (1 << 40,))) for number in (3, 4)}) == 2


@pytest.mark.parametrize(
    ("array", "whole"),
    [
        *((np.zeros(2, name), True) for name in ("int8", "uint16", "int64", "bool", "datetime64[s]", "S4", "U2")),
        *((np.zeros(2, name), False) for name in ("float16", "float32", "complex64")),
        (np.zeros(2, [("to", "i4"), ("weight", "f4")]), True),
        (np.zeros(2, [("x", "f4", (3,)), ("y", "f8")]), False),
        (np.zeros(2, [("x", "f4"), ("inner", [("at", "i2", (2,))])]), True),
        # Types of frameworks are known by their names.
        *((SimpleNamespace(dtype=f"torch.{name}"), True) for name in ("int64", "bool")),
        (SimpleNamespace(dtype="torch.float32"), False),
        (object(), False),
    ],
)
def test_which_arrays_hold_whole_numbers(array, whole):
    assert holds_whole_numbers(array) is whole


def test_what_cannot_be_read_or_takes_too_long_is_said(monkeypatch):
    with pytest.raises(UsageError, match="holds references, not numbers"):
        bytes_digest(np.zeros(2, object))
    monkeypatch.setattr(contents, "MOST_SECONDS", -1)
    with pytest.raises(UsageError, match=r"hashing 800 kB of indices takes longer than -1 s"):
        bytes_digest(np.zeros(100_000, np.int64))
