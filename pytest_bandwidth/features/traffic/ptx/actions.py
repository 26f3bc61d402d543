"""Decode opcodes that are no computation: those that move values or threads, and those that access memory.

Parameters with a name are registers, of the launch or of an inlined call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

import numpy as np

from pytest_bandwidth.domain.errors import NotOnThisDevice
from pytest_bandwidth.features.traffic.ptx import matrices, memory, program
from pytest_bandwidth.features.traffic.ptx.lanes import EXCHANGES
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, SETS, chosen
from pytest_bandwidth.features.traffic.ptx.operands import Here
from pytest_bandwidth.features.traffic.ptx.parsing import Address, Name, Operand, Vector, items_of

# State spaces by the opcode's modifier. The part after ``::`` makes no difference here.
SPACES = {name: cast("program.Space", name.partition("::")[0]) for name in SETS["space"]}


# Clock registers: the number of bits, and the first bit.
_CLOCKS = {
    **dict.fromkeys(("%clock", "%globaltimer_lo"), (32, 0)),
    **dict.fromkeys(("%clock_hi", "%globaltimer_hi"), (32, 32)),
    **dict.fromkeys(("%clock64", "%globaltimer"), (64, 0)),
}


def move(here: Here) -> Sequence[program.Step]:
    """Decode mov: a copy; with a vector on one side, packs or unpacks it."""
    target, source = here.operands
    kind = here.choice["mtype"]
    if isinstance(source, Name) and source.text in _CLOCKS:
        bits, shift = _CLOCKS[source.text]
        if DTYPES[kind].itemsize * 8 != bits:
            here.refuse(f" of {source.text}, a .u{bits} register")
        return [program.Clock(**here.placed(), targets=(here.write(target, kind),), shift=shift, dtype=DTYPES[kind])]
    if isinstance(source, Vector):
        part = f"b{DTYPES[kind].itemsize * 8 // len(source.items)}"
        reads = tuple(here.read(item, part) for item in source.items)
        return _computed(here, partial(pack, DTYPES[kind]), reads, here.write(target, kind))
    if isinstance(target, Vector):
        part = f"b{DTYPES[kind].itemsize * 8 // len(target.items)}"
        read = here.read(source, kind)
        writes = (here.write(item, part) for item in target.items)
        return _computed(here, partial(unpack, DTYPES[part]), (read,), *writes)
    return _computed(here, identity, (here.read(source, kind),), here.write(target, kind))


def _computed(
    here: Here, function: Callable[..., Any], sources: tuple[program.Read, ...], *targets: program.Write | None
) -> list[program.Step]:
    return [program.Compute(**here.placed(), function=function, sources=sources, targets=targets)]


def identity(a: Any) -> Any:
    return a


def pack(dtype: np.dtype[Any], *parts: Any) -> Any:
    unsigned, bits = np.dtype(f"u{dtype.itemsize}"), dtype.itemsize * 8 // len(parts)
    word = parts[0].astype(unsigned)
    for place, part in enumerate(parts[1:], 1):
        word = word | (part.astype(unsigned) << unsigned.type(bits * place))
    return word


def unpack(part: np.dtype[Any], word: Any) -> Any:
    bare, count = word.view(f"u{word.dtype.itemsize}"), word.dtype.itemsize // part.itemsize
    return tuple((bare >> bare.dtype.type(8 * part.itemsize * place)).astype(part) for place in range(count))


def convert_address(here: Here) -> Sequence[program.Step]:
    """Decode cvta: global, const and param addresses are generic already; shared and local ones lie in a window."""
    target, source = here.operands
    base = memory.WINDOWS.get(SPACES[here.choice["holding"]], 0)
    shift = np.full((1, 1), base, np.uint64)
    function: Callable[..., Any] = identity
    if base:
        function = (lambda a: a - shift) if "to" in here.choice else (lambda a: a + shift)
    return _computed(here, function, (here.read(source, "u64"),), here.write(target, "u64"))


def address_is_in_space(here: Here) -> Sequence[program.Step]:
    target, source = here.operands
    space = SPACES[here.choice["window"]]
    regions = {"shared": memory.SHARED_REGION, "local": memory.LOCAL_REGION}

    def within(address: Any) -> Any:
        region = address >> np.uint64(memory.REGION_SHIFT)
        return region == regions[space] if space in regions else region >= memory.FIRST_VARIABLE_REGION

    return _computed(here, within, (here.read(source, "u64"),), here.write(target, "pred"))


def branch(here: Here) -> Sequence[program.Step]:
    (target,) = here.operands
    if not isinstance(target, Name):
        here.refuse()
    return [program.Branch(**here.placed(), labels=(here.label(target.text),))]


def branch_by_index(here: Here) -> Sequence[program.Step]:
    index, table = here.operands
    names = here.scope.tables.get(table.text) if isinstance(table, Name) else None
    if not names or here.instruction.guard:
        here.refuse()
    return [program.Branch(**here.placed(), sources=(here.read(index, "u32"),), labels=tuple(map(here.label, names)))]


def barrier(here: Here) -> Sequence[program.Step]:
    """Decode bar.sync and bar.red. With a count of threads it is one for part of the block."""
    operands = list(here.operands)
    reduction, targets, predicate = "", [], []
    if here.match.form.meaning != "block barrier":
        reduction = here.choice.get("barred", "popc")
        targets = [here.write(operands.pop(0), here.match.results[0])]
        predicate = [here.read(operands.pop(), "pred")]
    elif len(operands) == 2 and not here.instruction.guard:
        return [program.Barrier(site=here.site(), is_named=True, sources=_number_and_count(here))]
    if len(operands) != 1 or here.instruction.guard:
        here.refuse()
    return [program.Barrier(site=here.site(), reduction=reduction, targets=tuple(targets), sources=tuple(predicate))]


def _number_and_count(here: Here) -> tuple[program.Read, ...]:
    number, count = here.operands
    return here.read(number, "u32"), here.read(count, "u32")


def cluster_barrier(here: Here) -> Sequence[program.Step]:
    """Decode barrier.cluster.wait; arrivals are not checked."""
    if here.instruction.guard:
        here.refuse()
    return [program.Barrier(site=here.site(), cluster=True)]


def warp_barrier(here: Here) -> Sequence[program.Step]:
    return [program.WarpBarrier(**here.placed(), sources=(here.read(here.operands[0], "b32"),))]


def policy(here: Here) -> Sequence[program.Step]:
    """Decode createpolicy: its result is a hint to caches, which are not modelled."""
    return _computed(here, identity, (here.constant(0, "u64"),), here.write(here.operands[0], "b64"))


def between_lanes(here: Here) -> Sequence[program.Step]:
    """Decode shuffles, votes and similar exchanges between lanes."""
    target, *operands = here.operands
    if not isinstance(target, Name):
        here.refuse()
    mode = chosen(here.choice, "shmode", "votemode", "redop", "bitop")
    return [
        program.WarpStep(
            **here.placed(),
            sources=tuple(here.read(o, kind) for o, kind in zip(operands, here.match.sources, strict=True)),
            targets=tuple(here.write(n, kind) for n, kind in zip(target.each, here.match.results, strict=False)),
            name=str(here.match.form.meaning),
            mode=mode,
            function=partial(EXCHANGES[str(here.match.form.meaning)], mode),
        )
    ]


_ORDERED = ("relaxed", "acquire", "release", "acq_rel")

# Types of each atomic operation (PTX ISA 9.0, atom). NVRTC does not check inline assembler, so any combination may
# occur; others than these would be computed as another operation or type.
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


def _unhinted(here: Here) -> Sequence[Operand]:
    """Return an access's operands without the policy of a cache hint."""
    return here.operands[:-1] if "L2::cache_hint" in here.choice else here.operands


