"""Two processes in turn exchange pages of arrays that hold the same for shared ones, and get theirs back."""

import gc
import os
import subprocess
import sys
from functools import partial
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from two_processes import memory_of

from pytest_bandwidth.devices import shared_arrays
from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array
from pytest_bandwidth.devices.shared_arrays import HUGE_FROM_BYTES, SharedArrays, shared_memory

SMALL, HUGE = 65_636, HUGE_FROM_BYTES + 12345
ROOM = 1 << 24
memory = pytest.fixture(memory_of(4 * ROOM))


def printed_by(program, memory, *arguments):
    """What a process of its own prints that inherits the memory."""
    command = [sys.executable, "-c", program, str(memory), *map(str, arguments)]
    return subprocess.run(command, pass_fds=(memory,), capture_output=True, text=True, check=True, timeout=100).stdout


def both_of(memory):
    return SharedArrays(memory), SharedArrays(memory)


def exchanged(one, two, places):
    """Have both go through all steps; return the numbers of what was exchanged."""
    assert [*one.listed()] == [*two.listed()]
    for step in (one.copy, *(partial(side.same, run=lambda: None) for side in (one, two))):
        numbers = step(places)
        places = [place for place in places if place[0] in numbers]
    assert one.exchange(numbers) == two.exchange(numbers) == numbers
    return numbers


def test_all_is_told_where_every_array_that_the_workload_is_given_can_be_exchanged(memory):
    arrays = SharedArrays(memory)
    one, two = arrays.allocate(SMALL), arrays.allocate(SMALL)
    numbers = (None, 3, np.float32(2.5))
    for touched, expected in (
        ([one, two], True),
        ([one[16:], *numbers], True),
        ([one, np.empty(4)], False),
        ([one, "1 GB"], False),
        ([*numbers], False),
        ([], False),
    ):
        arrays.listed(touched)
        assert arrays.lists_all(touched) == expected


@pytest.mark.parametrize("size", [1, SMALL, HUGE])
def test_what_holds_the_same_lies_in_the_same_memory_until_it_is_restored(memory, size):
    one, two = both_of(memory)
    a, b = one.allocate(size), two.allocate(size)
    a[:] = b[:] = 3
    before = a.ctypes.data, b.ctypes.data
    for _ in range(2):
        assert exchanged(one, two, [(0, 0)]) == [0]
        assert a.min() == b.min() == 3
        a[-1] = 5
        assert b[-1] == 5
        one.restore()
        two.restore()
    assert exchanged(one, two, [(0, 0)]) == [0]
    a[-1] = 7
    assert b[-1] == 7
    one.restore()
    assert (a == 3).all(), "its own, as it was"
    assert b[-1] == 7
    two.restore()
    assert (b == 3).all()
    assert (a.ctypes.data, b.ctypes.data) == before
    a[:] = 1
    assert (b == 3).all()


def test_told_are_those_that_the_workload_is_given(memory):
    arrays = SharedArrays(memory)
    kept = [arrays.allocate(size) for size in (SMALL, HUGE, 2 * HUGE)]
    assert [size for size, _, _ in arrays.listed([kept[1][100:], 3.0, np.zeros(10)])] == [HUGE]
    assert [size for size, _, _ in arrays.listed([3.0])] == [SMALL, HUGE, 2 * HUGE], "it names no array"
    assert arrays.listed([np.zeros(10)]) == []
    assert all(array.ctypes.data % 64 == 0 for array in kept)
    del kept[1]
    gc.collect()
    assert [size for size, _, _ in arrays.listed()] == [SMALL, 2 * HUGE], "those in use"


