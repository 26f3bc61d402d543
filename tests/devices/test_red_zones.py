"""Writes beyond the ends of arrays are found on the host, and nothing else is."""

import ctypes
import gc
import weakref

import numpy as np
import pytest

from pytest_bandwidth.devices.base import Budget, Workload
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.red_zones import Block
from pytest_bandwidth.domain.traffic import Traffic

SHORT = Budget(min_samples=5, max_seconds=0.05, precision=0.5, tolerates_run_delay="all")
DTYPES = ["float32", "float64", "int8", "float16", "complex128", [("a", "i1"), ("b", "i2")]]


@pytest.fixture
def device():
    opened = CpuDevice()
    yield opened
    opened.release()


def made(device, how, shape, dtype="float32"):
    array = getattr(device, how)(shape, dtype)
    device.with_zones(array)
    return array


def poke(array, at, size=1):
    """Write bytes at a distance from the array's beginning. They are no zone's."""
    ctypes.memset(array.ctypes.data + at, 0, size)


def block_of(array):
    owner = array
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, Block) else None


# Each value of shape, type and distance on both sides, of an array that is there at the end or has ended.
@pytest.mark.parametrize("ends", [False, True])
@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize(
    ("shape", "dtype", "away"),
    [
        *((shape, dtype, 0) for shape, dtype in zip((7, (3, 5), 0, 100_003, 1, (2, 1)), DTYPES, strict=True)),
        *((shape, dtype, 32) for shape, dtype in zip((0, 100_003, 7, (3, 5), 0, 100_003), DTYPES, strict=True)),
        *((shape, dtype, 4096) for shape, dtype in zip((100_003, 0, (3, 5), 7, 100_003, 0), DTYPES, strict=True)),
    ],
    ids=str,
)
def test_an_element_written_on_either_side_is_found(device, shape, dtype, side, away, ends):
    item = np.dtype(dtype).itemsize
    away = away // item * item
    made(device, "empty", 5)
    array = made(device, "empty", shape, dtype)
    poke(array, array.nbytes + away if side == "after" else -away - item, item)
    if ends:
        del array
        gc.collect()
    said = device.written_out_of_bounds()
    shape = (shape,) if isinstance(shape, int) else shape
    bound = "end" if side == "after" else "beginning"
    elements = f"{away // item} element" + ("s" if away // item != 1 else "")
    of_array = (
        f"{item} byte{'s' if item > 1 else ''} changed {side} array 2 of the test, {shape} {np.dtype(dtype).name}"
    )
    assert said == f"a write out of bounds: {of_array}, {away} bytes ({elements}) from its {bound}"


@pytest.mark.parametrize(("dtype", "size"), [("int8", 13), ("float16", 3), ("bool", 1), ("float32", 5)])
def test_random_bytes_that_fill_up_a_word_are_outside(device, dtype, size):
    array = made(device, "random", size, dtype)
    poke(array, array.nbytes)
    assert "1 byte changed after array 1" in device.written_out_of_bounds()


@pytest.mark.parametrize("shape", [0, 1, 1000, (3, 0), (7, 11)])
@pytest.mark.parametrize("dtype", ["float32", "int8", "complex64"])
@pytest.mark.parametrize("how", ["random", "empty"])
def test_an_array_is_the_test_s_from_end_to_end(device, how, dtype, shape):
    array = made(device, how, shape, dtype)
    assert array.ctypes.data % 64 == 0
    assert array.flags.c_contiguous
    assert array.flags.writeable
    array[...] = 1
    again = array[::-1].copy()
    del array
    assert again.size == 0 or (again == 1).all()
    assert device.written_out_of_bounds() is None


@pytest.mark.parametrize("compute", [np.positive, np.negative, np.square, np.add, np.subtract])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "uint64"])
@pytest.mark.parametrize("after", [1, 2, 3, 4, 40])
def test_what_is_computed_from_another_zone_is_found(device, dtype, compute, after):
    x = made(device, "random", 64, dtype)
    for _ in range(after - 1):
        made(device, "empty", 1)
    y = made(device, "random", 64, dtype)
    # As a kernel of one element too many.
    further = [np.ctypeslib.as_array((ctypes.c_char * (65 * x.itemsize)).from_address(a.ctypes.data)) for a in (x, y)]
    one, other = (bytes_.view(dtype)[64:] for bytes_ in further)
    with np.errstate(all="ignore"):
        other[:] = compute(one, other) if compute.nin == 2 else compute(one)
    assert f"changed after array {after + 1} " in device.written_out_of_bounds()


def test_the_memory_of_an_array_is_free_when_it_ends(device):
    array = made(device, "random", 1000)
    block, view = weakref.ref(block_of(array)), array[3:]
    del array
    assert block() is not None
    del view
    assert block() is None


def test_some_places_are_named_and_all_are_counted(device):
    arrays = [made(device, "empty", 8) for _ in range(5)]
    for array in reversed(arrays):
        poke(array, array.nbytes)
    said = device.written_out_of_bounds()
    assert [f"array {number} of" in said for number in range(1, 6)] == [True, True, True, False, False]
    assert said.endswith("; and 2 more places")


def test_a_test_is_not_told_what_an_earlier_one_wrote(device):
    kept, ended = made(device, "empty", 8), made(device, "empty", 8)
    poke(kept, kept.nbytes)
    poke(ended, ended.nbytes)
    del ended
    device.end_test()
    del kept
    made(device, "empty", 8)
    assert device.written_out_of_bounds() is None


def test_what_is_made_in_a_measurement_has_no_zones(device):
    blocks = []
    work = Workload(lambda: blocks.append(block_of(made(device, "empty", 64))), Traffic(0, 256))
    device.measure(work, SHORT, lambda _: None)
    assert len(blocks) >= SHORT.min_samples
    assert set(blocks) == {None}
    assert block_of(made(device, "empty", 64)) is not None


def test_arrays_of_two_processes_have_no_zones(device):
    device.share(lambda _: None, 1)
    assert [block_of(made(device, how, 64)) for how in ("random", "empty")] == [None, None]
    assert device.written_out_of_bounds() is None
