"""Decode wmma: a warp loads, multiplies and stores matrices, with an unspecified layout of registers.

Here it is the layout of mma.sync (`matrices`), so accesses are counted for that layout. A product of 8 rows is computed
as its transpose.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from pytest_bandwidth.features.traffic.ptx import matrices
from pytest_bandwidth.features.traffic.ptx.actions import access_of, identity, pack, place_of, unpack
from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, chosen
from pytest_bandwidth.features.traffic.ptx.operands import Here
from pytest_bandwidth.features.traffic.ptx.parsing import Operand, items_of
from pytest_bandwidth.features.traffic.ptx.program import Compute, Load, Read, Step, Store, WarpStep, Write

_GROUP, _IN_GROUP = np.divmod(np.arange(32), 4)


class _Fragment(NamedTuple):
    """Describe the layout of a fragment.

    rows, columns: of the matrix. registers: for each register, by lane, the row and column of its first element.
    by_row: whether the elements of a register, and of two neighbours in C, are consecutive in a row, else in a column.
    kind: type of an element. per: elements per register.
    """

    rows: int
    columns: int
    registers: tuple[tuple[Array, Array], ...]
    by_row: bool
    kind: str
    per: int


def _fragment(operand: str, shape: str, kind: str) -> _Fragment:
    """Return the layout of A, B, or C and D (of `kind` f16, f32 or s32)."""
    rows, columns, depth = matrices.sizes(shape)
    if operand in ("a", "b"):
        per = 32 // matrices.BITS[kind]
        blocks, deep = (rows if operand == "a" else columns) // 8, depth // (4 * per)
        places = [(8 * i + _GROUP, 4 * per * k + per * _IN_GROUP) for k in range(deep) for i in range(blocks)]
        if operand == "a":
            return _Fragment(rows, depth, tuple(places), True, kind, per)
        return _Fragment(depth, columns, tuple((row, column) for column, row in places), False, kind, per)
    per, turned = 2 if kind == "f16" else 1, rows == 8
    places = [
        (16 * i + 8 * half + _GROUP, 8 * j + 2 * _IN_GROUP + element)
        for i in range((columns if turned else rows) // 16)
        for j in range((rows if turned else columns) // 8)
        for half in (0, 1)
        for element in range(0, 2, per)
    ]
    registers = tuple((column, row) if turned else (row, column) for row, column in places)
    return _Fragment(rows, columns, registers, not turned, kind, per)


def _held(here: Here, operand: Operand, fragment: _Fragment) -> tuple[Operand, ...]:
    """Return the operand's registers. A and B of f16 always have eight: in small shapes some hold the same values."""
    items = items_of(operand)
    if len(items) % len(fragment.registers) or (len(items) != len(fragment.registers) and fragment.kind != "f16"):
        here.refuse()
    return items


class _Part(NamedTuple):
    """Hold one access of a fragment: address, first register, and part of that register."""

    step: Step
    address: Read
    register: int
    part: int
    access: dict[str, Any]


def _parts(here: Here, operand: str, start: Operand, stride: Sequence[Operand], fragment: _Fragment) -> Iterator[_Part]:
    """Yield the accesses: each of two registers of C or D, of one register, or of a part of one."""
    base, offset = place_of(here, start)
    by_row, file = here.choice["rowcol"] == "row", here.context.file
    least = fragment.columns if by_row else fragment.rows
    leading = here.read(stride[0], "u32") if stride else here.constant(least)
    lane = Read(file.special("%laneid"), DTYPES["u32"])
    along = by_row == fragment.by_row
    parts = 1 if along else fragment.per
    at_once = 2 if along and operand in ("c", "d") and fragment.per == 1 else 1
    nbytes = 4 // fragment.per
    for register in range(0, len(fragment.registers), at_once):
        for part in range(parts):
            outer, inner = fragment.registers[register] if by_row else reversed(fragment.registers[register])
            address = Write(file.new())
            function = partial(_address, outer + part * (not along), inner, nbytes, offset)
            step = Compute(**here.placed(), function=function, sources=(base, leading, lane), targets=(address,))
            access = access_of(here, f"b{32 // parts}", at_once, 0)
            yield _Part(step, Read(address.register, base.dtype), register, part, access)


def _address(outer: Array, inner: Array, nbytes: int, offset: int, base: Array, leading: Array, lane: Array) -> Array:
    number = lane.astype(np.int64)
    place = (outer[number] * leading.astype(np.int64) + inner[number]) * nbytes + offset
    return base + place.astype(base.dtype)


