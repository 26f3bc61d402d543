"""Write the steps that are no computation: memory, atomics, exchange between lanes."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from emulated_card.kernels.lanes import BlockWriter
from emulated_card.kernels.module import SPECIALS, special_at
from emulated_card.kernels.registers import not_translated
from pytest_bandwidth.features.traffic.ptx.program import (
    Atomic,
    CopyGroup,
    GroupProduct,
    Kernel,
    Load,
    Memory,
    Step,
    Store,
    WarpStep,
)

_SPACES = {"global": "GLOBAL", "generic": "GENERIC", "const": "CONSTANT"}
CHECK = "if (UNLIKELY(k->status)) goto leave;"


def write_call(writer: BlockWriter, step: Step) -> None:
    """Write a step that ends the loop over lanes, and begin the next with what it gave."""
    if isinstance(step, Load) and not isinstance(step, GroupProduct):
        _load(writer, step)
    elif isinstance(step, Store):  # that of an asynchronous copy, too: it is done at once
        _store(writer, step)
    elif isinstance(step, CopyGroup):
        writer.close_loop()
    elif isinstance(step, Atomic) and step.type[0] in "bsu":
        _atomic(writer, step)
    elif isinstance(step, WarpStep) and step.name == "shuffle":
        _shuffle(writer, step)
    elif isinstance(step, WarpStep) and step.name == "ballot":
        _ballot(writer, step)
    elif isinstance(step, WarpStep) and step.name == "ldmatrix":
        _matrices(writer, step)
    elif isinstance(step, WarpStep) and step.name == "mma":
        _product(writer, step)
    else:
        raise not_translated(writer.kernel, step)


def waits(kernel: Kernel, step: Memory) -> bool:
    """Tell whether a load is one that a spinning kernel makes."""
    return step.ordered or ".volatile" in kernel.sites[step.site].opcode


def _addresses(writer: BlockWriter, step: Memory) -> tuple[str, str]:
    """Write the lanes' addresses; returns their array and the mask of those that take part, for after the loop."""
    start = f"(uint64_t){writer.value(step.sources[0])} + {step.offset & (2**64 - 1):#x}ull"
    array = writer.array("uint64_t", start if step.space != "param" else f"{start} - REGION(PARAM_REGION)")
    return array, writer.mask(step.guard)


def _call(writer: BlockWriter, step: Memory, *lines: str) -> None:
    writer.close_loop()
    writer.lines += [f"k->site_line = {writer.kernel.sites[step.site].ptx_line};", *lines, CHECK]


def _load(writer: BlockWriter, step: Load) -> None:
    constant = writer.kernel.constants.get(step.sources[0].register)
    bits = b"" if constant is None else constant.tobytes()
    special = special_at(int.from_bytes(bits, "little")) if step.space == "global" else None
    if special is not None:
        now, which = writer.new_name(), SPECIALS[special].upper()
        writer.close_loop()
        writer.lines.append("w->common.cycles = issued;")
        writer.lines.append(f"const uint64_t {now} = read_special(k, &w->common, {which});")
        writer.results(step, [now])
        return
    address, mask = _addresses(writer, step)
    value, element = writer.new_name(), f"uint{step.dtype.itemsize * 8}_t"
    writer.lines.append(f"_Alignas(64) {element} {value}[{32 * step.count}];")
    where = {"shared": "load_shared(k", "local": "load_local(k, &w->common", "param": "load_parameters(k"}
    ending = f"{mask}, {address}, {step.width}, (char *){value}"
    if step.space in where:
        _call(writer, step, f"{where[step.space]}, {ending});")
    else:
        ordered = waits(writer.kernel, step)
        times = ["w->common.cycles = issued;"] if ordered else []
        start = f"load_global(k, &w->common, {_SPACES[step.space]}, {int(ordered)}"
        _call(writer, step, *times, f"{start}, {ending}, &hints[{step.site}]);")
    writer.results(step, [_of_bits(step.dtype, f"{value}[l * {step.count} + {n}]") for n in range(step.count)])


def _of_bits(dtype: np.dtype[Any], bits: str) -> str:
    return f"f{dtype.itemsize * 8}_of({bits})" if dtype.kind == "f" and dtype.itemsize > 2 else bits


def _bits_of(dtype: np.dtype[Any], value: str) -> str:
    return f"bits{dtype.itemsize * 8}({value})" if dtype.kind == "f" and dtype.itemsize > 2 else value


def _store(writer: BlockWriter, step: Store) -> None:
    address, mask = _addresses(writer, step)
    value = writer.new_name()
    writer.lines.append(f"_Alignas(64) uint{step.dtype.itemsize * 8}_t {value}[{32 * step.count}];")
    for n, read in enumerate(step.sources[1:]):
        bits = _bits_of(read.dtype, writer.value(read))
        writer.lines_of_loop.append(f"{value}[l * {step.count} + {n}] = {bits};")
    ending = f"{mask}, {address}, {step.width}, (const char *){value}"
    if step.space in ("shared", "local"):
        common = ", &w->common" if step.space == "local" else ""
        _call(writer, step, f"store_{step.space}(k{common}, {ending});")
    else:
        start = f"store_global(k, &w->common, {_SPACES[step.space]}"
        _call(writer, step, f"{start}, {ending}, &hints[{step.site}]);")


