"""Arrays for measuring on the host."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from pytest_bandwidth.devices.numpy_arrays import (
    LEAST_CHECKED_BYTES,
    RANDOM_BLOCK_WORDS,
    RandomSource,
    empty_array,
    host_nbytes,
    resolve_dtype,
)
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError

MANTISSA_BITS = {"float16": 10, "float32": 23, "float64": 52}


@pytest.mark.parametrize("shape", [0, 7, (3, 5), (2, 0)])
@pytest.mark.parametrize("dtype", ["float16", "float64", "int8", "complex64", "bool"])
def test_arrays_have_shape_dtype_and_begin_on_a_line(shape, dtype):
    for array in (empty_array(shape, dtype), RandomSource().array(shape, dtype)):
        assert array.shape == ((shape,) if isinstance(shape, int) else shape)
        assert array.dtype == dtype
        assert array.ctypes.data % 64 == 0 or array.size == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "complex64"])
def test_random_floats_are_in_the_range_and_every_mantissa_bit_varies(dtype):
    x = RandomSource(3).array(100_000, dtype)
    x = x.view("float32") if dtype == "complex64" else x  # pairs of such
    assert (x >= 1).all()
    assert (x < 2).all()
    bits = x.view(f"u{x.itemsize}").astype(np.uint64)
    for bit in range(MANTISSA_BITS[x.dtype.name]):
        assert 0.48 < ((bits >> np.uint64(bit)) & np.uint64(1)).mean() < 0.52, bit


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "bool"])
def test_random_integers_use_all_their_bits(dtype):
    x = RandomSource(3).array(100_000, dtype)
    assert len(np.unique(x)) > min(2 ** (8 * x.itemsize), 100_000) * 0.9 or dtype == "bool"
    assert 0.4 < (x > np.median([np.iinfo(dtype).min, np.iinfo(dtype).max]) if dtype != "bool" else x).mean() < 0.6
    assert dtype != "bool" or set(x.view(np.uint8).tolist()) == {0, 1}
    assert dtype != "int8" or (x.min(), x.max()) == (-128, 127)


def test_random_data_does_not_repeat_from_block_to_block_or_call_to_call():
    source = RandomSource(3)
    words = source.array(3 * RANDOM_BLOCK_WORDS + 11, "uint64")
    assert len(np.unique(words)) == words.size
    assert not np.isin(source.array(1000, "uint64"), words).any()


@pytest.mark.parametrize("bad", [-1, (3, -1), 1.5, "12", (2.0,), True, (True,), ("3",)])
def test_a_shape_that_has_no_meaning(bad):
    with pytest.raises(UsageError, match="not negative"):
        empty_array(bad, "float32")


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        *((bad, "is not a dtype, expected one such as") for bad in ("float33", "no-such", object())),
        *((bad, "no data for dtype") for bad in ("object", "U4", "M8[s]")),
    ],
)
def test_a_dtype_without_random_numbers(bad, said):
    with pytest.raises(UsageError, match=said):
        RandomSource().array(4, bad)


def no_memory(_size):
    raise MemoryError


@pytest.mark.parametrize(
    ("size", "allocate", "said"),
    [
        (10**15, None, r"needs 1000 TB.*use a smaller size"),
        (12, no_memory, r"an array of \(12,\) uint8 needs 12 B, more than the host allows"),
    ],
)
def test_more_than_there_is(size, allocate, said):
    with pytest.raises(OutOfMemory, match=said):
        empty_array(size, "uint8", allocate)


def test_free_memory_is_read_for_large_arrays_alone(monkeypatch):
    monkeypatch.setattr("pytest_bandwidth.devices.numpy_arrays.available_bytes", lambda: 1000)
    assert empty_array(LEAST_CHECKED_BYTES - 1, "int8").size == LEAST_CHECKED_BYTES - 1
    with pytest.raises(OutOfMemory, match="1 kB are free"):
        empty_array(LEAST_CHECKED_BYTES, "int8")


class Foreign:
    """Another library's array, as far as nbytes looks."""

    nbytes = 48

    def __init__(self, kind):
        self.kind = kind

    def __dlpack_device__(self):
        return self.kind, 0


class Interface:
    def __init__(self):
        self.array = np.ones((3, 4), np.float32)

    @property
    def __array_interface__(self):
        return self.array.__array_interface__


@pytest.mark.parametrize(
    ("array", "nbytes"),
    [
        (np.ones((3, 4), np.float32)[::2], 32),
        (Foreign(1), 48),
        (Interface(), 48),
        (np.broadcast_to(np.float32(1), 1 << 20), 4),
        (np.broadcast_to(np.zeros((4, 1), np.float32), (4, 1000)), 16),
        (np.zeros((4, 6), np.float32)[::2, ::3], 16),
        (np.zeros((0, 3)), 0),
        (np.zeros(()), 8),
    ],
)
def test_bytes_of_an_array_are_those_that_lie_in_memory(array, nbytes):
    assert host_nbytes(array) == nbytes


@pytest.mark.parametrize(
    ("other", "said"),
    [
        *((other, "not an array in host memory") for other in (3.5, [1, 2], "x", b"bytes", None)),
        (Foreign(2), "not in host memory"),
    ],
)
def test_bytes_of_what_the_host_does_not_hold_are_refused(other, said):
    with pytest.raises(UsageError, match=said):
        host_nbytes(other)


def test_bfloat16_and_without_its_package_what_to_install(monkeypatch):
    pytest.importorskip("ml_dtypes")
    x = RandomSource(3).array(1 << 14, "bfloat16").astype(np.float32)
    assert x.min() == 1
    assert 1.98 < x.max() < 2
    assert len(np.unique(x)) == 128  # 7 mantissa bits
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(UsageError, match="pip install ml_dtypes"):
        resolve_dtype("bfloat16")
