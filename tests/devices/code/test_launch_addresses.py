"""Addresses among a launch's arguments: another number in each process, and the same launch."""

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.code.launch import Addresses, launch_digest

# Memory of a card, in two processes: an allocation of 1 KiB, elsewhere in each.
HERE, THERE, SIZE = 0x7F00_0000_0000, 0x7E00_1234_5600, 1024
PADDED = np.dtype({"names": ["n", "x"], "formats": ["i4", "u8"], "offsets": [0, 8], "itemsize": 24})
NESTED = np.dtype([("view", PADDED, (2,)), ("scale", "f4"), ("raw", "V12")], align=True)


def on_card(base, *args, numbers=(), opaque=()):
    addresses = Addresses(lambda address: base <= address < base + SIZE, numbers=numbers)
    launch = Launch("kernel", (1, 1, 1), (1, 1, 1), args, opaque=frozenset(opaque))
    return launch_digest(launch, addresses=addresses)


def struct(address, n=3, padding=0):
    value = np.frombuffer(bytearray([padding]) * NESTED.itemsize, NESTED)
    for view in value["view"][0]:
        view["n"], view["x"] = n, address
    value["scale"], value["raw"] = 2.0, b"\1" * 12
    return value


def raw(address):
    return np.void(address.to_bytes(8, "little") + b"\7" * 8)


@pytest.mark.parametrize(
    "made",
    [
        np.uint64,
        np.int64,
        int,
        lambda address: np.array(address, np.uintp),
        lambda address: address + 512,
        lambda address: np.uint64(address + SIZE - 1),
        struct,
        lambda address: struct(address)[0],
        raw,
        lambda address: raw(address).tobytes(),
    ],
)
def test_an_address_that_is_handed_over_as_a_number_is_the_same_in_every_process(made):
    assert on_card(HERE, made(HERE)) == on_card(THERE, made(THERE))
    assert on_card(HERE, made(HERE)) != on_card(THERE, made(HERE))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((HERE,), (HERE + 4,)),  # elsewhere in a line
        ((HERE, HERE), (HERE, HERE + 128)),  # in place
        ((struct(HERE),), (struct(HERE, n=4),)),
        ((struct(HERE), HERE), (struct(HERE + 128), HERE)),
        ((HERE,), (HERE + SIZE,)),  # freed, or never allocated
        ((HERE + SIZE,), (HERE + 2 * SIZE,)),
        ((np.int32(3),), (np.int32(4),)),
        ((np.float64(HERE),), (np.float64(HERE + 128),)),
        ((True,), (False,)),
    ],
)
def test_what_addresses_and_numbers_tell(one, other):
    assert on_card(HERE, *one) == on_card(HERE, *one)
    assert on_card(HERE, *one) != on_card(HERE, *other)


def test_a_number_that_the_source_declares_as_one_is_no_address():
    assert on_card(HERE, HERE) == on_card(HERE, HERE + 128)
    assert on_card(HERE, HERE, numbers=(0,)) != on_card(HERE, HERE + 128, numbers=(0,))


def test_an_address_lies_in_an_array_that_it_is_handed_over_with():
    array = np.zeros(SIZE, np.uint8)
    base = array.ctypes.data

    def beside(offset):
        return on_card(base, array, np.uint64(base + offset))

    assert beside(0) == beside(0)
    assert len({beside(0), beside(128), beside(256)}) == 3


def test_padding_of_a_struct_is_no_part_of_it():
    assert struct(HERE).tobytes() != struct(HERE, padding=9).tobytes()
    assert on_card(HERE, struct(HERE)) == on_card(HERE, struct(HERE, padding=9))


def test_what_is_opaque_identifies_nothing():
    assert on_card(HERE, 5, struct(THERE), opaque=(0, "x")) == on_card(HERE, 6, struct(THERE + 8), opaque=(0, "x"))
    assert on_card(HERE, 5, struct(THERE, n=4), opaque=(0, "x")) != on_card(HERE, 5, struct(THERE), opaque=(0, "x"))
    assert on_card(HERE, np.zeros(4), opaque=(0,)) == on_card(HERE, np.zeros(5), opaque=(0,))