def _atomic(writer: BlockWriter, step: Atomic) -> None:
    address, mask = _addresses(writer, step)
    element = f"uint{step.dtype.itemsize * 8}_t"
    operands = [writer.array(element, _bits_of(read.dtype, writer.value(read))) for read in step.sources[1:]]
    old, place, active = writer.new_name(), writer.new_name(), writer.new_name()
    writer.close_loop()
    writer.lines += [
        f"{element} {old}[{32 * step.count}];",
        f"char *{place}[32];",
        f"const uint32_t {active} = {mask};",
    ]
    start = "shared_atomic_places(k" if step.space == "shared" else f"atomic_places(k, {_SPACES[step.space]}"
    hint = "" if step.space == "shared" else f", &hints[{step.site}]"
    _call(writer, step, f"{start}, {active}, {address}, {step.width}, {place}{hint});")
    writer.lines += [f"memset({old}, 0, sizeof {old});", f"LANES if ({active} >> l & 1) {{"]
    for n in range(step.count):
        new = _updated(step, f"{operands[n]}[l]", f"{operands[-1]}[l]")
        at = f"{place}[l] + {n * step.dtype.itemsize}"
        kept = f"{old}[l * {step.count} + {n}]"
        writer.lines += [
            f"  {{ {element} was, now; memcpy(&was, {at}, sizeof was); {kept} = was;",
            f"    now = {new}; memcpy({at}, &now, sizeof now); }}",
        ]
    writer.lines.append("}")
    writer.results(step, [_of_bits(step.dtype, f"{old}[l * {step.count} + {n}]") for n in range(step.count)])


def _updated(step: Atomic, value: str, other: str) -> str:
    """Write the new bits, from `was` and the operands' bits."""
    signed = f"(int{step.type[1:]}_t)" if step.type[0] == "s" else ""
    less = f"{signed}was < {signed}{value}"
    return {
        "and": f"was & {value}",
        "or": f"was | {value}",
        "xor": f"was ^ {value}",
        "exch": value,
        "add": f"was + {value}",
        "inc": f"was < {value} ? was + 1 : 0",
        "dec": f"was == 0 || was > {value} ? {value} : was - 1",
        "min": f"{less} ? was : {value}",
        "max": f"{less} ? {value} : was",
        "cas": f"was == {value} ? {other} : was",
    }[step.operation]


def _shuffle(writer: BlockWriter, step: WarpStep) -> None:
    names = [writer.array("uint32_t", writer.value(read)) for read in step.sources[:3]]
    result, inside = writer.new_name(), writer.new_name()
    writer.close_loop()
    writer.lines.append(f"uint32_t {result}[32], {inside}[32];")
    writer.lines.append(f"shuffle(SHUFFLE_{step.mode.upper()}, {', '.join(names)}, {result}, {inside});")
    writer.results(step, [f"{result}[l]", f"{inside}[l]"])


def _ballot(writer: BlockWriter, step: WarpStep) -> None:
    yes, members = (writer.array("uint32_t", writer.value(read)) for read in step.sources)
    result, mask = writer.new_name(), writer.mask(step.guard)
    writer.close_loop()
    writer.lines.append(f"const uint32_t {result} = {mask} & mask_of({yes});")
    writer.results(step, [f"({result} & {members}[l])"])


def _matrices(writer: BlockWriter, step: WarpStep) -> None:
    """Write what ldmatrix does once each lane has read a row."""
    count, transposed = _of_function(step)
    words = [writer.array("uint32_t", writer.value(read)) for read in step.sources]
    result = writer.new_name()
    writer.close_loop()
    writer.lines.append(f"uint32_t {result}[{count}][32];")
    given = f"(const uint32_t *[]){{{', '.join(words)}}}"
    writer.lines.append(f"distribute({count}, {int(transposed)}, {given}, {result});")
    writer.results(step, [f"{result}[{n}][l]" for n in range(count)])


# The C type of a product's sums, by the type of its factors.
_SUMS = {"f16": "float", "bf16": "float", "s8": "int32_t"}


def _product(writer: BlockWriter, step: WarpStep) -> None:
    depth, left, right, result_type = _of_function(step)
    if left != right or left not in _SUMS or result_type not in ("f32", "s32") or len(step.targets) != 4:
        raise not_translated(writer.kernel, step)
    kind = _SUMS[left]
    words = [writer.array("uint32_t", writer.value(read)) for read in step.sources[:-4]]
    added = [writer.array(kind, writer.value(read)) for read in step.sources[-4:]]
    result = writer.new_name()
    writer.close_loop()
    given = f"(const uint32_t *[]){{{', '.join(words)}}}, (const {kind} *[]){{{', '.join(added)}}}"
    writer.lines += [f"{kind} {result}[4][32];", f"multiply_{left}({depth}, {given}, {result});"]
    writer.results(step, [f"{result}[{n}][l]" for n in range(4)])


def _of_function(step: WarpStep) -> tuple[Any, ...]:
    assert isinstance(step.function, partial)
    return step.function.args
