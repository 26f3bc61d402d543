"""Decode opcodes that are no computation: what moves values or threads, and what accesses memory.

Parameters with a name are registers, of the launch or of an inlined call.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic.ptx.memory import (
    FIRST_VARIABLE_REGION,
    LOCAL_REGION,
    REGION_SHIFT,
    SHARED_REGION,
    WINDOWS,
)
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, chosen
from pytest_bandwidth.features.traffic.ptx.operands import Here
from pytest_bandwidth.features.traffic.ptx.parsing import Address, Name, Operand, Vector
from pytest_bandwidth.features.traffic.ptx.program import (
    Atomic,
    Barrier,
    Branch,
    Compute,
    Exit,
    Fence,
    Load,
    Nothing,
    Read,
    Space,
    Step,
    Store,
    WarpBarrier,
    WarpStep,
    Write,
)

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


_ORDERED = ("relaxed", "acquire", "release", "acq_rel")

# Types that each atomic operation has (PTX ISA 9.0, atom). NVRTC lets inline assembler pass unread, so that anything
# may come; what is not here would be computed as another operation or as another type.
_HALVES = ("f16", "f16x2", "bf16", "bf16x2")
_WHOLE = ("u32", "s32", "u64", "s64")
_ATOMIC_TYPES = {
    **dict.fromkeys(("and", "or", "xor", "exch"), ("b32", "b64")),
    "cas": ("b16", "b32", "b64"),
    "add": (*_WHOLE, "f32", "f64", *_HALVES),
    **dict.fromkeys(("inc", "dec"), ("u32",)),
    **dict.fromkeys(("min", "max"), (*_WHOLE, *_HALVES)),
}
_VECTOR_TYPES = ("f32", *_HALVES)


def load(here: Here) -> Sequence[Step]:
    target, address = here.operands
    kind = here.choice["memory"]
    items = target.items if isinstance(target, Vector) else (target,)
    writes = tuple(here.write(item, kind) for item in items)
    if SPACES.get(chosen(here.choice, "space")) == "param" and isinstance(address, Address):
        named = _load_parameter(here, address, kind, writes)
        if named is not None:
            return named
    read, offset = _place(here, address)
    return [Load(**here.placed(), sources=(read,), targets=writes, **_access(here, kind, len(items), offset))]


def _load_parameter(here: Here, address: Address, kind: str, writes: Sequence[Write | None]) -> Sequence[Step] | None:
    """Copy from the registers of a named parameter; None where its address is computed."""
    base, dtype = str(address.base), DTYPES[kind]
    slot, parameter = here.scope.parameters.get(base), here.context.parameters.get(base)
    if slot is None and parameter is None:
        return None
    steps = []
    for place, write in enumerate(writes):
        offset = address.offset + place * dtype.itemsize
        if slot is not None:
            index = here.slot(slot, offset, kind)
        elif parameter is not None and 0 <= offset <= parameter.size - dtype.itemsize:
            index = here.context.file.argument(parameter.offset + offset, dtype)
        else:
            here.refuse()
        steps.append(copy(here, Read(index, dtype), write))
    return steps


def store(here: Here) -> Sequence[Step]:
    address, value = here.operands
    kind = here.choice["memory"]
    items = value.items if isinstance(value, Vector) else (value,)
    values = tuple(here.read(item, kind) for item in items)
    if SPACES.get(chosen(here.choice, "stspace")) == "param":
        return _store_parameter(here, address, kind, values)
    read, offset = _place(here, address)
    return [Store(**here.placed(), sources=(read, *values), **_access(here, kind, len(items), offset))]


def _store_parameter(here: Here, address: Operand, kind: str, values: Sequence[Read]) -> Sequence[Step]:
    slot = here.scope.parameters.get(str(address.base)) if isinstance(address, Address) else None
    if slot is None or not isinstance(address, Address):
        here.refuse()
    size = DTYPES[kind].itemsize
    return [
        copy(here, value, Write(here.slot(slot, address.offset + place * size, kind)))
        for place, value in enumerate(values)
    ]


def atomic(here: Here) -> Sequence[Step]:
    """Decode atom, with a result, and red, without; on sm_90 and later also for vectors."""
    operands = list(here.operands)
    kind = chosen(here.choice, "attype", "redtype")
    target = operands.pop(0) if here.match.form.meaning == "atomic" else None
    address, *values = operands
    operation = chosen(here.choice, "atop", "redatop")
    if len(values) != (2 if operation == "cas" else 1) or kind not in _ATOMIC_TYPES[operation]:
        here.refuse()
    if "vec" in here.choice and kind not in _VECTOR_TYPES:
        here.refuse()
    items = [item for value in values for item in (value.items if isinstance(value, Vector) else (value,))]
    results = target.items if isinstance(target, Vector) else () if target is None else (target,)
    count = int(here.choice["vec"][1:]) if "vec" in here.choice else 1
    read, offset = _place(here, address)
    return [
        Atomic(
            **here.placed(),
            sources=(read, *(here.read(item, kind) for item in items)),
            targets=tuple(here.write(item, kind) for item in results),
            operation=operation,
            type=kind,
            **_access(here, kind, count, offset),
        )
    ]


def _access(here: Here, kind: str, count: int, offset: int) -> dict[str, Any]:
    dtype = DTYPES[kind]
    named = "global" if here.match.form.base == "ldu" else chosen(here.choice, "space", "stspace", "aspace")
    space = SPACES.get(named, "generic")
    granules = here.context.granules
    for name in ("global", "shared", "local") if space == "generic" else (space,):
        granules[name] = min(granules.get(name, 16), dtype.itemsize)
    return {
        "space": space,
        "dtype": dtype,
        "count": count,
        "offset": offset,
        "ordered": chosen(here.choice, "lorder", "sorder", "order", "rorder") in _ORDERED,
    }


def _place(here: Here, operand: Operand) -> tuple[Read, int]:
    """Return the register an address starts from, of 64 or (in shared memory) 32 bits, and the bytes to add."""
    if not isinstance(operand, Address):
        here.refuse()
    u32, u64, file = DTYPES["u32"], DTYPES["u64"], here.context.file
    if isinstance(operand.base, int):
        return Read(file.constant(operand.base + operand.offset, u64), u64), 0
    found = here.scope.register(operand.base, file)
    if found is None:
        return Read(file.constant(here.address(operand.base) + operand.offset, u64), u64), 0
    index, kind = found
    return Read(index, u64 if DTYPES[kind].itemsize == 8 else u32), operand.offset


ACTIONS: dict[str, Callable[[Here], Sequence[Step]]] = {
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
    "load": load,
    "store": store,
    "atomic": atomic,
    "reduction": atomic,
}
