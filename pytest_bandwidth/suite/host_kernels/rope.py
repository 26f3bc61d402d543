"""Turn pairs of elements by angles on the host: the twin of cuda_src/rope.cu.

Each thread has whole tokens. The angles of a token stay in the first-level cache while its heads pass.
"""

from __future__ import annotations

from typing import Any

from numba import prange

from pytest_bandwidth.devices.cpu.simd import get, lanes_of, load, parallel, put, store

Array = Any


@parallel
def rope(parts: int, out: Array, x: Array, cosines: Array, sines: Array, tokens: int, heads: int, d: int) -> None:
    """Write x[j]·cos − x[j + d/2]·sin, and x[j + d/2]·cos + x[j]·sin, for j < d/2 of each head."""
    half, lanes = d // 2, lanes_of(out)
    for part in prange(parts):
        for token in range(tokens * part // parts, tokens * (part + 1) // parts):
            for head in range(heads):
                low, angle, j = (token * heads + head) * d, token * half, 0
                while j + lanes <= half:
                    a, b = load(x, low + j), load(x, low + half + j)
                    cosine, sine = load(cosines, angle + j), load(sines, angle + j)
                    store(out, low + j, a * cosine - b * sine)
                    store(out, low + half + j, b * cosine + a * sine)
                    j += lanes
                while j < half:
                    c, e = get(x, low + j), get(x, low + half + j)
                    put(out, low + j, c * get(cosines, angle + j) - e * get(sines, angle + j))
                    put(out, low + half + j, e * get(cosines, angle + j) + c * get(sines, angle + j))
                    j += 1
