"""Arrays for measuring on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.devices.numpy_arrays import (
    RANDOM_BLOCK_WORDS,
    RandomSource,
    allocation,
    checked_array_shape,
    empty_array,
    host_nbytes,
    masks_for,
    resolve_dtype,
    words_needed,
)
from pytest_bandwidth.domain.errors import OutOfMemory, UsageError

MANTISSA_BITS = {"float16": 10, "float32": 23, "float64": 52}


@pytest.mark.parametrize("shape", [0, 1, 7, (3, 5), (2, 0), 10_000])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint16", "int64", "complex64", "bool"])
def test_arrays_have_shape_dtype_and_begin_on_a_line(shape, dtype):
    for array in (empty_array(shape, dtype), RandomSource().array(shape, dtype)):
        assert array.shape == ((shape,) if isinstance(shape, int) else shape)
        assert array.dtype == dtype
        assert array.ctypes.data % 64 == 0 or array.size == 0
        assert array.flags.c_contiguous
        assert array.flags.writeable


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_random_floats_are_in_the_range_and_every_mantissa_bit_varies(dtype):
    x = RandomSource(3).array(100_000, dtype)
    assert (x >= 1).all()
    assert (x < 2).all()
    bits = x.view(f"u{x.itemsize}").astype(np.uint64)
    for bit in range(MANTISSA_BITS[dtype]):
        assert 0.48 < ((bits >> np.uint64(bit)) & np.uint64(1)).mean() < 0.52, bit


@pytest.mark.parametrize("dtype", ["int8", "uint32", "int64", "bool"])
def test_random_integers_use_all_their_bits(dtype):
    x = RandomSource(3).array(100_000, dtype)
    assert len(np.unique(x)) > min(2 ** (8 * x.itemsize), 100_000) * 0.9 or dtype == "bool"
    assert 0.4 < (x > np.median([np.iinfo(dtype).min, np.iinfo(dtype).max]) if dtype != "bool" else x).mean() < 0.6


def test_random_data_does_not_repeat_from_block_to_block_or_call_to_call():
    source = RandomSource(3)
    words = source.array(3 * RANDOM_BLOCK_WORDS + 11, "uint64")
    assert len(np.unique(words)) == words.size
    assert not np.isin(source.array(1000, "uint64"), words).any()


@pytest.mark.parametrize("bad", [-1, (3, -1), 1.5, "12", (2.0,), True])
def test_a_shape_that_has_no_meaning(bad):
    with pytest.raises(UsageError):
        empty_array(bad, "float32")


@pytest.mark.parametrize("bad", ["float33", "object", "U4"])
def test_a_dtype_without_random_numbers(bad):
    with pytest.raises(UsageError):
        RandomSource().array(4, bad)


def test_more_than_there_is():
    with pytest.raises(OutOfMemory, match=r"needs 1000 TB.*use a smaller size"):
        empty_array(10**15, "uint8")


def test_an_allocation_that_fails():
    with (
        pytest.raises(OutOfMemory, match="the probe needs 12 B, more than the host gives"),
        allocation("the probe", 12),
    ):
        raise MemoryError


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


class TestBytes:
    def test_of_host_arrays_of_any_library(self):
        assert host_nbytes(np.ones((3, 4), np.float32)[::2]) == 32
        assert host_nbytes(Foreign(1)) == 48
        assert host_nbytes(Interface()) == 48

    @pytest.mark.parametrize("other", [3.5, [1, 2], "x", b"bytes", None])
    def test_of_what_is_no_array(self, other):
        with pytest.raises(UsageError, match="no array in host memory"):
            host_nbytes(other)

    def test_of_an_array_elsewhere(self):
        with pytest.raises(UsageError, match="not in host memory"):
            host_nbytes(Foreign(2))


@pytest.mark.parametrize(
    ("array", "nbytes"),
    [
        (np.broadcast_to(np.float32(1), 1 << 20), 4),
        (np.broadcast_to(np.zeros((4, 1), np.float32), (4, 1000)), 16),
        (np.zeros((4, 6), np.float32)[::2, ::3], 16),
        (np.zeros((0, 3)), 0),
        (np.zeros((3, 0)), 0),
        (np.zeros(()), 8),
    ],
)
def test_bytes_of_an_array_are_those_that_lie_in_memory(array, nbytes):
    assert host_nbytes(array) == nbytes


def values(dtype: Any, words: int = 4096) -> Any:
    kind = resolve_dtype(dtype)
    masks = masks_for(kind)
    bits = np.random.default_rng(7).integers(0, 2**64, words, np.uint64)
    return ((bits & np.uint64(masks.keep)) | np.uint64(masks.set)).view(kind)


@pytest.mark.parametrize(("dtype", "mantissa_bits"), [("float16", 10), ("float32", 23), ("float64", 52)])
def test_floats_lie_in_one_to_two_with_every_mantissa_bit_in_use(dtype: str, mantissa_bits: int) -> None:
    found = values(dtype)
    assert found.min() >= 1
    assert found.max() < 2
    mantissas = found.view(f"u{found.itemsize}") & np.array(2**mantissa_bits - 1, f"u{found.itemsize}")
    assert np.bitwise_or.reduce(mantissas) == 2**mantissa_bits - 1
    assert np.bitwise_and.reduce(mantissas) == 0


def test_bfloat16() -> None:
    pytest.importorskip("ml_dtypes")
    found = values("bfloat16").astype(np.float32)
    assert found.min() == 1
    assert 1.98 < found.max() < 2
    assert len(np.unique(found)) == 128  # 7 mantissa bits


def test_bfloat16_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(UsageError, match="pip install ml_dtypes"):
        resolve_dtype("bfloat16")


def test_complex_numbers_are_pairs_of_such_floats() -> None:
    found = values("complex64")
    assert found.real.min() >= 1
    assert found.imag.max() < 2


def test_integers_use_all_their_bits() -> None:
    found = values("int8")
    assert (found.min(), found.max()) == (-128, 127)
    assert values("uint64").max() > 2**63


def test_booleans_are_zero_or_one() -> None:
    assert set(values("bool").view(np.uint8).tolist()) == {0, 1}


@pytest.mark.parametrize("dtype", ["no-such", object(), "nonsense"])
def test_what_is_no_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(UsageError, match="dtype"):
        masks_for(resolve_dtype(dtype))


@pytest.mark.parametrize("dtype", ["object", "U4", "M8[s]"])
def test_dtypes_without_plain_numbers_are_refused(dtype: str) -> None:
    with pytest.raises(UsageError, match="no data for dtype"):
        masks_for(resolve_dtype(dtype))


@pytest.mark.parametrize(("shape", "dtype", "words"), [((), "f4", 1), (0, "f4", 0), (3, "f4", 2), ((5, 3), "f2", 4)])
def test_words_cover_the_array(shape: Any, dtype: str, words: int) -> None:
    assert words_needed(checked_array_shape(shape), resolve_dtype(dtype)) == words


@pytest.mark.parametrize("shape", [-1, (2, -1), (2.0,), (True,), ("3",)])
def test_impossible_shapes_are_refused(shape: Any) -> None:
    with pytest.raises(UsageError, match="not negative"):
        checked_array_shape(shape)