def load(here: Here) -> Sequence[program.Step]:
    target, address = _unhinted(here)
    kind = here.choice["memory"]
    writes = tuple(here.write(item, kind) for item in items_of(target))
    if SPACES.get(chosen(here.choice, "space")) == "param" and isinstance(address, Address):
        base = str(address.base)
        if base in here.scope.parameters or base in here.context.parameters:  # else the address is computed
            return _load_parameter(here, address, kind, writes)
    read, offset = place_of(here, address)
    return [
        program.Load(**here.placed(), sources=(read,), targets=writes, **access_of(here, kind, len(writes), offset))
    ]


def _load_parameter(
    here: Here, address: Address, kind: str, writes: Sequence[program.Write | None]
) -> Sequence[program.Step]:
    """Copy from the registers of a named parameter."""
    base, dtype = str(address.base), DTYPES[kind]
    slot, parameter = here.scope.parameters.get(base), here.context.parameters.get(base)
    steps: list[program.Step] = []
    for place, write in enumerate(writes):
        offset = address.offset + place * dtype.itemsize
        if slot is not None:
            index = here.slot(slot, offset, kind)
        elif parameter is not None and 0 <= offset <= parameter.size - dtype.itemsize:
            index = here.context.file.argument(parameter.offset + offset, dtype)
        else:
            here.refuse()
        steps += _computed(here, identity, (program.Read(index, dtype),), write)
    return steps


