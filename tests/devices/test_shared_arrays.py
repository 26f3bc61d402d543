"""Two processes that take turns lay their arrays into the same memory."""

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor, TimeoutError

import numpy as np
import pytest

from pytest_bandwidth.devices import shared_arrays
from pytest_bandwidth.devices.numpy_arrays import RandomSource, empty_array
from pytest_bandwidth.devices.shared_arrays import SharedArrays, shared_memory

pytestmark = pytest.mark.skipif(not hasattr(os, "memfd_create"), reason="this system has no memory without a file")

OTHER = """
import sys
from pytest_bandwidth.devices.shared_arrays import SharedArrays

arrays = SharedArrays(int(sys.argv[1]))
array = arrays.allocate(1000)
print(arrays.seed, array[0], flush=True)
array[:] = 9
"""


@pytest.fixture
def memory():
    with shared_memory() as descriptor:
        assert descriptor is not None
        yield descriptor


def both_of(memory):
    return SharedArrays(memory), SharedArrays(memory)


def test_arrays_of_one_number_and_size_lie_in_the_same_memory(memory):
    one, two = both_of(memory)
    first = [one.allocate(size) for size in (1000, 1 << 20)]
    one.release()
    second = [two.allocate(size) for size in (1000, 1 << 20)]
    for number, (a, b) in enumerate(zip(first, second, strict=True)):
        a[:] = number + 1
        assert (b == number + 1).all()
        assert a.ctypes.data % 64 == 0


def test_an_array_of_another_size_lies_apart_and_those_after_it_do_not(memory):
    one, two = both_of(memory)
    first = [one.allocate(size) for size in (1000, 1000)]
    one.release()
    second = [two.allocate(size) for size in (2000, 1000)]
    for array in first:
        array[:] = 1
    assert not second[0].any()
    assert second[1].all()


def test_another_process_has_them_and_the_same_seed(memory):
    one = SharedArrays(memory)
    array = one.allocate(1000)
    array[:] = 5
    one.release()
    command = [sys.executable, "-c", OTHER, str(memory)]
    done = subprocess.run(command, pass_fds=(memory,), capture_output=True, text=True, check=True, timeout=100)
    assert done.stdout.split() == [str(one.seed), "5"]
    assert (array == 9).all()


def test_one_waits_while_the_other_makes_and_fills_its_arrays(memory):
    one, two = both_of(memory)
    one.allocate(1000)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(two.allocate, 1000)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        one.release()
        assert waiting.result(100) is not None
        two.release()
        one.resume()
        waiting = pool.submit(two.resume)
        with pytest.raises(TimeoutError):
            waiting.result(0.2)
        one.release()
        waiting.result(100)


def test_who_shares_nothing_waits_for_nobody(memory):
    one, two = both_of(memory)
    one.hold()
    two.resume()
    two.release()


def test_a_process_that_ends_lets_the_other_go_on(memory):
    program = "import sys\nfrom pytest_bandwidth.devices.shared_arrays import SharedArrays\n"
    program += "SharedArrays(int(sys.argv[1])).hold()\n"
    command = [sys.executable, "-c", program, str(memory)]
    subprocess.run(command, pass_fds=(memory,), check=True, timeout=100)
    assert SharedArrays(memory).allocate(1000) is not None


@pytest.mark.parametrize("size", [0, shared_arrays.LARGEST_BYTES + 1])
def test_what_cannot_be_shared_is_the_processs_own(memory, size):
    one, two = both_of(memory)
    assert one.allocate(size) is None
    one.allocate(1000)[:] = 3
    one.release()
    assert two.allocate(size) is None
    assert (two.allocate(1000) == 3).all()


def test_more_arrays_than_that_are_the_processs_own(memory, monkeypatch):
    monkeypatch.setattr(shared_arrays, "MOST_ARRAYS", 1)
    arrays = SharedArrays(memory)
    assert arrays.allocate(1000) is not None
    assert arrays.allocate(1000) is None


def test_memory_that_the_arrays_took_goes_with_them():
    with shared_memory() as descriptor:
        arrays = SharedArrays(descriptor)
        array = arrays.allocate(1 << 20)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
    array[:] = 1  # what has it mapped keeps it


@pytest.mark.parametrize("lacks", ["memfd_create", "ftruncate"])
def test_a_system_that_gives_none_shares_none(monkeypatch, lacks):
    def refuses(*_):
        raise OSError("no such call")

    if lacks == "memfd_create":
        monkeypatch.delattr(os, "memfd_create")
    else:
        monkeypatch.setattr(os, "ftruncate", refuses)
    with shared_memory() as descriptor:
        assert descriptor is None


def test_both_fill_them_with_the_same_random_numbers(memory):
    one, two = both_of(memory)
    x = RandomSource(one.seed, one.allocate).array((300, 1000), "float32")
    before = x.copy()
    y = empty_array(1000, "float64", one.allocate)
    y[:] = 7
    one.release()
    other = RandomSource(two.seed, two.allocate).array((300, 1000), "float32")
    assert np.array_equal(other, before)
    assert np.array_equal(x, before)
    assert (empty_array(1000, "float64", two.allocate) == 7).all()
