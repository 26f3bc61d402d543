"""Where on the stack a function is called: read off the system, for the places and for a host's samples."""

import os
from functools import partial
from itertools import pairwise

import pytest

from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.devices.stack import PLACES, StackPlaces

TOLD = pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="the system tells no stack pointer")
LINE_BYTES = 64


def stack_pointer():
    with open("/proc/self/syscall", "rb", buffering=0) as file:
        return int(file.read().split()[-2], 16)


@TOLD
def test_each_call_is_at_the_next_place_and_the_last_one_is_followed_by_the_first():
    places = StackPlaces()
    # The first calls are elsewhere: Python specializes what it has run a few times.
    _, first, again = ([places.call(stack_pointer) for _ in range(PLACES)] for _ in range(3))
    assert again == first
    assert min(above - below for above, below in pairwise(first)) >= LINE_BYTES


@TOLD
def test_a_host_samples_at_all_places():
    device, seen = open_device("cpu"), []
    for _ in range(PLACES):
        device.time(lambda: seen.append(stack_pointer()), None)
    assert len(set(seen)) == PLACES


def test_what_is_called_returns_and_raises_what_it_would():
    def raises(error):
        raise error

    places = StackPlaces()
    for _ in range(PLACES):
        assert places.call(lambda: "returned") == "returned"
    for error in (ValueError("of the test"), StopIteration("of the test"), KeyboardInterrupt()):
        for _ in range(PLACES):
            with pytest.raises(type(error)) as raised:
                places.call(partial(raises, error))
            assert raised.value is error
