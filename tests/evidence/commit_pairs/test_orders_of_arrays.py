"""Two processes are told which of their arrays to lay into the same memory."""

import os
from functools import partial

import pytest
from two_processes import memory_of

from pytest_bandwidth.devices.shared_arrays import HUGE_PAGE_BYTES, SharedArrays
from pytest_bandwidth.evidence.commit_pairs import alternate
from pytest_bandwidth.evidence.commit_pairs.alternate import Order, order_of, orders

SMALL, LARGE = [100_000, 0, 102_400], [5 << 20, 0, 6 << 20]


memory_of_arrays = pytest.fixture(memory_of(0))


@pytest.fixture
def memory(tmp_path):
    with (tmp_path / "memory").open("w+b") as file:
        yield file.fileno()


GIVEN_UP = ("exchange", [], [])
NONE, ONE, OTHER = ([], []), ([0], []), ([], [0])


def given(memory, one, two, answers):
    """Return all orders, each for both, answered so, and what came of them."""
    found, asked, answers = [], orders(memory, one, two), iter(answers)
    try:
        found.append(asked.send(None))
        while True:
            found.append(asked.send(next(answers)))
    except StopIteration as end:
        works = [{order.work for order in both} for both in found]
        assert all(len(work) == 1 for work in works), "both do the same"
        places = [[[tuple(place) for place in order.places] for order in both] for both in found]
        return [(work.pop(), *both) for work, both in zip(works, places, strict=True)], end.value


def test_each_copies_half_and_both_compare_and_exchange_what_is_the_same(memory):
    at, next_at = LARGE[2], LARGE[2] + HUGE_PAGE_BYTES
    answers = [([1, 2], [0]), ([0, 1], [0, 2]), ([0], [0])]
    found = given(memory, [SMALL, LARGE, SMALL], [SMALL, LARGE, SMALL], answers)
    places = [(1, HUGE_PAGE_BYTES), (2, at + HUGE_PAGE_BYTES), (0, 0)]
    assert found == (
        [
            ("copy", [places[0], places[1]], [places[2]]),
            ("same", places, places),
            ("exchange", [places[2]], [places[2]]),
        ],
        False,
    )
    assert os.fstat(memory).st_size == next_at + HUGE_PAGE_BYTES


@pytest.mark.parametrize(("one", "two", "expected"), [(1, 1, True), (2, 2, True), (1, 2, False), (2, 1, False)])
def test_the_end_tells_whether_all_arrays_of_both_were_exchanged(memory, one, two, expected):
    numbers = [*range(min(one, two))]
    _, all_exchanged = given(memory, [SMALL] * one, [SMALL] * two, [(numbers, numbers)] * 3)
    assert all_exchanged == expected


def test_what_one_could_not_copy_is_left_out(memory):
    found, all_exchanged = given(memory, [SMALL, SMALL], [SMALL, SMALL], [([], [1]), ([1], [1]), ([1], [1])])
    assert not all_exchanged
    assert found[1] == ("same", [(1, HUGE_PAGE_BYTES)], [(1, HUGE_PAGE_BYTES)])


def test_another_measurement_has_room_of_its_own(memory):
    given(memory, [SMALL], [SMALL], [([0], [0])] * 3)
    found, _ = given(memory, [SMALL], [SMALL], [([0], [0])] * 3)
    assert found[1] == ("same", [(0, HUGE_PAGE_BYTES)], [(0, HUGE_PAGE_BYTES)])


def test_arrays_meet_others_of_their_size_wherever_they_come(memory):
    found, _ = given(memory, [SMALL, LARGE], [LARGE, SMALL, SMALL], [([0, 1], [0, 1])] * 3)
    assert found == [
        ("copy", [(1, HUGE_PAGE_BYTES)], [(1, 0)]),
        ("same", [(1, HUGE_PAGE_BYTES), (0, 0)], [(0, HUGE_PAGE_BYTES), (1, 0)]),
        ("exchange", [(1, HUGE_PAGE_BYTES), (0, 0)], [(0, HUGE_PAGE_BYTES), (1, 0)]),
    ]


@pytest.mark.parametrize("two", [[], [LARGE]])
def test_nothing_is_ordered_where_no_array_is_alike(memory, two):
    assert given(memory, [SMALL], two, []) == ([], False)


def test_nothing_is_ordered_where_there_is_no_room():
    with open(os.devnull) as no_memory:
        assert given(no_memory.fileno(), [SMALL], [SMALL], []) == ([], False)


@pytest.mark.parametrize(("free", "ordered"), [(4 * SMALL[2] - 1, False), (4 * SMALL[2], True), (None, True)])
def test_nothing_is_ordered_where_memory_is_short(memory, monkeypatch, free, ordered):
    monkeypatch.setattr(alternate, "available_bytes", lambda: free)
    found, _ = given(memory, [SMALL], [SMALL], [([0], [0])] * 3)
    assert bool(found) == ordered


@pytest.mark.parametrize(("steps", "left"), [(1, NONE), *((n, left) for n in (2, 3) for left in (NONE, ONE, OTHER))])
def test_both_give_up_what_one_could_not_do(memory, steps, left):
    found, all_exchanged = given(memory, [SMALL], [SMALL], [([0], [0])] * (steps - 1) + [left] * 2)
    assert not all_exchanged
    assert len(found) == steps + 1
    assert found[-1] == GIVEN_UP


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
    for work, expected in (("copy", [[0], [1]]), ("same", [[0], [0]]), ("exchange", [[0], [0]])):
        both = asked.send(done)
        assert [order.work for order in both] == [work] * 2
        done = [
            order_of(order.text()).by(arrays, partial(run, side))
            for side, (order, arrays) in enumerate(zip(both, (one, two), strict=True))
        ]
        assert done == expected
    assert runs == [0, 1]
    same[0][0] = added_to[0][0] = 8
    assert same[1][0] == 8
    assert added_to[1][0] == 1


@pytest.mark.parametrize("line", ["go", "stop", ""])
def test_other_lines_are_no_orders(line):
    assert order_of(line) is None
    assert order_of(Order("copy", [(1, 2)]).text()) == Order("copy", [[1, 2]])
