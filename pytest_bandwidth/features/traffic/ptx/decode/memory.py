"""Decode opcodes that access memory. Parameters with a name are registers, of the launch or of an inlined call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pytest_bandwidth.features.traffic.ptx.decode.actions import SPACES, copy
from pytest_bandwidth.features.traffic.ptx.decode.operands import Here
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, chosen
from pytest_bandwidth.features.traffic.ptx.program import Atomic, Load, Read, Step, Store, Write
from pytest_bandwidth.features.traffic.ptx.syntax import Address, Operand, Vector

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


MEMORY: dict[str, Callable[[Here], Sequence[Step]]] = {
    "load": load,
    "store": store,
    "atomic": atomic,
    "reduction": atomic,
}
