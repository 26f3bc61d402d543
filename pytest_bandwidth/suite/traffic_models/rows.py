"""Model operations that normalise or reduce each row of a rows × cols matrix."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count


def softmax(rows: int, cols: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model softmax of each row: 2·rows·cols·s bytes, ~5 FLOP an element (max, subtract, exp, add, divide).

    row_reads: times a kernel loads each element: 3 where maximum, sum and result are three passes, 2 with the online
    normaliser (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867), 1 where the row stays on chip. It changes
    what is requested; a row is short enough that later passes find it in a cache.
    """
    n, s = count("rows", rows) * count("cols", cols), bytes_per_element(dtype)
    return Traffic(n * s, n * s, 5 * n, count("row_reads", row_reads, least=1) * n * s, n * s)


def layer_norm(rows: int, cols: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model (x − mean)·rsqrt(variance + ε)·γ + β of each row: 2·rows·cols·s + 2·cols·s bytes, ~10 FLOP an element.

    γ and β (cols elements each) are distinct bytes once, and requested once a row. For `row_reads` see `softmax`.
    Without rows nothing is read.
    """
    rows, cols, s = count("rows", rows), count("cols", cols), bytes_per_element(dtype)
    n = rows * cols
    parameters = 2 * cols * s if rows else 0
    requested = count("row_reads", row_reads, least=1) * n * s + rows * 2 * cols * s
    return Traffic(n * s + parameters, n * s, 10 * n, requested, n * s)


def logsumexp(rows: int, cols: int, dtype: Any, *, fused: bool, max_pass: bool = False) -> Traffic:
    """Model ln Σ exp(x) of each row: ~3 FLOP an element (max, exp, add).

    Fused: n·s bytes, n = rows·cols, one read with the running maximum and sum in registers. Unfused: exp(x − max) is
    written and read back to be summed, 3n·s bytes. Either way rows·s bytes of results.

    max_pass: count also the unfused version's first launch, which reads n·s and writes rows maxima, and the maxima
    that the two later launches read.
    """
    rows, cols, s = count("rows", rows), count("cols", cols), bytes_per_element(dtype)
    n, results = rows * cols, rows * s
    if fused:
        return Traffic(n * s, results, 3 * n)
    exp_and_sum = Traffic(n * s, n * s, 2 * n) + Traffic(n * s, results, n)
    if not max_pass:
        return exp_and_sum
    return Traffic(n * s, results) + Traffic(2 * results, 0) + exp_and_sum
