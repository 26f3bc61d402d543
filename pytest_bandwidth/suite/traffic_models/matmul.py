"""Model dense matrix multiplication."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count, tiles


def gemm(m: int, n: int, k: int, dtype: Any, *, tile: int | tuple[int, int] | None = None) -> Traffic:
    """Model C (m×n) = A (m×k) · B (k×n): (mk + kn + mn)·s bytes, 2mnk FLOP.

    For square float32 matrices the arithmetic intensity is n/6 FLOP per byte.

    tile: rows and columns of C that one block computes together (one number: both). Each element of A is then asked
    for once per tile column, each of B once per tile row: (mk·⌈n/cols⌉ + kn·⌈m/rows⌉)·s bytes. A tile of 1 is the
    naive kernel, 2mnk·s. Without `tile` no requested count is given.
    """
    m, n, k, s = count("m", m), count("n", n), count("k", k), bytes_per_element(dtype)
    # Without columns nobody reads A, without rows nobody reads B.
    bytes_read = ((m * k if n else 0) + (k * n if m else 0)) * s
    written = m * n * s
    if tile is None:
        return Traffic(bytes_read, written, 2 * m * n * k)
    tile_rows, tile_cols = (tile, tile) if isinstance(tile, int) else tile
    column_tiles = tiles(n, count("tile columns", tile_cols, least=1))
    row_tiles = tiles(m, count("tile rows", tile_rows, least=1))
    requested = (m * k * column_tiles + k * n * row_tiles) * s
    return Traffic(bytes_read, written, 2 * m * n * k, requested, written)


def linear(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1) -> Traffic:
    """Model Y (m×n) = X (m×k) · Wᵀ, W stored n×k: the bytes and FLOP of `gemm`.

    rows_together: rows of X that one pass over a row of W serves; W is asked for ⌈m/rows_together⌉ times, X n times.
    """
    return gemm(m, n, k, dtype, tile=(count("rows_together", rows_together, least=1), 1))
