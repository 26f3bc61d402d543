"""Two processes are told which of their arrays to lay into the same memory."""

import os

import pytest

from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES, SharedArrays, shared_memory
from pytest_bandwidth.session.fresh.sharing import Order, order_of, orders

SMALL, LARGE = [100_000, 0, 102_400], [5 << 20, 0, 6 << 20]


@pytest.fixture
def memory():
    with shared_memory() as descriptor:
        if descriptor is None:
            pytest.skip("this system has no memory without a file, several NUMA nodes, or huge pages of another size")
        yield descriptor


def given(memory, one, two, answers):
    """Return all orders, answered so."""
    found, asked, answers = [], orders(memory, one, two), iter(answers)
    try:
        found.append(asked.send(None))
        while True:
            found.append(asked.send(next(answers)))
    except StopIteration:
        return [(side, order.work, [tuple(place) for place in order.places]) for side, order in found]


def test_one_copies_the_other_compares_and_both_exchange_what_is_the_same(memory):
    at = LARGE[2]
    found = given(memory, [LARGE, SMALL, SMALL], [LARGE, SMALL, SMALL], [[0, 1], [0], [0], [0]])
    assert found == [
        (0, "copy", [(0, 0), (1, at), (2, at + HUGE_PAGE_BYTES)]),
        (1, "same", [(0, 0), (1, at)]),
        (0, "exchange", [(0, 0)]),
        (1, "exchange", [(0, 0)]),
    ]
    assert os.fstat(memory).st_size == at + 2 * HUGE_PAGE_BYTES


def test_arrays_meet_others_of_their_size_wherever_they_come(memory):
    found = given(memory, [SMALL, LARGE], [LARGE, SMALL, SMALL], [[0, 1], [0, 1], [0, 1], [0, 1]])
    assert found[0] == (0, "copy", [(0, 0), (1, HUGE_PAGE_BYTES)])
    assert found[1] == (1, "same", [(1, 0), (0, HUGE_PAGE_BYTES)])
    assert found[2][2] == [(0, 0), (1, HUGE_PAGE_BYTES)]
    assert found[3][2] == [(1, 0), (0, HUGE_PAGE_BYTES)]


@pytest.mark.parametrize("two", [[], [LARGE]])
def test_nothing_is_ordered_where_no_array_is_alike(memory, two):
    assert given(memory, [SMALL], two, []) == []


def test_nothing_is_ordered_where_there_is_no_room():
    with open(os.devnull) as no_memory:
        assert given(no_memory.fileno(), [SMALL], [SMALL], []) == []


def test_both_give_up_what_was_not_copied(memory):
    found = given(memory, [SMALL], [SMALL], [[], [], [], []])
    assert [(side, work, places) for side, work, places in found][1:] == [
        (1, "same", []),
        (0, "exchange", []),
        (1, "exchange", []),
    ]


def test_orders_come_as_lines_and_are_carried_out(memory):
    one, two = SharedArrays(memory), SharedArrays(memory)
    a, b = one.allocate(SMALL[0]), two.allocate(SMALL[0])
    a[:] = b[:] = 3
    sides = (one, two)
    asked = orders(memory, one.told(), two.told())
    done = None
    for work in ("copy", "same", "exchange", "exchange"):
        side, order = asked.send(done)
        assert order.work == work
        done = order_of(order.text()).by(sides[side])
        assert done == [0]
    a[0] = 8
    assert b[0] == 8


@pytest.mark.parametrize("line", ["go", "stop", ""])
def test_other_lines_are_no_orders(line):
    assert order_of(line) is None
    assert order_of(Order("copy", [(1, 2)]).text()) == Order("copy", [[1, 2]])
