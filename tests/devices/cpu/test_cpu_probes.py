"""The host's probes: mix, size, and that they do what they say."""

import numpy as np
import pytest

from pytest_bandwidth.devices.cpu.probes import (
    ELEMENT,
    LARGEST_BYTES,
    SMALLEST_BYTES,
    HostProbes,
    buffer_reader,
    numba_operations,
    numba_threads,
    numpy_operations,
)
from pytest_bandwidth.domain.traffic import Traffic


def recorder():
    """Operations that do nothing, and the list of their calls."""
    calls = []
    names = ("read", "write", "copy", "add")
    return {name: lambda *arrays, name=name: calls.append((name, *arrays)) for name in names}, calls


def probed(traffic, *inputs):
    """A probe, and the arrays that it is called with."""
    operations, calls = recorder()
    probe = HostProbes("NumPy", operations).probe(traffic, inputs)
    calls.clear()
    probe.call()
    ((name, *arrays),) = calls
    assert probe.name.partition(",")[0] == f"NumPy {name}"
    return probe, arrays


@pytest.mark.parametrize(("read", "written"), [(1 << 20, 0), (2 << 20, 1 << 20), (1 << 20, 1 << 20), (0, 1 << 20)])
def test_a_probe_moves_what_it_says_on_arrays_that_do_not_overlap(read, written):
    probe, arrays = probed(Traffic(read, written))
    assert sum(array.nbytes for array in arrays) == probe.bytes_moved == read + written
    assert len({array.ctypes.data for array in arrays}) == len(arrays)
    assert not any(np.shares_memory(x, y) for x in arrays for y in arrays if x is not y)
    assert len({array.base.ctypes.data for array in arrays}) == len(arrays), "allocated one by one"


MIB = 1 << 20


def test_a_probe_reads_the_largest_and_is_a_little_smaller_where_the_workload_moves_more_than_its_array():
    x = np.ones(MIB // 4, np.float32)
    probe, (read,) = probed(Traffic(MIB, 4096), np.ones(64), x)
    assert read.ctypes.data == x.ctypes.data
    assert probe.bytes_moved == MIB


READ_ONLY = np.ones(MIB // 4, np.float32)
READ_ONLY.flags.writeable = False


@pytest.mark.parametrize(
    "x",
    [
        np.ones(MIB, np.uint8),
        np.zeros(MIB // 16, [("a", np.float64), ("b", np.int64)]),
        np.ma.ones((512, 512), np.float32),
        READ_ONLY,
    ],
    ids=["bytes", "structured", "masked", "read-only"],
)
def test_any_array_of_plain_numbers_can_be_read(x):
    _, (read,) = probed(Traffic(MIB, 0), x)
    assert read.ctypes.data == x.ctypes.data
    assert read.dtype == ELEMENT
    assert read.ndim == 1


@pytest.mark.parametrize(
    "inputs",
    [
        (),
        (MIB,),
        (np.ones(MIB // 8 // 2),),
        (np.ones((2, MIB // 8))[:, ::2],),
        (np.broadcast_to(np.float32(1), MIB // 4),),
        (np.full(MIB // 8, None),),
        (np.zeros(MIB + 1, np.uint8)[1:],),
        ([1.0] * 8,),
    ],
    ids=["none", "bytes", "small", "strided", "broadcast", "objects", "odd address", "list"],
)
def test_without_an_array_that_it_can_read_a_probe_reads_its_own(inputs):
    probe, (read,) = probed(Traffic(MIB, 0), *inputs)
    assert probe.name == "NumPy read"
    assert probe.bytes_moved == MIB
    assert not any(np.shares_memory(read, x) for x in inputs if isinstance(x, np.ndarray))


def test_memory_that_is_declared_twice_is_not_read_twice():
    x = np.ones(MIB // 8)
    for inputs in ((x, x), (x, x[1:]), (x, x.reshape(2, -1))):
        _, (_, *read) = probed(Traffic(2 * MIB, MIB), *inputs)
        assert not any(np.shares_memory(x, array) for array in read)


def test_sizes_are_kept_within_reason(monkeypatch):
    probes = HostProbes("NumPy", recorder()[0])
    assert probes.probe(Traffic(1, 0)).bytes_moved == SMALLEST_BYTES
    # A gigabyte of zeros that takes no memory: the recorder only looks at its size.
    monkeypatch.setattr(
        "pytest_bandwidth.devices.cpu.probes.empty_array", lambda n, _: np.broadcast_to(ELEMENT.type(0), n)
    )
    assert probes.probe(Traffic(1 << 45, 0)).bytes_moved == LARGEST_BYTES


def test_arrays_are_touched_once_and_used_again():
    operations, calls = recorder()
    probes = HostProbes("NumPy", operations)
    # In the second, the first array serves, with one beside it.
    for traffic, touched in ((1 << 20, 0), 1), ((1 << 19, 1 << 19), 2), ((1 << 21, 0), 3), ((1 << 20, 0), 3):
        probes.probe(Traffic(*traffic))
        assert [name for name, _ in calls] == ["write"] * touched
    probes.release()
    probes.probe(Traffic(1 << 10, 0))
    assert len(calls) == 4


@pytest.mark.parametrize("threads", [None, numba_threads()])
def test_both_kinds_of_operations_do_the_same(threads):
    found = numpy_operations() if threads is None else numba_operations(threads)
    x, out = np.arange(1003, dtype=ELEMENT), np.zeros(1003, ELEMENT)
    found["write"](out)
    assert (out == 1).all()
    found["copy"](out, x)
    np.testing.assert_array_equal(out, x)
    found["add"](out, x, x)
    np.testing.assert_array_equal(out, 2 * x)
    found["read"](x)
    np.testing.assert_array_equal(x, np.arange(1003))


def test_the_buffer_that_makes_caches_cold_is_touched_and_read_from_end_to_end():
    operations, calls = recorder()
    buffer_reader(operations, 1 << 20)()
    seen = [(name, array.nbytes) for name, array in calls]
    assert seen == [("write", 1 << 20), ("read", 1 << 20)], "untouched pages are all the same page of zeros"