def load(here: Here) -> Sequence[Step]:
    target, start, *stride = here.operands
    fragment = _fragment(here.choice["operand"], here.choice["wshape"], _kind(here))
    items, kind = _held(here, target, fragment), matrices.register_type(fragment.kind)
    steps: list[Step] = []
    words: dict[int, list[Read]] = {}
    for part in _parts(here, here.choice["operand"], start, stride, fragment):
        into = [here.context.file.new() for _ in range(part.access["count"])]
        steps += [
            part.step,
            Load(**here.placed(), sources=(part.address,), targets=tuple(map(Write, into)), **part.access),
        ]
        for register, word in enumerate(into, part.register):
            words.setdefault(register, []).append(Read(word, part.access["dtype"]))
    for register, found in words.items():
        whole = [replace(found[0], dtype=DTYPES[kind])] if len(found) == 1 else found
        function = identity if len(found) == 1 else partial(pack, DTYPES[kind])
        for item in items[register :: len(fragment.registers)]:
            held = (here.write(item, kind),)
            steps.append(Compute(**here.placed(), function=function, sources=tuple(whole), targets=held))
    return steps


def store(here: Here) -> Sequence[Step]:
    start, source, *stride = here.operands
    fragment = _fragment("d", here.choice["wshape"], _kind(here))
    held = [here.read(item, matrices.register_type(fragment.kind)) for item in _held(here, source, fragment)]
    steps: list[Step] = []
    for part in _parts(here, "d", start, stride, fragment):
        dtype, values = part.access["dtype"], held[part.register : part.register + part.access["count"]]
        if dtype.itemsize < 4:
            cut = Write(here.context.file.new())
            function, targets = partial(unpack, dtype), (*[None] * part.part, cut)
            steps.append(Compute(**here.placed(), function=function, sources=tuple(values), targets=targets))
            values = [Read(cut.register, dtype)]
        words = tuple(replace(value, dtype=dtype) for value in values)
        steps += [part.step, Store(**here.placed(), sources=(part.address, *words), **part.access)]
    return steps


def _kind(here: Here) -> str:
    """Return the elements' type, which must be one that the ISA has for this operand."""
    kind, is_product = chosen(here.choice, "wtype", "wresult"), here.choice.get("operand") in ("a", "b")
    inputs = ("tf32",) if here.choice["wshape"] == "m16n16k8" else ("f16", "bf16", "s8", "u8")
    if kind not in (inputs if is_product else ("f16", "f32", "s32")):
        here.refuse()
    return kind


def multiply(here: Here) -> Sequence[Step]:
    shape, result = chosen(here.choice, "wshape", "hshape"), chosen(here.choice, "hresult", "tresult")
    accumulated = chosen(here.choice, "haccumulated", "taccumulated")
    left, right = (here.choice.get(name, "f16") for name in ("tleft", "tright"))
    depth = {"tf32": 8}.get(left, 16)
    if (
        left != right
        or matrices.sizes(shape)[2] != depth
        or not matrices.exists(depth, left, right, result, accumulated)
        or ("satfinite" in here.choice and result != "s32")
    ):
        here.refuse()
    fragments = [_fragment(name, shape, kind) for name, kind in zip("dabc", (result, left, right, result), strict=True)]
    d, a, b, c = (
        _held(here, operand, fragment)[: len(fragment.registers)]
        for operand, fragment in zip(here.operands, fragments, strict=True)
    )
    kind, counts = matrices.register_type(result), (len(a), len(b))
    sources = [*(here.read(one, "b32") for one in (*a, *b)), *(here.read(one, kind) for one in c)]
    targets = tuple(here.write(one, kind) for one in d)
    total = "saturated" if "satfinite" in here.choice else result
    function = partial(_product, shape, left, total, counts)
    step = WarpStep(**here.placed(), sources=tuple(sources), targets=targets, name="wmma", function=function)
    return [step]


def _product(
    shape: str, kind: str, result: str, counts: tuple[int, int], _active: Array, *words: Array
) -> tuple[Array, ...]:
    rows, columns, _ = matrices.sizes(shape)
    a = matrices.eights(words[: counts[0]], kind, rows // 8)
    b = matrices.eights(words[counts[0] : sum(counts)], kind, columns // 8)
    c = words[sum(counts) :]
    if rows == 8:
        a, b = b, a
    blocks = a.shape[-2] // 16
    each = len(c) // blocks
    parts = [
        matrices.added(a[..., 16 * i : 16 * i + 16, :], b, c[i * each : (i + 1) * each], result) for i in range(blocks)
    ]
    return tuple(word for part in parts for word in part)


WMMA = {"load of a matrix": load, "store of a matrix": store, "product of matrices": multiply}
