"""Random data: finite, in [1, 2), mantissas random, integers over their whole range."""

from typing import Any

import numpy as np
import pytest

from pytest_bandwidth.devices.random_bits import checked_array_shape, masks_for, resolve_dtype, words_needed
from pytest_bandwidth.domain.errors import UsageError


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
