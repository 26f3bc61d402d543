"""Access patterns and transposes on the host: every element where it belongs, nothing beside."""

import numpy as np
import pytest
from host_launch import SIZES, STORED, SUFFIXES, Guarded, numbers, run


@pytest.mark.parametrize("suffix", SUFFIXES)
class TestAccess:
    @pytest.mark.parametrize("stride", [0, 1, 2, 7, 33])
    def test_strided_read(self, suffix, stride):
        for n in SIZES:
            x = numbers((n - 1) * stride + 1 if n else 0, STORED[suffix], offset=1)
            out = Guarded(n, STORED[suffix], 3)
            run("access.cu", f"strided_read_{suffix}", out.array, x, stride, n)
            np.testing.assert_array_equal(out.check(), x[np.arange(n) * stride])

    @pytest.mark.parametrize("stride", [1, 2, 7])
    def test_strided_write(self, suffix, stride):
        for n in SIZES:
            x = numbers(n, STORED[suffix])
            out = Guarded((n - 1) * stride + 1 if n else 0, STORED[suffix], 3)
            run("access.cu", f"strided_write_{suffix}", out.array, x, stride, n)
            np.testing.assert_array_equal(out.check()[::stride], x)

    @pytest.mark.parametrize("offset", [0, 1, 13])
    def test_misaligned(self, suffix, offset):
        for n in SIZES:
            x = numbers(n + offset, STORED[suffix])
            out = Guarded(n, STORED[suffix], 3)
            run("access.cu", f"misaligned_{suffix}", out.array, x, offset, n)
            np.testing.assert_array_equal(out.check(), x[offset:])

    @pytest.mark.parametrize("index", ["i32", "i64"])
    @pytest.mark.parametrize("length", [0, 1, 5000])
    def test_gather_gives_zero_outside(self, suffix, index, length):
        x = numbers(length, STORED[suffix])
        for n in SIZES:
            where = (
                np.random.default_rng(n).integers(-3, length + 3, n).astype(np.int32 if index == "i32" else np.int64)
            )
            where[:1] = np.iinfo(where.dtype).min
            out = Guarded(n, STORED[suffix], 3)
            run("access.cu", f"gather_{suffix}_{index}", out.array, x, where, length, n)
            inside = (where >= 0) & (where < length)
            wanted = np.zeros(n, STORED[suffix])
            wanted[inside] = x[where[inside]]
            np.testing.assert_array_equal(out.check(), wanted)


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("name", ["transpose_naive", "transpose_tiled"])
@pytest.mark.parametrize("shape", [(0, 5), (1, 1), (16, 16), (64, 96), (33, 70), (17, 100), (128, 1), (1, 128)])
@pytest.mark.parametrize("offset", [0, 1])
def test_transpose(suffix, name, shape, offset):
    rows, cols = shape
    x = numbers(rows * cols, STORED[suffix])
    out = Guarded(rows * cols, STORED[suffix], offset)
    run("transpose.cu", f"{name}_{suffix}", out.array, x, rows, cols)
    np.testing.assert_array_equal(out.check().reshape(cols, rows), x.reshape(rows, cols).T)
