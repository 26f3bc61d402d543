"""Count sectors and access patterns of global memory, and passes over the banks of shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from pytest_bandwidth.features.traffic.ptx.loops import BOOL, I64, WARP, compiled, four, given, row

# Places in the vector that `count_sectors` fills.
REQUESTS, SECTORS, IDEAL_SECTORS, LANES = 0, 1, 2, 3
COALESCED, MISALIGNED, STRIDED, RANDOM, BROADCAST = 4, 5, 6, 7, 8
STRIDE, STRIDE_VOTES = 9, 10
COUNTS = 11


@compiled(types.void(given(I64), given(BOOL), I64, I64, row(I64)))
def count_sectors(offset: Any, mask: Any, width: Any, repeat: Any, counts: Any) -> None:
    """Add up, over every warp that takes part, its request's sectors and its access pattern.

    offset: byte offset from a 32-byte boundary. width: bytes per lane. repeat: how many blocks each row stands for.
    A sector is 32 bytes of memory, aligned; the ideal number is that of the distinct bytes asked for, packed.
    """
    lanes = np.empty(WARP, np.int64)
    for b in range(offset.shape[0]):
        for first_lane in range(0, offset.shape[1], WARP):
            n = 0
            for t in range(first_lane, first_lane + WARP):
                if mask[b, t]:
                    lanes[n] = offset[b, t]
                    n += 1
            if n == 0:
                continue
            unit, same, rising = True, True, True
            for i in range(1, n):
                delta = lanes[i] - lanes[i - 1]
                unit &= delta == width
                same &= delta == 0
                rising &= delta >= 0
            # The commonest step between neighbouring lanes (Boyer and Moore's majority vote), before lanes are sorted.
            step, votes = 0, 0
            if not unit and not same:
                for i in range(1, n):
                    delta = lanes[i] - lanes[i - 1]
                    if delta != 0:
                        if votes == 0:
                            step, votes = delta, 1
                        elif delta == step:
                            votes += 1
                        else:
                            votes -= 1
                agreeing, moving = 0, 0
                for i in range(1, n):
                    delta = lanes[i] - lanes[i - 1]
                    moving += delta != 0
                    agreeing += delta == step
                if agreeing * 4 < moving * 3:
                    step = 0
            if not rising:
                for i in range(1, n):
                    value, j = lanes[i], i
                    while j > 0 and lanes[j - 1] > value:
                        lanes[j] = lanes[j - 1]
                        j -= 1
                    lanes[j] = value
            sectors, distinct, last_sector, last_byte = 0, 0, np.int64(-1), lanes[0]
            for i in range(n):
                first, last = lanes[i] >> 5, (lanes[i] + width - 1) >> 5
                if i == 0:
                    last_sector = first - 1
                sectors += max(0, last - max(first - 1, last_sector))
                last_sector = max(last_sector, last)
                end = lanes[i] + width
                distinct += max(0, end - max(lanes[i], last_byte))
                last_byte = max(last_byte, end)
            ideal = (distinct + 31) >> 5
            if same and n > 1:
                kind = BROADCAST
            elif sectors == ideal:
                kind = COALESCED
            elif unit or step == width:
                kind = MISALIGNED
            elif step != 0:
                kind = STRIDED
                if counts[STRIDE_VOTES] == 0:
                    counts[STRIDE], counts[STRIDE_VOTES] = step, 1
                elif counts[STRIDE] == step:
                    counts[STRIDE_VOTES] += 1
                else:
                    counts[STRIDE_VOTES] -= 1
            else:
                kind = RANDOM
            counts[kind] += repeat
            counts[REQUESTS] += repeat
            counts[SECTORS] += sectors * repeat
            counts[IDEAL_SECTORS] += ideal * repeat
            counts[LANES] += n * repeat


@compiled(four(I64)(given(I64), given(BOOL), I64, I64))
def count_bank_passes(offset: Any, mask: Any, width: Any, repeat: Any) -> Any:
    """Count requests, passes over the 32 four-byte banks of shared memory, passes without any conflict, and lanes.

    A bank serves one 4-byte word a pass, to any number of lanes. 8-byte accesses go by half warps, 16-byte ones by
    quarters (CUDA C++ Programming Guide, compute capability 5.x and later).
    """
    requests, passes, least, lanes = 0, 0, 0, 0
    group = WARP if width <= 4 else WARP * 4 // width
    words = np.empty(WARP * 4, np.int64)
    depth = np.zeros(WARP, np.int64)
    for b in range(offset.shape[0]):
        for first_warp_lane in range(0, offset.shape[1], WARP):
            active = False
            for first_lane in range(first_warp_lane, first_warp_lane + WARP, group):
                n = 0
                for t in range(first_lane, first_lane + group):
                    if mask[b, t]:
                        lanes += repeat
                        for word in range(offset[b, t] >> 2, (offset[b, t] + width + 3) >> 2):
                            known = False
                            for i in range(n - 1, -1, -1):
                                if words[i] == word:
                                    known = True
                                    break
                            if not known:
                                words[n] = word
                                n += 1
                if n == 0:
                    continue
                active = True
                depth[:] = 0
                for i in range(n):
                    depth[words[i] & 31] += 1
                passes += depth.max() * repeat
                least += repeat
            requests += repeat * active
    return requests, passes, least, lanes