def store(here: Here) -> Sequence[program.Step]:
    address, value = _unhinted(here)
    kind = here.choice["memory"]
    values = tuple(here.read(item, kind) for item in items_of(value))
    if SPACES.get(chosen(here.choice, "stspace")) == "param":
        return _store_parameter(here, address, kind, values)
    read, offset = place_of(here, address)
    return [program.Store(**here.placed(), sources=(read, *values), **access_of(here, kind, len(values), offset))]


def _store_parameter(here: Here, address: Operand, kind: str, values: Sequence[program.Read]) -> Sequence[program.Step]:
    slot = here.scope.parameters.get(str(address.base)) if isinstance(address, Address) else None
    if slot is None or not isinstance(address, Address):
        here.refuse()
    size = DTYPES[kind].itemsize
    steps: list[program.Step] = []
    for place, value in enumerate(values):
        steps += _computed(
            here, identity, (value,), program.Write(here.slot(slot, address.offset + place * size, kind))
        )
    return steps


def atomic(here: Here) -> Sequence[program.Step]:
    """Decode atom, with a result, and red, without; on sm_90 and later also for vectors."""
    operands = list(_unhinted(here))
    kind = chosen(here.choice, "attype", "redtype")
    target = operands.pop(0) if here.match.form.meaning == "atomic" else None
    address, *values = operands
    operation = chosen(here.choice, "atop", "redatop")
    if len(values) != (2 if operation == "cas" else 1) or kind not in _ATOMIC_TYPES[operation]:
        here.refuse()
    if "vec" in here.choice and kind not in _VECTOR_TYPES:
        here.refuse()
    items = [item for value in values for item in items_of(value)]
    count = int(here.choice["vec"][1:]) if "vec" in here.choice else 1
    read, offset = place_of(here, address)
    return [
        program.Atomic(
            **here.placed(),
            sources=(read, *(here.read(item, kind) for item in items)),
            targets=tuple(here.write(item, kind) for item in items_of(target)),
            operation=operation,
            type=kind,
            **access_of(here, kind, count, offset),
        )
    ]


