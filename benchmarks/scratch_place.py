"""Measure how a kernel's speed depends on the place of its scratch in a page; arrays begin 64 bytes after a page.

    python benchmarks/scratch_place.py                # a minute
    python benchmarks/scratch_place.py --mib 32 --step 512

Each thread keeps a row in a scratch of its own, then writes it, scaled, to the output, as the softmax of `cuda_src/`
does on a host. A load may wait for a store to another address whose last twelve bits are the same. Prints Markdown:
the milliseconds of a run by the place in its page, medians of rounds in which all places take turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from datetime import datetime, timezone
from statistics import median
from typing import Any

import numpy as np
from arena import table
from numba import prange

from pytest_bandwidth.suite.host_kernels.rows import row_sum
from pytest_bandwidth.suite.host_kernels.simd import (
    FAR_FROM_ARRAYS,
    PAGE_BYTES,
    lanes_of,
    load,
    parallel,
    spread,
    store,
    stream,
)

Array = Any
COLS = 4096
ROUNDS = 7
# As malloc places large blocks.
OF_ARRAYS = 64
THREADS = 2


@parallel
def scaled_rows(out: Array, x: Array, rows: int, stages: Array) -> None:
    for part in prange(THREADS):
        stage = stages[part]
        lanes = lanes_of(x)
        for row in range(rows * part // THREADS, rows * (part + 1) // THREADS):
            start = row * COLS
            factor = spread(np.float32(1) / row_sum(x, start, COLS))
            for c in range(0, COLS, lanes):
                store(stage, c, load(x, start + c))
            for c in range(0, COLS, lanes):
                stream(out, start + c, load(stage, c) * load(stage, c) * factor)


def placed(elements: int, in_page: int) -> Array:
    """Return so many float32 that begin so many bytes after a page does."""
    raw = np.ones(4 * elements + 2 * PAGE_BYTES, np.uint8)
    begin = (in_page - raw.ctypes.data) % PAGE_BYTES
    return raw[begin : begin + 4 * elements].view(np.float32)


def seconds(out: Array, x: Array, rows: int, stages: Array) -> float:
    begun = time.perf_counter()
    scaled_rows(out, x, rows, stages)
    return time.perf_counter() - begun


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=128, help="of input and of output (default: 128)")
    parser.add_argument("--step", type=int, default=256, help="bytes from place to place, of 64 (default: 256)")
    options = parser.parse_args()
    rows = options.mib * 2**20 // (4 * COLS)
    x, out = placed(rows * COLS, OF_ARRAYS), placed(rows * COLS, OF_ARRAYS)
    places = sorted({*range(0, PAGE_BYTES, options.step), OF_ARRAYS, FAR_FROM_ARRAYS})
    # A page between the scratches of two threads; both begin at the same place of one.
    stages = {place: placed(THREADS * (COLS + PAGE_BYTES // 4), place).reshape(THREADS, -1) for place in places}
    scaled_rows(out, x, 1, stages[places[0]])
    taken: dict[int, list[float]] = {place: [] for place in places}
    for _ in range(ROUNDS):
        for place in places:
            taken[place].append(seconds(out, x, rows, stages[place]))
    now = datetime.now(timezone.utc)
    print(f"{platform.machine()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, {now:%Y-%m-%d %H:%M} UTC\n")
    notes = {FAR_FROM_ARRAYS: "where the plugin's kernels have it", OF_ARRAYS: "as the arrays"}
    lines = [[f"{place}", f"{1e3 * median(taken[place]):.1f}", notes.get(place, "")] for place in places]
    print(table(("bytes after a page", "ms", ""), lines))


if __name__ == "__main__":
    main()
