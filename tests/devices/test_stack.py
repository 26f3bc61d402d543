"""Where on the stack a function is called: read off the system, for the places and for a host's samples."""

import os
from functools import partial

import pytest

from pytest_bandwidth.devices.open import open_device
from pytest_bandwidth.devices.stack import PLACES, StackPlaces

TOLD = pytest.mark.skipif(not os.access("/proc/self/syscall", os.R_OK), reason="the system tells no stack pointer")
PAGE_BYTES, LINE_BYTES = 4096, 64
# That one of seven places is not among half as many is less likely than one in a million million.
MANY = 400


def stack_pointer():
    with open("/proc/self/syscall", "rb", buffering=0) as file:
        return int(file.read().split()[-2], 16)


@TOLD
def test_calls_are_at_seven_places_in_as_many_lines_of_a_page():
    places = StackPlaces()
    for _ in range(MANY):  # the first ones are elsewhere: Python specializes what it has run a few times
        places.call(stack_pointer)
    seen = {places.call(stack_pointer) for _ in range(MANY)}
    assert len({pointer % PAGE_BYTES // LINE_BYTES for pointer in seen}) == len(seen) == PLACES


@TOLD
def test_a_host_samples_at_all_places():
    device, seen = open_device("cpu"), []
    for _ in range(MANY):
        device.time(lambda: seen.append(stack_pointer()), None)
    assert len(set(seen[MANY // 2 :])) == PLACES


def test_what_is_called_returns_and_raises_what_it_would():
    def raises(error):
        raise error

    places = StackPlaces()
    for _ in range(MANY):
        assert places.call(lambda: "returned") == "returned"
    for error in (ValueError("of the test"), StopIteration("of the test"), KeyboardInterrupt()):
        for _ in range(MANY):
            with pytest.raises(type(error)) as raised:
                places.call(partial(raises, error))
            assert raised.value is error
