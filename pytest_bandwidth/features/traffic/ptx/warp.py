"""Exchange values between lanes of a warp: shuffles, votes, matches and reductions (PTX ISA, §9.7.9 and §9.7.13)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import WARP, Array, spread

ALL_LANES = np.uint32(0xFFFFFFFF)


def exchange(
    name: str, mode: str, sources: tuple[Array, ...], active: Array, shape: tuple[int, int]
) -> tuple[Array, ...]:
    """Return the results of a warp instruction, each over `shape` or one row of it.

    sources: the operands in the opcode's order, the membership mask last. active: bool, the lanes that execute it. A
    lane gets what those of its own mask contribute: parts of a warp may exchange at the same time, each among itself.
    shape: (rows, lanes) of the batch.
    """
    rows = max(len(array) for array in (*sources, active))
    whole = (rows, shape[1])
    warps = (rows, shape[1] // WARP, WARP)
    operands = tuple(spread(source, whole).reshape(warps) for source in sources)
    results = _EXCHANGES[name](mode, spread(active, whole).reshape(warps), *operands)
    return tuple(spread(result, warps).reshape(whole) for result in results)


def _shuffle(
    mode: str, _active: Array, value: Array, lane_operand: Array, clamp_operand: Array, _members: Array
) -> tuple[Array, ...]:
    lane = np.arange(WARP)
    by = (lane_operand & 31).astype(np.int64)
    clamp, segment = (clamp_operand & 31).astype(np.int64), ((clamp_operand >> np.uint32(8)) & 31).astype(np.int64)
    lowest = lane & segment
    highest = lowest | (clamp & ~segment)
    if mode == "up":
        source = lane - by
        inside = source >= highest  # with `up` the clamp is a lower bound
    elif mode == "idx":
        source = lowest | (by & ~segment)
        inside = source <= highest
    else:
        source = lane + by if mode == "down" else lane ^ by
        inside = source <= highest
    source = np.where(inside, source, lane)
    return np.take_along_axis(value, spread(source, value.shape), axis=2), inside


def _vote(mode: str, active: Array, predicate: Array, members: Array) -> tuple[Array, ...]:
    every = (_packed(~predicate & active) & members) == 0
    some = (_packed(predicate & active) & members) != 0
    return ({"all": every, "any": some, "uni": every | ~some}[mode],)


def _packed(bits: Array) -> Array:
    """Pack 32 bools of a warp into one word, lane 0 in bit 0."""
    return np.packbits(bits, axis=2, bitorder="little").view("<u4").astype(np.uint32)


def _ballot(_mode: str, active: Array, predicate: Array, members: Array) -> tuple[Array, ...]:
    return (_packed(predicate & active) & members,)


def _active_mask(_mode: str, active: Array) -> tuple[Array, ...]:
    return (_packed(active),)


def _match(_mode: str, active: Array, value: Array, members: Array) -> tuple[Array, ...]:
    found = np.empty(value.shape, np.uint32)
    for lane in range(WARP):
        found[:, :, lane : lane + 1] = _packed((value == value[:, :, lane : lane + 1]) & active)
    return (found & members,)


def _match_all(mode: str, active: Array, value: Array, members: Array) -> tuple[Array, ...]:
    """Return the mask of all lanes where they agree, else 0; and whether they do."""
    (alike,) = _match(mode, active, value, members)
    everyone = _packed(active) & members
    agree = alike == everyone
    return np.where(agree, everyone, np.uint32(0)), agree


def _reduce(mode: str, active: Array, value: Array, members: Array) -> tuple[Array, ...]:
    info = np.iinfo(value.dtype)
    neutral = {"add": 0, "or": 0, "xor": 0, "and": info.max, "min": info.max, "max": info.min}[mode]
    operation: Any = {
        "add": np.add,
        "or": np.bitwise_or,
        "xor": np.bitwise_xor,
        "and": np.bitwise_and,
        "min": np.minimum,
        "max": np.maximum,
    }[mode]
    nothing = value.dtype.type(neutral)
    taking_part = np.where(active, value, nothing)
    if (members == ALL_LANES).all():
        return (operation.reduce(taking_part, axis=2, keepdims=True, dtype=value.dtype),)
    result = np.full(value.shape, nothing)
    for lane in range(WARP):
        mine = (members >> np.uint32(lane)) & np.uint32(1) != 0
        result = operation(result, np.where(mine, taking_part[:, :, lane : lane + 1], nothing))
    return (result,)


_EXCHANGES: dict[str, Callable[..., tuple[Array, ...]]] = {
    "shuffle": _shuffle,
    "vote": _vote,
    "ballot": _ballot,
    "match": _match,
    "match all": _match_all,
    "warp reduction": _reduce,
    "active mask": _active_mask,
}