def test_where_in_their_pages_arrays_begin_is_the_same_for_both_and_changes_from_pair_to_pair(memory):
    def skews(seed, sizes):
        arrays = SharedArrays(memory, seed)
        kept = [arrays.allocate(size) for size in sizes]
        assert len(kept) == len(sizes)
        return [skew for _, skew, _ in arrays.listed()]

    assert skews(1, [HUGE, HUGE, SMALL, SMALL]) == skews(1, [HUGE, HUGE, SMALL, SMALL])
    one, two, small, other_small = skews(1, [HUGE, HUGE, SMALL, SMALL])
    assert len({one, two, *skews(2, [HUGE, HUGE])}) > 2
    assert small == other_small
    assert skews(1, [2 * HUGE, HUGE])[1] == one, "one more of another size makes no difference"


def test_an_array_that_is_given_up_meanwhile_is_restored_all_the_same(memory):
    one, two = both_of(memory)
    a, b = one.allocate(HUGE), two.allocate(HUGE)
    a[:] = b[:] = 2
    assert exchanged(one, two, [(0, 0)]) == [0]
    address = a.ctypes.data
    del a
    gc.collect()
    again = one.allocate(HUGE)
    assert again.ctypes.data != address
    again[:] = 4
    assert (b == 2).all()
    one.restore()
    gc.collect()
    assert (again == 4).all()
    assert len(one.listed()) == 1


def test_what_is_empty_or_larger_and_more_arrays_than_that_are_made_elsewhere(memory, monkeypatch):
    monkeypatch.setattr(shared_arrays, "MOST_ARRAYS", 1)
    arrays = SharedArrays(memory)
    assert arrays.allocate(0) is arrays.allocate(shared_arrays.MOST_BYTES + 1) is None
    assert arrays.listed() == []
    kept = arrays.allocate(SMALL)
    assert arrays.allocate(SMALL) is None
    del kept
    assert arrays.allocate(SMALL) is not None


class System:
    """The system, of which one call fails."""

    def __init__(self, refuses):
        self._refuses, self._of_this = refuses, shared_arrays._system()

    def __getattr__(self, name):
        return (lambda *_: -1) if name == self._refuses else getattr(self._of_this, name)


def test_large_arrays_stay_each_processs_own_where_shared_memory_has_no_huge_pages(memory, monkeypatch):
    arrays = SharedArrays(memory)
    small, huge = arrays.allocate(SMALL), arrays.allocate(HUGE)
    small[:] = huge[:] = 6
    arrays.listed()
    system = System("madvise")
    monkeypatch.setattr(shared_arrays, "_system", lambda: system)
    assert arrays.copy([(0, 0), (1, ROOM)]) == [0]
    assert arrays.exchange([0]) == [0]
    arrays.restore()
    assert (small == 6).all()
    assert (huge == 6).all()


def test_where_pages_cannot_be_moved_each_has_its_own(memory, monkeypatch):
    arrays = SharedArrays(memory)
    both = [arrays.allocate(SMALL) for _ in range(2)]
    for array in both:
        array[:] = 1
    arrays.listed()
    assert arrays.copy([(0, 0), (1, ROOM)]) == [0, 1]
    moves, move = count(1), shared_arrays._system().mremap
    system = System("none")
    system.mremap = lambda *given: -1 if next(moves) == 4 else move(*given)  # its shared pages, after its own ones
    with monkeypatch.context() as patched:
        patched.setattr(shared_arrays, "_system", lambda: system)
        assert arrays.exchange([0, 1]) == []
    other = SharedArrays(memory)
    beside = other.allocate(SMALL)
    beside[:] = 1
    other.listed()
    assert other.exchange(other.copy([(0, 0)])) == [0]
    beside[:] = 9
    assert [array.max() for array in both] == [1, 1]


@pytest.mark.parametrize("change", [lambda array: array.__iadd__(1), lambda array: array.__setitem__(-1, 5)])
def test_what_a_run_changes_is_not_the_same(memory, change):
    one, two = both_of(memory)
    a, b = one.allocate(HUGE), two.allocate(HUGE)
    one.listed()
    two.listed()
    assert one.copy([(0, 0)]) == [0]
    assert one.same([(0, 0)], lambda: change(a)) == []
    b[:] = 1  # as if run so often that it becomes the copy's
    assert two.same([(0, 0)], lambda: b.__setitem__(slice(None), 0)) == []