def asynchronous_copy(here: Here) -> Sequence[program.Step]:
    """Decode cp.async: a load from global memory and a store to shared memory.

    Its optional last operand is the number of bytes to read: all or 0; then zeros are stored.
    """
    to, start, size, *read_bytes = _unhinted(here)
    nbytes = getattr(size, "value", 0)
    if nbytes not in ((16,) if here.choice["cpcache"] == "cg" else (4, 8, 16)) or len(read_bytes) > 1:
        here.refuse()
    b32, file, placed = DTYPES["b32"], here.context.file, here.placed()
    site, guard, words = placed["site"], placed["guard"], [file.new() for _ in range(nbytes // 4)]
    zero = here.constant(0)
    steps: list[program.Step] = [
        program.Compute(site=site, function=identity, sources=(zero,), targets=(program.Write(w),)) for w in words
    ]
    if read_bytes:
        guard, step = _narrowed(here, site, guard, here.read(read_bytes[0], "u32"), partial(_reads_all, nbytes))
        steps.append(step)
    read, offset = place_of(here, start)
    into = tuple(map(program.Write, words))
    held = access_of(here, "b32", len(words), offset, "global")
    steps.append(program.Load(site=site, guard=guard, sources=(read,), targets=into, **held))
    read, offset = place_of(here, to)
    access = access_of(here, "b32", len(words), offset, "shared")
    return [*steps, program.CopyStore(**placed, sources=(read, *(program.Read(word, b32) for word in words)), **access)]


def _reads_all(nbytes: int, size: Any) -> Any:
    if ((size != 0) & (size != nbytes)).any():
        raise NotOnThisDevice(f"cp.async reads some of its {nbytes} bytes, which the traffic device does not model")
    return size != 0


def _narrowed(
    here: Here, site: int, guard: program.Read | None, source: program.Read, holds: Callable[[Any], Any]
) -> tuple[program.Read, program.Step]:
    """Return a guard that is true where `guard` and `holds(source)` are, and the step that computes it."""
    both, sources = here.context.file.new(), (source,) if guard is None else (source, guard)

    def function(value: Any, held: Any = True) -> Any:
        return holds(value) & held

    return program.Read(both, DTYPES["pred"]), program.Compute(
        site=site, function=function, sources=sources, targets=(program.Write(both),)
    )


def copy_group(here: Here) -> Sequence[program.Step]:
    """Decode commit_group, wait_group N and wait_all of cp.async and cp.async.bulk."""
    bulk = "bulk" in here.choice
    if here.match.form.meaning == "copies committed":
        return [program.CopyGroup(**here.placed(), commits=True, bulk=bulk)]
    groups = [getattr(operand, "value", None) for operand in here.operands]
    if len(groups) != ("wait_group" in here.choice) or not all(isinstance(n, int) for n in groups):
        here.refuse()
    return [program.CopyGroup(**here.placed(), commits=False, left=groups[0] if groups else None, bulk=bulk)]


def bulk_copy(here: Here) -> Sequence[program.Step]:
    """Decode cp.async.bulk: to shared memory, completed on an mbarrier, or to global memory, in a bulk group."""
    to_global = "bulk_group" in here.choice
    to, start, size, *rest = here.operands
    given = (not to_global) + ("L2::cache_hint" in here.choice)
    if len(rest) != given:
        here.refuse()
    placed, sources, parts = here.placed(), [], []
    spaces: tuple[program.Space, program.Space] = ("global", "shared") if to_global else ("shared", "global")
    for operand, space in zip((to, start), spaces, strict=True):
        read, offset = place_of(here, operand)
        sources.append(read)
        parts.append(program.BulkPart(site=placed["site"], **access_of(here, "b32", 0, offset, space)))
    sources.append(here.read(size, "u32"))
    copying = program.BulkCopy(**placed, sources=tuple(sources), writes=parts[0], reads=parts[1])
    if to_global:
        return [copying]
    given_bytes = [here.constant(0), sources[2]]
    return [copying, *_on_mbarrier(here, rest[0], given_bytes, [], operation="complete", orders=True, joins=True)]


def mbarrier(here: Here) -> Sequence[program.Step]:
    """Decode opcodes that init, invalidate and update an mbarrier; it comes before the last operand, if any."""
    operands = list(here.operands)
    arrives = "arrival" in here.choice
    target = here.write(operands.pop(0), "b64") if arrives else None
    start, *given = operands
    value = here.read(given[0], "u32") if given else here.constant(1)
    if len(given) > 1 or (not given and not arrives and "inval" not in here.choice):
        here.refuse()
    zero, one = here.constant(0), here.constant(1)
    if arrives:
        sources = [one, value] if "expect_tx" in here.choice else [value, zero]
    elif "expect_tx" in here.choice or "complete_tx" in here.choice:
        sources = [zero, value]
    else:
        sources = [] if "inval" in here.choice else [value]
    operation = next((name for name in ("init", "inval") if name in here.choice), "update")
    return _on_mbarrier(
        here,
        start,
        sources,
        [target] if arrives else [],
        operation="complete" if "complete_tx" in here.choice else operation,
        drops=here.choice.get("arrival") == "arrive_drop",
        orders=arrives and here.choice.get("asem") != "relaxed",
    )


def wait_for_mbarrier(here: Here) -> Sequence[program.Step]:
    """Decode test_wait and try_wait. Here try_wait does not wait, since kernels repeat it."""
    target, start, value, *_ = here.operands
    source, ended = here.read(value, here.match.sources[0]), here.write(target, "pred")
    orders, parity = here.choice.get("wsem") != "relaxed", "parity" in here.choice
    return _on_mbarrier(here, start, [source], [ended], operation="test", orders=orders, parity=parity)


def copies_join_mbarrier(here: Here) -> Sequence[program.Step]:
    """Decode cp.async.mbarrier.arrive: an arrival; without .noinc the phase expects one more."""
    (start,) = here.operands
    sources = [here.constant(int("noinc" in here.choice)), here.constant(0)]
    return _on_mbarrier(here, start, sources, [], operation="update", orders=True, joins=True)


def _on_mbarrier(
    here: Here, start: Operand, sources: Sequence[program.Read], targets: Sequence[program.Write | None], **how: Any
) -> Sequence[program.Step]:
    read, offset = place_of(here, start)
    space: program.Space | None = "shared" if chosen(here.choice, "shmem", "mspace", "bulkto") else None
    access = access_of(here, "b64", 1, offset, space) | {"ordered": how["operation"] == "test"}
    return [program.BarrierStep(**here.placed(), sources=(read, *sources), targets=tuple(targets), **access, **how)]


def matrix_rows(here: Here) -> Sequence[program.Step]:
    """Decode ldmatrix and stmatrix: lanes load rows of 16 bytes and the warp exchanges them, or the other way round."""
    loads, transposed = here.match.form.meaning == "matrix load", "trans" in here.choice
    held, start = here.operands if loads else here.operands[::-1]
    count, placed, registers = int(here.choice["matrices"][1:]), here.placed(), items_of(held)
    if len(registers) != count:
        here.refuse()
    guarding: list[program.Step] = []
    if count < 4:
        lane = program.Read(here.context.file.special("%laneid"), DTYPES["u32"])
        first = partial(operator.gt, np.uint32(8 * count))
        placed["guard"], step = _narrowed(here, placed["site"], placed["guard"], lane, first)
        guarding.append(step)
    address, offset = place_of(here, start)
    words = [here.context.file.new() for _ in range(4)]
    into, of = tuple(map(program.Write, words)), tuple(program.Read(word, DTYPES["b32"]) for word in words)
    access = access_of(here, "b32", 4, offset, "shared")
    exchange = here.placed()
    if loads:
        targets = tuple(here.write(register, "b32") for register in registers)
        exchange["function"] = partial(matrices.distributed, count, transposed)
        load = program.Load(**placed, sources=(address,), targets=into, **access)
        return [*guarding, load, program.WarpStep(sources=of, targets=targets, name="ldmatrix", **exchange)]
    sources = tuple(here.read(register, "b32") for register in registers)
    exchange["function"] = partial(matrices.collected, transposed)
    gathered = program.WarpStep(sources=sources, targets=into, name="stmatrix", **exchange)
    return [gathered, *guarding, program.Store(**placed, sources=(address, *of), **access)]


def matrix_product(here: Here) -> Sequence[program.Step]:
    """Decode mma.sync of 16 × 8 results, or of 8 × 8 whole numbers."""
    _, _, depth = matrices.sizes(here.choice["mshape"])
    left, right = here.choice["mleft"], here.choice["mright"]
    result, eight = here.choice["mresult"], here.choice["mshape"].startswith("m8")
    saturates = "satfinite" in here.choice
    if not matrices.exists(depth, left, right, result, here.choice["maccumulated"]) or (saturates and result != "s32"):
        here.refuse()
    held = [items_of(one) for one in here.operands]
    blocks, sums = depth * matrices.BITS[left] // 128, 2 if eight or result == "f16" else 4
    expected = [sums, blocks if eight else 2 * blocks, blocks, sums]
    if (eight and result != "s32") or [len(one) for one in held] != expected:
        here.refuse()
    kind = matrices.register_type(result)
    given = [here.read(one, "b32") for one in (*held[1], *held[2])] + [here.read(one, kind) for one in held[3]]
    targets = tuple(here.write(one, kind) for one in held[0])
    computed = matrices.product_of_eight_rows if eight else matrices.product
    function = partial(computed, depth, left, right, "saturated" if saturates else result)
    step = program.WarpStep(**here.placed(), sources=tuple(given), targets=targets, name="mma", function=function)
    return [step]


def group_product(here: Here) -> Sequence[program.Step]:
    """Decode wgmma.mma_async. It is computed at once: the wait for its result changes nothing here."""
    left, right, result = (here.choice[name] for name in ("mleft", "mright", "mresult"))
    _, columns, depth = matrices.sizes(here.choice["gshape"])
    held, a, b, adds, *numbers = here.operands
    registers = items_of(held)
    signs = [getattr(one, "value", None) for one in numbers]
    in_registers = isinstance(a, Vector)
    if (
        not matrices.exists(depth, left, right, result, result)
        or depth * matrices.BITS[left] != 256
        or len(registers) != columns // 8 * (2 if result == "f16" else 4)
        or not set(signs[:2]) <= {1, -1}
        or len(signs) not in ((0,) if result == "s32" else (2, 3) if in_registers else (2, 4))
        or not set(signs[2:]) <= ({0, 1} if matrices.BITS[left] == 16 else {0})
    ):
        here.refuse()
    kind = matrices.register_type(result)
    given = [here.read(one, "b32" if in_registers else "u64") for one in items_of(a)]
    sums = tuple(here.read(one, kind) for one in registers)
    turned = [False, *map(bool, signs[2:])][-2:] if len(signs) > 2 else [False, False]
    return [
        program.GroupProduct(
            **here.placed(),
            sources=(here.read(adds, "pred"), *sums, *given, here.read(b, "u64")),
            targets=tuple(here.write(one, kind) for one in registers),
            columns=columns,
            depth=depth,
            kinds=(left, right, result),
            transposed=(turned[0], turned[1]),
            negative=signs[:2] in ([1, -1], [-1, 1]),
            **access_of(here, "b32", 4, 0, "shared"),
        )
    ]


def access_of(here: Here, kind: str, count: int, offset: int, space: program.Space | None = None) -> dict[str, Any]:
    dtype = DTYPES[kind]
    named = "global" if here.match.form.base == "ldu" else chosen(here.choice, "space", "stspace", "aspace", "wspace")
    space = space or SPACES.get(named, "generic")
    granules, order = here.context.granules, chosen(here.choice, "lorder", "sorder", "order", "rorder")
    for name in ("global", "shared", "local") if space == "generic" else (space,):
        granules[name] = min(granules.get(name, 16), dtype.itemsize)
    return {
        "space": space,
        "dtype": dtype,
        "count": count,
        "offset": offset,
        "ordered": order in _ORDERED,
        "fresh": order in (*_ORDERED, "volatile"),
        "releases": order in ("release", "acq_rel"),
    }


def place_of(here: Here, operand: Operand) -> tuple[program.Read, int]:
    """Return an address's base register, of 64 or (in shared memory) 32 bits, and the offset in bytes."""
    if not isinstance(operand, Address):
        here.refuse()
    if isinstance(operand.base, int):
        return here.constant(operand.base + operand.offset, "u64"), 0
    found = here.scope.register(operand.base, here.context.file)
    if found is None:
        return here.constant(here.address(operand.base) + operand.offset, "u64"), 0
    index, kind = found
    return program.Read(index, DTYPES["u64" if DTYPES[kind].itemsize == 8 else "u32"]), operand.offset


ACTIONS: dict[str, Callable[[Here], Sequence[program.Step]]] = {
    "move": move,
    "convert address": convert_address,
    "address is in space": address_is_in_space,
    "branch": branch,
    "branch by index": branch_by_index,
    "exit": lambda here: [program.Exit(**here.placed())],
    "trap": lambda here: [program.Exit(**here.placed(), trap=True)],
    **dict.fromkeys(("block barrier", "counting barrier", "voting barrier"), barrier),
    "arrival": lambda here: [program.Arrive(**here.placed(), sources=_number_and_count(here))],
    "cluster barrier": cluster_barrier,
    "warp barrier": warp_barrier,
    "fence": lambda here: [program.Fence(**here.placed())],
    **dict.fromkeys(EXCHANGES, between_lanes),
    "policy": policy,
    "nothing": lambda here: [program.Nothing(**here.placed())],
    "asynchronous copy": asynchronous_copy,
    **dict.fromkeys(("copies committed", "copies awaited"), copy_group),
    "bulk copy": bulk_copy,
    "mbarrier": mbarrier,
    "wait for an mbarrier": wait_for_mbarrier,
    "copies join an mbarrier": copies_join_mbarrier,
    **dict.fromkeys(("matrix load", "matrix store"), matrix_rows),
    "matrix product": matrix_product,
    "product of a warp group": group_product,
    "load": load,
    "store": store,
    **dict.fromkeys(("atomic", "reduction"), atomic),
}
