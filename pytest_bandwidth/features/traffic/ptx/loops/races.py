"""Keep the shadows that tell which accesses nothing orders."""

from __future__ import annotations

from typing import Any

from pytest_bandwidth.features.traffic.ptx.loops import BOOL, I32, I64, compiled, given, plane, row

# Threads as the shared-memory shadow codes them, beyond thread number + 1.
WARP_OF_READERS, MANY_WARPS = 1025, 1100


@compiled(I64(plane(I64), plane(I64), given(I64), given(BOOL), I64, I64, I64, given(I64), given(I64), plane(I64)))
def race_between_threads(
    writers: Any,
    readers: Any,
    granule: Any,
    mask: Any,
    count: Any,
    stores: Any,
    site: Any,
    epoch: Any,
    warp_epoch: Any,
    hit: Any,
) -> int:
    """Update the shadow of shared memory and count the lanes whose access no barrier orders.

    A shadow word is barrier epoch · 2⁴⁴ + warp epoch · 2²⁶ + site · 2¹² + thread + 1. `hit`, all 0 before, gets the
    word that an access conflicts with. Two accesses of one block conflict if one of them writes, no block barrier came
    between, and, for threads of one warp, no warp barrier either.
    """
    found = 0
    for b in range(granule.shape[0]):
        for t in range(granule.shape[1]):
            if not mask[b, t]:
                continue
            conflict = 0
            warp = t >> 5
            now, warp_now = epoch[b, 0], warp_epoch[b, warp]
            own = (now << 44) | (warp_now << 26) | (site << 12) | (t + 1)
            for g in range(granule[b, t], granule[b, t] + count):
                previous = writers[b, g]
                who = previous & 4095
                unordered = (who - 1) >> 5 != warp or ((previous >> 26) & 0x3FFFF) == warp_now
                if who != 0 and who != t + 1 and (previous >> 44) == now and unordered:
                    conflict = previous
                previous = readers[b, g]
                who = previous & 4095
                current = who != 0 and (previous >> 44) == now
                if stores:
                    if current and who != t + 1:
                        if who == MANY_WARPS:
                            conflict = previous
                        else:
                            other = (who - 1) >> 5 if who < WARP_OF_READERS else who - WARP_OF_READERS
                            if other != warp or ((previous >> 26) & 0x3FFFF) == warp_now:
                                conflict = previous
                    writers[b, g] = own
                elif not current or who == t + 1:
                    readers[b, g] = own
                elif who != MANY_WARPS:
                    other = (who - 1) >> 5 if who < WARP_OF_READERS else who - WARP_OF_READERS
                    if other != warp:
                        readers[b, g] = (previous & ~4095) | MANY_WARPS
                    elif ((previous >> 26) & 0x3FFFF) == warp_now:
                        readers[b, g] = (previous & ~4095) | (WARP_OF_READERS + warp)
                    else:
                        readers[b, g] = own
            if conflict != 0:
                hit[b, t] = conflict
                found += 1
    return found


@compiled(I64(row(I32), row(I32), given(I64), given(BOOL), I64, I64, given(I64), plane(I64)))
def race_between_blocks(
    writers: Any, readers: Any, granule: Any, mask: Any, count: Any, stores: Any, block: Any, hit: Any
) -> int:
    """Update the shadow of global memory and count the lanes that conflict with another block. Nothing orders two
    blocks of a launch. Shadows hold block + 1, readers also −1 for several.

    `hit`, all 0 before, gets the block that an access conflicts with plus one, or −1 for several.
    """
    found = 0
    for b in range(granule.shape[0]):
        own = block[b, 0] + 1
        for t in range(granule.shape[1]):
            if not mask[b, t]:
                continue
            conflict = 0
            for g in range(granule[b, t], granule[b, t] + count):
                if writers[g] != 0 and writers[g] != own:
                    conflict = writers[g]
                if stores:
                    if readers[g] != 0 and readers[g] != own:
                        conflict = readers[g]
                    writers[g] = own
                elif readers[g] == 0:
                    readers[g] = own
                elif readers[g] != own:
                    readers[g] = -1
            if conflict != 0:
                hit[b, t] = conflict
                found += 1
    return found
