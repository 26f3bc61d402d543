"""Decode opcodes that move values or threads: mov, addresses, branches, barriers, fences, exchange between lanes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.decode.operands import Here
from pytest_bandwidth.features.traffic.ptx.memory import (
    FIRST_VARIABLE_REGION,
    LOCAL_REGION,
    REGION_SHIFT,
    SHARED_REGION,
    WINDOWS,
)
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, chosen
from pytest_bandwidth.features.traffic.ptx.program import (
    Barrier,
    Branch,
    Compute,
    Exit,
    Fence,
    Nothing,
    Space,
    Step,
    WarpBarrier,
    WarpStep,
)
from pytest_bandwidth.features.traffic.ptx.syntax import Name, Vector

SPACES: dict[str, Space] = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "const": "const",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}


def move(here: Here) -> Sequence[Step]:
    """Decode mov: a copy; with a vector on one side, packs or unpacks it."""
    target, source = here.operands
    kind = here.choice["mtype"]
    if isinstance(source, Vector):
        part = f"b{DTYPES[kind].itemsize * 8 // len(source.items)}"
        reads = tuple(here.read(item, part) for item in source.items)
        word = here.write(target, kind)
        return [Compute(**here.placed(), function=_packer(DTYPES[kind]), sources=reads, targets=(word,))]
    if isinstance(target, Vector):
        part = f"b{DTYPES[kind].itemsize * 8 // len(target.items)}"
        reads = (here.read(source, kind),)
        targets = tuple(here.write(item, part) for item in target.items)
        return [Compute(**here.placed(), function=_unpacker(DTYPES[part]), sources=reads, targets=targets)]
    return [copy(here, here.read(source, kind), here.write(target, kind))]


def copy(here: Here, source: Any, target: Any) -> Compute:
    return Compute(**here.placed(), function=_identity, sources=(source,), targets=(target,))


def _identity(a: Any) -> Any:
    return a


def _packer(dtype: np.dtype[Any]) -> Callable[..., Any]:
    unsigned = np.dtype(f"u{dtype.itemsize}")

    def pack(*parts: Any) -> Any:
        bits = dtype.itemsize * 8 // len(parts)
        word = parts[0].astype(unsigned)
        for place, part in enumerate(parts[1:], 1):
            word = word | (part.astype(unsigned) << unsigned.type(bits * place))
        return word

    return pack


def _unpacker(part: np.dtype[Any]) -> Callable[..., Any]:
    bits = part.itemsize * 8

    def unpack(word: Any) -> Any:
        bare = word.view(f"u{word.dtype.itemsize}")
        count = word.dtype.itemsize // part.itemsize
        return tuple((bare >> bare.dtype.type(bits * place)).astype(part) for place in range(count))

    return unpack


def convert_address(here: Here) -> Sequence[Step]:
    """Decode cvta: global, const and param addresses are generic already; shared and local ones lie in a window."""
    target, source = here.operands
    base = WINDOWS.get(SPACES[here.choice["holding"]], 0)
    shift = np.full((1, 1), base, np.uint64)
    function: Callable[..., Any] = _identity
    if base:
        function = (lambda a: a - shift) if "to" in here.choice else (lambda a: a + shift)
    sources, targets = (here.read(source, "u64"),), (here.write(target, "u64"),)
    return [Compute(**here.placed(), function=function, sources=sources, targets=targets)]


def address_is_in_space(here: Here) -> Sequence[Step]:
    target, source = here.operands
    space = SPACES[here.choice["window"]]
    regions = {"shared": SHARED_REGION, "local": LOCAL_REGION}

    def within(address: Any) -> Any:
        region = address >> np.uint64(REGION_SHIFT)
        return region == regions[space] if space in regions else region >= FIRST_VARIABLE_REGION

    sources, targets = (here.read(source, "u64"),), (here.write(target, "pred"),)
    return [Compute(**here.placed(), function=within, sources=sources, targets=targets)]


def branch(here: Here) -> Sequence[Step]:
    (target,) = here.operands
    label = here.scope.labels.get(target.text) if isinstance(target, Name) else None
    if label is None:
        here.refuse()
    return [Branch(**here.placed(), labels=(label,))]


def branch_by_index(here: Here) -> Sequence[Step]:
    index, table = here.operands
    names = here.scope.tables.get(table.text) if isinstance(table, Name) else None
    labels = tuple(label for label in map(here.scope.labels.get, names or ()) if label is not None)
    if not names or here.instruction.guard or len(labels) != len(names):
        here.refuse()
    return [Branch(**here.placed(), sources=(here.read(index, "u32"),), labels=labels)]


def leave(here: Here) -> Sequence[Step]:
    return [Exit(**here.placed(), trap=here.match.form.meaning == "trap")]


def barrier(here: Here) -> Sequence[Step]:
    """Decode bar.sync 0 and bar.red: the whole block.
    Named barriers and those for some of the threads are not modelled.
    """
    operands = list(here.operands)
    reduction, targets, predicate = "", [], []
    if here.match.form.meaning != "block barrier":
        reduction = here.choice.get("barred", "popc")
        targets = [here.write(operands.pop(0), here.match.results[0])]
        predicate = [here.read(operands.pop(), "pred")]
    if len(operands) != 1 or getattr(operands[0], "value", None) != 0 or here.instruction.guard:
        here.refuse()
    return [Barrier(site=here.site(), reduction=reduction, targets=tuple(targets), sources=tuple(predicate))]


def warp_barrier(here: Here) -> Sequence[Step]:
    return [WarpBarrier(**here.placed(), sources=(here.read(here.operands[0], "b32"),))]


def fence(here: Here) -> Sequence[Step]:
    return [Fence(**here.placed())]


def nothing(here: Here) -> Sequence[Step]:
    return [Nothing(**here.placed())]


def between_lanes(here: Here) -> Sequence[Step]:
    """Decode shuffles, votes and their like."""
    target, *operands = here.operands
    if not isinstance(target, Name):
        here.refuse()
    names = [Name(target.text)] + ([Name(target.second)] if target.second else [])
    mode = chosen(here.choice, "shmode", "votemode", "redop", "bitop")
    return [
        WarpStep(
            **here.placed(),
            sources=tuple(here.read(o, kind) for o, kind in zip(operands, here.match.sources, strict=True)),
            targets=tuple(here.write(n, kind) for n, kind in zip(names, here.match.results, strict=False)),
            name=str(here.match.form.meaning),
            mode=mode,
        )
    ]


CONTROL: dict[str, Callable[[Here], Sequence[Step]]] = {
    "move": move,
    "convert address": convert_address,
    "address is in space": address_is_in_space,
    "branch": branch,
    "branch by index": branch_by_index,
    "exit": leave,
    "trap": leave,
    "block barrier": barrier,
    "counting barrier": barrier,
    "voting barrier": barrier,
    "warp barrier": warp_barrier,
    "fence": fence,
    "shuffle": between_lanes,
    "vote": between_lanes,
    "ballot": between_lanes,
    "match": between_lanes,
    "match all": between_lanes,
    "warp reduction": between_lanes,
    "active mask": between_lanes,
    "nothing": nothing,
}
