"""What the decoder does for opcodes that are no plain computation, by the action's name in the opcode table."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from pytest_bandwidth.ptx import addresses
from pytest_bandwidth.ptx.opcodes.forms import DTYPES, Match
from pytest_bandwidth.ptx.program import (
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
    Store,
    WarpBarrier,
    WarpStep,
    Write,
)
from pytest_bandwidth.ptx.scopes import Scope
from pytest_bandwidth.ptx.syntax import Address, Instruction, Name, Operand, Vector

if TYPE_CHECKING:
    from pytest_bandwidth.ptx.decode import Decoder

U32, U64, PRED = DTYPES["u32"], DTYPES["u64"], DTYPES["pred"]
_ORDERED = ("relaxed", "acquire", "release", "acq_rel", "sc")
_SPACES: dict[str, Space] = {
    "global": "global",
    "shared": "shared",
    "shared::cta": "shared",
    "local": "local",
    "const": "const",
    "param": "param",
    "param::entry": "param",
    "param::func": "param",
}
_WINDOWS = {"shared": addresses.SHARED_BASE, "local": addresses.LOCAL_BASE}


def move(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    """mov: a copy; with a vector on one side, packs or unpacks it."""
    target, source = instruction.operands
    kind = match.choice["mtype"]
    site, guard = decoder.site(instruction), decoder.guard(instruction, scope)
    if isinstance(source, Vector):
        part = f"b{DTYPES[kind].itemsize * 8 // len(source.items)}"
        reads = tuple(decoder.read(item, part, scope, instruction) for item in source.items)
        write = decoder.write(target, kind, scope, instruction)
        decoder.emit(Compute(site=site, guard=guard, function=_packer(DTYPES[kind]), sources=reads, targets=(write,)))
    elif isinstance(target, Vector):
        part = f"b{DTYPES[kind].itemsize * 8 // len(target.items)}"
        read = decoder.read(source, kind, scope, instruction)
        writes = tuple(decoder.write(item, part, scope, instruction) for item in target.items)
        decoder.emit(Compute(site=site, guard=guard, function=_unpacker(DTYPES[part]), sources=(read,), targets=writes))
    else:
        read = decoder.read(source, kind, scope, instruction)
        decoder.emit(
            Compute(site=site, guard=guard, function=_identity, sources=(read,), targets=(decoder.write(target, kind, scope, instruction),))
        )


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


def convert_address(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    """cvta: global, const and param addresses are generic already; shared and local ones lie in a window."""
    kind = match.choice["wordtype"]
    target, source = instruction.operands
    base = _WINDOWS.get(_SPACES[match.choice["space"]], 0)
    if DTYPES[kind].itemsize == 4:
        decoder.refuse(instruction)
    shift = np.full((1, 1), base, np.uint64)
    function: Callable[..., Any] = _identity
    if base:
        function = (lambda a: a - shift) if "to" in match.choice else (lambda a: a + shift)
    decoder.emit(
        Compute(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            function=function,
            sources=(decoder.read(source, kind, scope, instruction),),
            targets=(decoder.write(target, kind, scope, instruction),),
        )
    )


def address_is_in_space(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    target, source = instruction.operands
    space = _SPACES[match.choice["space"]]
    regions = {"shared": addresses.SHARED_REGION, "local": addresses.LOCAL_REGION, "param": addresses.PARAM_REGION}

    def within(address: Any) -> Any:
        region = address >> np.uint64(addresses.REGION_SHIFT)
        return region == regions[space] if space in regions else region >= addresses.FIRST_VARIABLE_REGION

    decoder.emit(
        Compute(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            function=within,
            sources=(decoder.read(source, "u64", scope, instruction),),
            targets=(decoder.write(target, "pred", scope, instruction),),
        )
    )


def load(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    target, address = instruction.operands
    kind = match.choice["memory"]
    items: tuple[Operand, ...] = target.items if isinstance(target, Vector) else (target,)
    writes = tuple(decoder.write(item, kind, scope, instruction) for item in items)
    if _SPACES.get(match.choice.get("space", "")) == "param" and isinstance(address, Address) and isinstance(address.base, str):
        if _load_parameter(decoder, instruction, address, kind, writes, scope):
            return
    read, offset = _place(decoder, instruction, address, scope)
    decoder.emit(
        Load(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            sources=(read,),
            targets=writes,
            **_access(decoder, match, kind, len(items), offset),
        )
    )


def _load_parameter(
    decoder: Decoder, instruction: Instruction, address: Address, kind: str, writes: tuple[Write | None, ...], scope: Scope
) -> bool:
    """A named parameter: a register of the launch, or of an inlined call. False where its address is computed."""
    base, dtype = str(address.base), DTYPES[kind]
    slot = scope.parameter(base)
    for place, write in enumerate(writes):
        offset = address.offset + place * dtype.itemsize
        if slot is not None:
            index = decoder.slot(slot, offset, kind, instruction)
        elif base in decoder.parameters:
            parameter = decoder.parameters[base]
            if not 0 <= offset <= parameter.size - dtype.itemsize:
                decoder.refuse(instruction)
            index = decoder.file.argument(parameter.offset + offset, dtype)
        else:
            return False
        decoder.emit(
            Compute(
                site=decoder.site(instruction),
                guard=decoder.guard(instruction, scope),
                function=_identity,
                sources=(Read(index, dtype),),
                targets=(write,),
            )
        )
    return True


def store(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    address, value = instruction.operands
    kind = match.choice["memory"]
    items: tuple[Operand, ...] = value.items if isinstance(value, Vector) else (value,)
    values = tuple(decoder.read(item, kind, scope, instruction) for item in items)
    if _SPACES.get(match.choice.get("space", "")) == "param":
        _store_parameter(decoder, instruction, address, kind, values, scope)
        return
    read, offset = _place(decoder, instruction, address, scope)
    decoder.emit(
        Store(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            sources=(read, *values),
            **_access(decoder, match, kind, len(items), offset),
        )
    )


def _store_parameter(
    decoder: Decoder, instruction: Instruction, address: Operand, kind: str, values: tuple[Read, ...], scope: Scope
) -> None:
    if not isinstance(address, Address):
        decoder.refuse(instruction)
    slot = scope.parameter(str(address.base))
    if slot is None:
        decoder.refuse(instruction)
    for place, value in enumerate(values):
        index = decoder.slot(slot, address.offset + place * DTYPES[kind].itemsize, kind, instruction)
        decoder.emit(
            Compute(
                site=decoder.site(instruction),
                guard=decoder.guard(instruction, scope),
                function=_identity,
                sources=(value,),
                targets=(Write(index),),
            )
        )


def atomic(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    """atom, with a result, and red, without."""
    has_result = match.form.meaning == "atomic"
    target, address, *operands = instruction.operands if has_result else (None, *instruction.operands)
    kind = match.choice["attype"]
    if address is None or len(operands) != (2 if match.choice["atop"] == "cas" else 1):
        decoder.refuse(instruction)
    read, offset = _place(decoder, instruction, address, scope)
    values = tuple(decoder.read(operand, kind, scope, instruction) for operand in operands)
    access = _access(decoder, match, kind, 1, offset) | {"space": _SPACES.get(match.choice.get("aspace", ""), "generic")}
    decoder.emit(
        Atomic(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            sources=(read, *values),
            targets=() if target is None else (decoder.write(target, kind, scope, instruction),),
            operation=match.choice["atop"],
            type=kind,
            **access,
        )
    )


def _access(decoder: Decoder, match: Match, kind: str, count: int, offset: int) -> dict[str, Any]:
    dtype = DTYPES[kind]
    space = _SPACES.get(match.choice.get("space", "global" if match.form.base == "ldu" else ""), "generic")
    for name in ("global", "shared") if space == "generic" else (space,):
        decoder.granules[name] = min(decoder.granules.get(name, 16), dtype.itemsize)
    ordered = match.choice.get("order") in _ORDERED
    return {"space": space, "dtype": dtype, "count": count, "offset": offset, "ordered": ordered}


def _place(decoder: Decoder, instruction: Instruction, operand: Operand, scope: Scope) -> tuple[Read, int]:
    """The register an address starts from, as 64 bits or (in shared memory) 32, and the bytes to add."""
    if not isinstance(operand, Address):
        decoder.refuse(instruction)
    if isinstance(operand.base, int):
        return Read(decoder.file.constant(operand.base + operand.offset, U64), U64), 0
    found = scope.register(operand.base, decoder.file)
    if found is None:
        place = decoder.address(operand.base, instruction) + operand.offset
        return Read(decoder.file.constant(place, U64), U64), 0
    index, kind = found
    return Read(index, U64 if DTYPES[kind].itemsize == 8 else U32), operand.offset


def branch(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    (target,) = instruction.operands
    label = scope.label(target.text) if isinstance(target, Name) else None
    if label is None:
        decoder.refuse(instruction)
    decoder.emit(Branch(site=decoder.site(instruction), guard=decoder.guard(instruction, scope), labels=(label,)))


def branch_by_index(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    index, table = instruction.operands
    names = scope.table(table.text) if isinstance(table, Name) else None
    labels = [scope.label(name) for name in names or ()]
    if not labels or instruction.guard or any(label is None for label in labels):
        decoder.refuse(instruction)
    read = decoder.read(index, "u32", scope, instruction)
    decoder.emit(Branch(site=decoder.site(instruction), sources=(read,), labels=tuple(label for label in labels if label)))


def call(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    decoder.emit(Nothing(site=decoder.site(instruction)))
    decoder.call(instruction, scope)


def leave(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    """ret and exit: from an inlined function back behind its call, from the kernel out."""
    site, guard = decoder.site(instruction), decoder.guard(instruction, scope)
    label = decoder.return_label if match.form.meaning == "return" else None
    decoder.emit(Exit(site=site, guard=guard) if label is None else Branch(site=site, guard=guard, labels=(label,)))


def trap(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    decoder.emit(Exit(site=decoder.site(instruction), guard=decoder.guard(instruction, scope), trap=True))


def barrier(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    """bar.sync 0 and bar.red: the whole block. Named barriers and those for some of the threads are not modelled."""
    operands = list(instruction.operands)
    reduction, targets, predicate = "", (), ()
    if match.form.meaning != "block barrier":
        reduction = match.choice.get("barred", "popc")
        targets = (decoder.write(operands.pop(0), match.results[0], scope, instruction),)
        predicate = (decoder.read(operands.pop(), "pred", scope, instruction),)
    number = getattr(operands[0], "value", None)
    if len(operands) != 1 or number != 0 or instruction.guard:
        decoder.refuse(instruction)
    decoder.emit(Barrier(site=decoder.site(instruction), reduction=reduction, targets=targets, sources=predicate))


def warp_barrier(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    decoder.emit(
        WarpBarrier(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            sources=(decoder.read(instruction.operands[0], "b32", scope, instruction),),
        )
    )


def fence(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    decoder.emit(Fence(site=decoder.site(instruction), guard=decoder.guard(instruction, scope)))


def nothing(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    decoder.emit(Nothing(site=decoder.site(instruction)))


def between_lanes(decoder: Decoder, instruction: Instruction, match: Match, scope: Scope) -> None:
    """Shuffles, votes and their like."""
    target, *operands = instruction.operands
    if not isinstance(target, Name):
        decoder.refuse(instruction)
    names = [Name(target.text)] + ([Name(target.second)] if target.second else [])
    sources = tuple(decoder.read(o, t, scope, instruction) for o, t in zip(operands, match.sources, strict=True))
    targets = tuple(decoder.write(n, t, scope, instruction) for n, t in zip(names, match.results, strict=False))
    mode = match.choice.get("shmode") or match.choice.get("votemode") or match.choice.get("redop") or ""
    decoder.emit(
        WarpStep(
            site=decoder.site(instruction),
            guard=decoder.guard(instruction, scope),
            sources=sources,
            targets=targets,
            name=str(match.form.meaning),
            mode=mode,
        )
    )


ACTIONS: dict[str, Callable[[Decoder, Instruction, Match, Scope], None]] = {
    "move": move,
    "convert address": convert_address,
    "address is in space": address_is_in_space,
    "load": load,
    "store": store,
    "atomic": atomic,
    "reduction": atomic,
    "branch": branch,
    "branch by index": branch_by_index,
    "call": call,
    "return": leave,
    "exit": leave,
    "trap": trap,
    "block barrier": barrier,
    "counting barrier": barrier,
    "voting barrier": barrier,
    "warp barrier": warp_barrier,
    "fence": fence,
    "shuffle": between_lanes,
    "vote": between_lanes,
    "ballot": between_lanes,
    "match": between_lanes,
    "warp reduction": between_lanes,
    "active mask": between_lanes,
    "nothing": nothing,
}
