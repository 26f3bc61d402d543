"""Host twins of cuda_src/logsumexp.cu: one result per row, in one launch or three. Rows and parts as in host_rows."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import prange

from pytest_bandwidth.devices.cpu.kernels.rows import row_largest, row_online, row_sum, write_exponentials
from pytest_bandwidth.devices.cpu.kernels.simd import fence, get, parallel, put

Array = Any


@parallel
def logsumexp_fused(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """out[row] = max + ln Σ exp(x − max), and nothing of the matrix's size is written."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            high, summed = row_online(x, row * cols, cols)
            put(out, row, high + np.log(summed))


@parallel
def row_max(parts: int, out: Array, x: Array, rows: int, cols: int) -> None:
    """out[row] = the row's maximum."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            put(out, row, row_largest(x, row * cols, cols))


@parallel
def exp_shifted(parts: int, out: Array, x: Array, shift: Array, rows: int, cols: int) -> None:
    """out = exp(x − shift[row])."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            write_exponentials(out, x, row * cols, cols, get(shift, row), np.float32(1))
        fence()


@parallel
def row_log_sum(parts: int, out: Array, exps: Array, shift: Array, rows: int, cols: int) -> None:
    """out[row] = shift[row] + ln Σ exps."""
    for part in prange(parts):
        for row in range(rows * part // parts, rows * (part + 1) // parts):
            put(out, row, get(shift, row) + np.log(row_sum(exps, row * cols, cols)))
