"""Two processes are told which of their arrays to lay into the same memory."""

import os
from functools import partial

import pytest
from two_processes import memory_of

from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES, SharedArrays
from pytest_bandwidth.session.fresh.sharing import Order, order_of, orders

SMALL, LARGE = [100_000, 0, 102_400], [5 << 20, 0, 6 << 20]


memory_of_arrays = pytest.fixture(memory_of(0))


@pytest.fixture
def memory(tmp_path):
    with (tmp_path / "memory").open("w+b") as file:
        yield file.fileno()


def given(memory, one, two, answers):
    """Return all orders, answered so."""
    found, asked, answers = [], orders(memory, one, two), iter(answers)
    try:
        found.append(asked.send(None))
        while True:
            found.append(asked.send(next(answers)))
    except StopIteration:
        return [(side, order.work, [tuple(place) for place in order.places]) for side, order in found]


def test_one_copies_both_compare_and_exchange_what_is_the_same(memory):
    at = LARGE[2]
    found = given(memory, [LARGE, SMALL, SMALL], [LARGE, SMALL, SMALL], [[0, 1], [0, 1], [0], [0], [0]])
    assert found == [
        (0, "copy", [(0, 0), (1, at), (2, at + HUGE_PAGE_BYTES)]),
        (0, "same", [(0, 0), (1, at)]),
        (1, "same", [(0, 0), (1, at)]),
        (0, "exchange", [(0, 0)]),
        (1, "exchange", [(0, 0)]),
    ]
    assert os.fstat(memory).st_size == at + 2 * HUGE_PAGE_BYTES


def test_another_measurement_has_room_of_its_own(memory):
    given(memory, [SMALL], [SMALL], [[0]] * 5)
    found = given(memory, [SMALL], [SMALL], [[0]] * 5)
    assert [places for _, _, places in found] == [[(0, HUGE_PAGE_BYTES)]] * 5


def test_arrays_meet_others_of_their_size_wherever_they_come(memory):
    found = given(memory, [SMALL, LARGE], [LARGE, SMALL, SMALL], [[0, 1]] * 5)
    assert found[0] == (0, "copy", [(0, 0), (1, HUGE_PAGE_BYTES)])
    assert found[1] == (0, "same", [(0, 0), (1, HUGE_PAGE_BYTES)])
    assert found[2] == (1, "same", [(1, 0), (0, HUGE_PAGE_BYTES)])
    assert found[3][2] == [(0, 0), (1, HUGE_PAGE_BYTES)]
    assert found[4][2] == [(1, 0), (0, HUGE_PAGE_BYTES)]


@pytest.mark.parametrize("two", [[], [LARGE]])
def test_nothing_is_ordered_where_no_array_is_alike(memory, two):
    assert given(memory, [SMALL], two, []) == []


def test_nothing_is_ordered_where_there_is_no_room():
    with open(os.devnull) as no_memory:
        assert given(no_memory.fileno(), [SMALL], [SMALL], []) == []


@pytest.mark.parametrize("steps", range(1, 6))
def test_both_give_up_what_one_could_not_do(memory, steps):
    answers = [[0]] * (steps - 1) + [[]] * 3
    found = given(memory, [SMALL], [SMALL], answers)
    assert len(found) == steps + 2
    assert found[-2:] == [(0, "exchange", []), (1, "exchange", [])]


def test_orders_come_as_lines_and_are_carried_out(memory_of_arrays):
    memory = memory_of_arrays
    one, two = SharedArrays(memory), SharedArrays(memory)
    same, added_to = ([side.allocate(SMALL[0]) for side in (one, two)] for _ in range(2))
    same[0][:] = same[1][:] = 3
    runs = []

    def run(side):
        runs.append(side)
        added_to[side][:] += 1

    asked = orders(memory, one.told(), two.told())
    done = None
    for work, expected in (("copy", [0, 1]), ("same", [0]), ("same", [0]), ("exchange", [0]), ("exchange", [0])):
        side, order = asked.send(done)
        assert order.work == work
        done = order_of(order.text()).by((one, two)[side], partial(run, side))
        assert done == expected
    assert runs == [0, 1]
    same[0][0] = added_to[0][0] = 8
    assert same[1][0] == 8
    assert added_to[1][0] == 1


@pytest.mark.parametrize("line", ["go", "stop", ""])
def test_other_lines_are_no_orders(line):
    assert order_of(line) is None
    assert order_of(Order("copy", [(1, 2)]).text()) == Order("copy", [[1, 2]])
