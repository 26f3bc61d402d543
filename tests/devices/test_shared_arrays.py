"""Two processes in turn exchange pages of arrays that hold the same for shared ones, and get theirs back."""

import gc
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from pytest_bandwidth.devices import shared_arrays
from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array
from pytest_bandwidth.devices.shared_arrays import HUGE_FROM_BYTES, LEAST_BYTES, SharedArrays, shared_memory

SMALL, HUGE = LEAST_BYTES + 100, HUGE_FROM_BYTES + 12345
ROOM = 1 << 24

OTHER = """
import sys
from pytest_bandwidth.devices.shared_arrays import SharedArrays

arrays = SharedArrays(int(sys.argv[1]))
array = arrays.allocate(int(sys.argv[2]))
array[:] = 5
arrays.told()
print(arrays.same([(0, 0)]), flush=True)
arrays.exchange([0])
array[:] = 9
arrays.restore()
print(array.max(), flush=True)
"""


@pytest.fixture
def memory():
    with shared_memory() as descriptor:
        if descriptor is None:
            pytest.skip("this system has no memory without a file, several NUMA nodes, or huge pages of another size")
        os.ftruncate(descriptor, 4 * ROOM)
        yield descriptor


def both_of(memory):
    return SharedArrays(memory), SharedArrays(memory)


def exchanged(one, two, places):
    """Have both go through all steps; return the numbers of what was exchanged."""
    assert [*one.told()] == [*two.told()]
    copied = one.copy(places)
    same = two.same([place for place in places if place[0] in copied])
    one.exchange(same)
    two.exchange(same)
    return same


def addresses_of(*arrays):
    return [array.ctypes.data for array in arrays]


@pytest.mark.parametrize("size", [SMALL, HUGE])
def test_what_holds_the_same_lies_in_the_same_memory_until_it_is_restored(memory, size):
    one, two = both_of(memory)
    a, b = one.allocate(size), two.allocate(size)
    a[:] = b[:] = 3
    before = addresses_of(a, b)
    assert exchanged(one, two, [(0, 0)]) == [0]
    assert a.min() == b.min() == 3
    a[-1] = 7
    assert b[-1] == 7
    one.restore()
    assert (a == 3).all(), "its own, as it was"
    assert b[-1] == 7
    two.restore()
    assert (b == 3).all()
    assert addresses_of(a, b) == before
    a[:] = 1
    assert (b == 3).all()


@pytest.mark.parametrize("size", [SMALL, HUGE])
@pytest.mark.parametrize("at", [0, -1])
def test_what_differs_stays_each_processs_own(memory, size, at):
    one, two = both_of(memory)
    same_a, a = one.allocate(size), one.allocate(size)
    same_b, b = two.allocate(size), two.allocate(size)
    b[at] = 1
    assert exchanged(one, two, [(0, 0), (1, ROOM)]) == [0]
    a[:] = 4
    same_a[:] = 5
    assert b.sum() == 1
    assert (same_b == 5).all()


def test_they_are_exchanged_again_for_another_measurement(memory):
    one, two = both_of(memory)
    a, b = one.allocate(HUGE), two.allocate(HUGE)
    for number in range(3):
        a[:] = b[:] = number
        assert exchanged(one, two, [(0, 0)]) == [0]
        a[:] = 100
        assert (b == 100).all()
        one.restore()
        two.restore()
        assert (a == number).all()
        assert (b == number).all()


def test_told_are_those_in_use_and_each_begins_elsewhere_in_its_pages(memory):
    arrays = SharedArrays(memory)
    kept = [arrays.allocate(HUGE) for _ in range(3)]
    del kept[1]
    gc.collect()
    told = arrays.told()
    assert [size for size, _, _ in told] == [HUGE, HUGE]
    assert len({skew for _, skew, _ in told}) == 2
    assert all(array.ctypes.data % 64 == 0 for array in kept)


def test_an_array_that_is_given_up_meanwhile_is_restored_all_the_same(memory):
    one, two = both_of(memory)
    a, b = one.allocate(HUGE), two.allocate(HUGE)
    a[:] = b[:] = 2
    assert exchanged(one, two, [(0, 0)]) == [0]
    del a
    gc.collect()
    again = one.allocate(HUGE)
    again[:] = 4
    assert (b == 2).all()
    one.restore()
    gc.collect()
    assert (again == 4).all()
    assert len(one.told()) == 1