# Apart, since libraries that other tests have loaded warn of a fork.
FORKS = """
import os, subprocess, sys
from pytest_bandwidth.devices.shared_arrays import SharedArrays

def forks():
    child = os.fork()
    if child == 0:
        os._exit(0)
    os.waitpid(child, 0)

arrays = SharedArrays(int(sys.argv[1]))
array = arrays.allocate(100_000)
arrays.listed()
print(arrays.copy([(0, 0)]), arrays.same([(0, 0)], forks))
print(arrays.same([(0, 0)], lambda: subprocess.run([sys.executable, "-c", ""], check=True)))
"""


def test_a_workload_that_forks_shares_nothing(memory):
    assert printed_by(FORKS, memory).splitlines() == ["[0] []", "[0]"]


def test_what_both_need_no_more_takes_no_memory(memory):
    def held():
        return 512 * os.fstat(memory).st_blocks

    one, two = both_of(memory)
    a, b, unlike = one.allocate(HUGE), two.allocate(HUGE), [side.allocate(SMALL) for side in (one, two)]
    unlike[0][:] = 1
    a[:] = b[:] = 3
    assert exchanged(one, two, [(0, 0), (1, ROOM)]) == [0]
    assert held() >= HUGE + SMALL
    one.restore(remove=True)
    two.restore(remove=True)
    assert held() == 0
    assert a.min() == b.min() == 3
    assert exchanged(one, two, [(0, 0)]) == [0]
    a[:] = 2
    assert one.exchange([]) == two.exchange([]) == []
    assert a.min() == b.min() == 3, "an order to exchange nothing gives all back"
    assert held() == 0


def system_with(folder, enabled="always [madvise] never", page="2097152", nodes=1):
    pages = folder / "sys/kernel/mm/transparent_hugepage"
    pages.mkdir(parents=True)
    (pages / "enabled").write_text(f"{enabled}\n", encoding="ascii")
    (pages / "hpage_pmd_size").write_text(f"{page}\n", encoding="ascii")
    for node in range(nodes):
        (folder / f"sys/devices/system/node/node{node}").mkdir(parents=True)
    return folder


@pytest.mark.skipif(sys.platform != "linux", reason="memory without a file is Linux's")
@pytest.mark.parametrize("enabled", ["always [madvise] never", "[always] madvise never"])
def test_arrays_get_huge_pages_on_one_node(tmp_path, enabled):
    with shared_memory(system_with(tmp_path, enabled)) as descriptor:
        assert os.fstat(descriptor).st_size == 0
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.parametrize(
    ("told", "numpy", "made"),
    [
        *((told, "1", 7) for told in ({"enabled": "always madvise [never]"}, {"page": "536870912"}, {"page": ""})),
        *(({"nodes": 2}, "1", 7), (None, "1", 7), ({}, "0", 7), ({}, "1", -1), ({}, "1", None)),
    ],
)
def test_without_huge_pages_of_one_node_or_the_systems_memory_nothing_is_shared(
    tmp_path, monkeypatch, told, numpy, made
):
    monkeypatch.setenv("NUMPY_MADVISE_HUGEPAGE", numpy)
    system = SimpleNamespace() if made is None else SimpleNamespace(memfd_create=lambda *_: made)
    monkeypatch.setattr(shared_arrays, "_system", lambda: system)
    with shared_memory(tmp_path if told is None else system_with(tmp_path, **told)) as descriptor:
        assert descriptor is None


def test_both_have_the_same_random_numbers_of_one_seed(memory):
    one, two = both_of(memory)
    x, y = (RandomSource(7, side.allocate).array((300, 1000), "float32") for side in (one, two))
    assert np.array_equal(x, y)
    z, other = (empty_array((300, 1000), "float64", side.allocate) for side in (one, two))
    z[:] = other[:] = 1
    assert exchanged(one, two, [(0, 0), (1, ROOM)]) == [0, 1]
    x[0] = 0
    assert not y[0].any()