def test_another_process_compares_and_writes_into_the_same_memory(memory):
    one = SharedArrays(memory)
    array = one.allocate(HUGE)
    array[:] = 5
    one.told()
    assert one.copy([(0, 0)]) == [0]
    one.exchange([0])
    command = [sys.executable, "-c", OTHER, str(memory), str(HUGE)]
    done = subprocess.run(command, pass_fds=(memory,), capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == ["[0]", "5"]
    assert (array == 9).all()
    one.restore()
    assert (array == 5).all()


@pytest.mark.parametrize("size", [0, LEAST_BYTES - 1, shared_arrays.MOST_BYTES + 1])
def test_smaller_and_larger_arrays_are_made_elsewhere(memory, size):
    arrays = SharedArrays(memory)
    assert arrays.allocate(size) is None
    assert arrays.told() == []


def test_more_arrays_than_that_are_made_elsewhere(memory, monkeypatch):
    monkeypatch.setattr(shared_arrays, "MOST_ARRAYS", 1)
    arrays = SharedArrays(memory)
    kept = arrays.allocate(SMALL)
    assert arrays.allocate(SMALL) is None
    del kept
    assert arrays.allocate(SMALL) is not None


def test_nothing_is_copied_where_memory_is_short(memory, monkeypatch):
    arrays = SharedArrays(memory)
    kept = arrays.allocate(SMALL)
    arrays.told()
    monkeypatch.setattr(shared_arrays, "available_bytes", lambda: kept.size)
    assert arrays.copy([(0, 0)]) == []


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
    arrays.told()
    system = System("madvise")
    monkeypatch.setattr(shared_arrays, "_system", lambda: system)
    assert arrays.copy([(0, 0), (1, ROOM)]) == [0]
    arrays.exchange([0])
    arrays.restore()
    assert (small == 6).all()
    assert (huge == 6).all()


def test_pages_that_cannot_be_moved_are_an_error(memory, monkeypatch):
    arrays = SharedArrays(memory)
    small = arrays.allocate(SMALL)
    arrays.told()
    assert arrays.copy([(0, 0)]) == [0]
    system = System("mremap")
    with monkeypatch.context() as patched:
        patched.setattr(shared_arrays, "_system", lambda: system)
        with pytest.raises(OSError, match="pages of an array cannot be moved"):
            arrays.exchange([0])
    small[:] = 1


def test_a_test_that_holds_nothing_gives_everything_back_to_the_system(memory):
    maps = Path("/proc/self/maps")
    arrays = SharedArrays(memory)
    arrays.allocate(HUGE)
    gc.collect()
    before = len(maps.read_text(encoding="ascii").splitlines())
    for _ in range(20):
        array = arrays.allocate(HUGE)
        arrays.told()
        assert arrays.copy([(0, 0)]) == [0]
        arrays.exchange([0])
        arrays.restore()
        del array
    gc.collect()
    assert len(maps.read_text(encoding="ascii").splitlines()) <= before + 2


def test_without_huge_pages_of_that_size_or_on_several_nodes_there_is_no_memory(tmp_path, monkeypatch):
    pages = tmp_path / "hpage_pmd_size"
    monkeypatch.setattr(shared_arrays, "_HUGE_PAGE_FILE", pages)
    monkeypatch.setattr(shared_arrays, "_NODES", tmp_path)
    with shared_memory() as descriptor:
        assert descriptor is None, "the system tells no size"
    pages.write_text("536870912\n", encoding="ascii")
    with shared_memory() as descriptor:
        assert descriptor is None
    pages.write_text("2097152\n", encoding="ascii")
    for node in ("node0", "node1"):
        (tmp_path / node).mkdir()
    with shared_memory() as descriptor:
        assert descriptor is None


def test_a_system_that_gives_none_shares_none(monkeypatch):
    def refuses(*_):
        raise OSError("no such call")

    monkeypatch.setattr(os, "memfd_create", refuses)
    with shared_memory() as descriptor:
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
