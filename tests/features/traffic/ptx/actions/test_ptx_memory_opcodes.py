"""Loads, stores and atomics in every spelling: each type, width, space, order and hint, on real bytes."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from exact_opcodes import WIDTH
from opcode_lab import encoded, run_body, without_faults

from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.counts import Counts

TYPES = ("u8", "u16", "u32", "u64", "s8", "s16", "s32", "s64", "b8", "b16", "b32", "b64", "f32", "f64")
SOURCE = np.random.default_rng(1).integers(0, 256, 64, np.uint8)


def executed(body: str, *args: np.ndarray, threads: int = 1) -> Counts:
    """Run a body in which %p0, %p1 … are the arguments, also readable as a0, a1 …, and %t is the thread's number."""
    return without_faults(run_body(body, args, threads, version="8.8", arch="sm_100")).counts


def copied(load: str, store: str, kind: str, count: int) -> np.ndarray:
    """The bytes that a load from 16 bytes on and a store of the same type and width bring to another array."""
    registers = [f"%v{n}" for n in range(count)]
    value = registers[0] if count == 1 else f"{{{', '.join(registers)}}}"
    out = np.zeros(32, np.uint8)
    declared = f" .reg .b{max(16, int(kind[1:]))} {', '.join(registers)};\n"
    executed(f"{declared} {load} {value}, [%p1+32];\n {store} [%p0], {value};\n", out, SOURCE)
    width = count * int(kind[1:]) // 8
    assert not out[width:].any()
    return out[:width]


@pytest.mark.parametrize(("kind", "count"), [(k, c) for k in TYPES for c in (1, 2, 4, 8) if c * int(k[1:]) <= 256])
def test_every_type_and_width(kind: str, count: int) -> None:
    vector = "" if count == 1 else f".v{count}"
    expected = SOURCE[32 : 32 + count * int(kind[1:]) // 8]
    for load in ("ld.global", "ldu.global", "ld", "ld.global.nc"):
        if load == "ldu.global" and count * int(kind[1:]) > 128:
            continue
        found = copied(f"{load}{vector}.{kind}", f"st.global{vector}.{kind}", kind, count)
        np.testing.assert_array_equal(found, expected, err_msg=load)


@pytest.mark.parametrize("kind", [kind for kind in TYPES if kind[0] in "us"])
def test_wider_registers_are_extended_and_narrower_stores_cut_off(kind: str) -> None:
    out = np.zeros(2, np.uint64)
    body = f" .reg .b64 %v;\n ld.global.{kind} %v, [%p1];\n st.global.b64 [%p0], %v;\n st.global.{kind} [%p0+8], %v;\n"
    values = np.array([0x8182838485868788], np.uint64)
    executed(body, out, values)
    small = values.view(f"{'i' if kind[0] == 's' else 'u'}{int(kind[1:]) // 8}")[0]
    assert int(out[0]) == int(small) % 2**64
    assert int(out[1]) == int(small) % 2 ** int(kind[1:])


LOADS = (
    *(f"ld.{order}.global" for order in ("weak", "volatile")),
    *(f"ld.{order}.{scope}.global" for order in ("relaxed", "acquire") for scope in ("cta", "cluster", "gpu", "sys")),
    *(f"ld.global.{cop}" for cop in ("ca", "cg", "cs", "lu", "cv")),
    *(f"ld.global.nc.L1::{hint}" for hint in ("evict_normal", "evict_unchanged", "evict_first", "evict_last")),
    *("ld.global.L1::no_allocate", "ld.global.L1::no_allocate.L2::evict_normal.L2::64B", "ld.global.L2::evict_first"),
    *("ld.global.L2::evict_last", "ld.global.nc.L2::128B", "ld.global.L2::256B"),
)
STORES = (
    *(f"st.{order}.global" for order in ("weak", "volatile")),
    *(f"st.{order}.{scope}.global" for order in ("relaxed", "release") for scope in ("cta", "cluster", "gpu", "sys")),
    *(f"st.global.{cop}" for cop in ("wb", "cg", "cs", "wt")),
    *(f"st.global.L1::{hint}" for hint in ("evict_normal", "evict_unchanged", "evict_first", "evict_last")),
    *("st.global.L1::no_allocate", "st.global.L2::evict_normal", "st.global.L1::evict_last.L2::evict_first"),
    *("st.global.L2::evict_last", "st"),
)


@pytest.mark.parametrize(("load", "store"), list(itertools.zip_longest(LOADS, STORES, fillvalue="")))
def test_orders_and_hints_bring_the_same_bytes(load: str, store: str) -> None:
    found = copied(f"{load or 'ld.global'}.v2.u32", f"{store or 'st.global'}.v2.u32", "u32", 2)
    np.testing.assert_array_equal(found, SOURCE[32:40])


@pytest.mark.parametrize("name", ["shared", "shared::cta", "local"])
def test_spaces_of_a_block_and_a_thread(name: str) -> None:
    """A store by its space and a load through the generic address, and the other way round."""
    space, out = name.partition("::")[0], np.zeros(4, np.uint32)
    body = f""" .{space} .align 8 .b8 box[16];
 .reg .u32 %a, %b;
 mov.u64 %x, box;
 cvta.{name}.u64 %off, %x;
 st.{name}.u32 [%x+4], 11;
 st.u32 [%off+8], 22;
 ld.u32 %a, [%off+4];
 ld.{name}.u32 %b, [%x+8];
 st.global.v2.u32 [%p0], {{%a, %b}};
 cvta.to.{name}.u64 %off, %off;
 sub.s64 %off, %off, %x;
 st.global.u64 [%p0+8], %off;
"""
    executed(body, out)
    assert out.tolist() == [11, 22, 0, 0]


def test_parameters_have_addresses() -> None:
    out = np.zeros(4, np.uint64)
    body = """ .reg .u64 %a, %b;
 ld.param::entry.u64 %a, [a0];
 mov.b64 %x, a0;
 cvta.param.u64 %off, %x;
 ld.u64 %b, [%off];
 sub.s64 %b, %b, %a;
 st.global.u64 [%p0], %b;
 cvta.param::entry.u64 %off, %x;
 cvta.to.param.u64 %off, %off;
 ld.param.u64 %b, [%off];
 sub.s64 %b, %b, %p0;
 add.s64 %b, %b, 5;
 st.global.u64 [%p0+8], %b;
"""
    executed(body, out)
    assert out.tolist() == [0, 5, 0, 0]


KERNEL = r"""
struct Table { int values[8]; };
__constant__ int fixed[8] = {3, 1, 4, 1, 5, 9, 2, 6};
extern "C" __global__ void pick(int* out, const int* in, const __grid_constant__ Table table) {
    int i = threadIdx.x;
    const int* from = i % 3 == 0 ? in : i % 3 == 1 ? fixed : table.values;
    out[i] = from[i % 8];
    out[24 + i] = fixed[7 - i % 8];
}
"""


def test_one_pointer_into_three_spaces() -> None:
    """Constant variables and __grid_constant__ parameters, read through generic addresses."""
    source, table = np.arange(8, dtype=np.int32), np.arange(50, 58, dtype=np.int32)
    out = np.zeros(48, np.int32)
    module = ptx.compile_ptx(KERNEL)
    assert all(opcode in module.ptx for opcode in ("cvta.const.u64", "cvta.param.u64", "ld.const"))
    execution = ptx.execute(ptx.Program(module), "pick", (1,), (24,), (out, source, table.view("V32")[0]))
    assert not execution.faults
    tables = np.stack([source, [3, 1, 4, 1, 5, 9, 2, 6], table])
    np.testing.assert_array_equal(out[:24], tables[np.arange(24) % 3, np.arange(24) % 8])
    np.testing.assert_array_equal(out[24:], tables[1, 7 - np.arange(24) % 8])


# ---- atomics ---------------------------------------------------------------------------------------------------------

WHOLE = ("u32", "s32", "u64", "s64")
REAL = ("f32", "f64", "f16", "bf16", "f16x2", "bf16x2")
LANES, BINS = 64, 3
UPDATES: dict[str, Callable[[int, int], int]] = {
    "and": lambda old, v: old & v,
    "or": lambda old, v: old | v,
    "xor": lambda old, v: old ^ v,
    "exch": lambda _, v: v,
    "add": lambda old, v: old + v,
    "min": min,
    "max": max,
    "inc": lambda old, v: 0 if old >= v else old + 1,
    "dec": lambda old, v: v if old == 0 or old > v else old - 1,
    "cas": lambda old, v: v if old == 0 else old,
}
OPERATIONS = [
    *itertools.product(("and", "or", "xor", "exch"), ("b32", "b64")),
    *(("cas", kind) for kind in ("b16", "b32", "b64")),
    *(("inc", "u32"), ("dec", "u32")),
    *itertools.product(("min", "max"), (*WHOLE, "f16", "bf16", "f16x2", "bf16x2")),
    *itertools.product(("add",), (*WHOLE, *REAL)),
]


def atomic_updates(opcode: str, operation: str, kind: str, *, shared: bool = False, count: int = 1) -> None:
    """Lanes update the `count` elements of their bin in turn, and see what it held before; red gives no result."""
    signed = kind[0] == "s" or kind in REAL
    values = np.random.default_rng(2).integers(-3 if signed else 1, 4, (LANES, count))
    first = np.zeros((BINS, count), np.int64)
    bits, result = WIDTH[kind], opcode.startswith("atom")
    unseen = np.full(values.shape, 2)
    bins, given, seen = (encoded(array, kind) for array in (first, values, unseen))
    size, elements = bits // 8, range(count)
    news, olds = ([f"%{letter}{n}" for n in elements] for letter in "vw")
    new, old = (names[0] if count == 1 else f"{{{', '.join(names)}}}" for names in (news, olds))
    compared = " 0," if operation == "cas" else ""
    place = " mov.u64 %x, box;\n" if shared else " mov.u64 %x, %p0;\n"
    moved = f" ld.global.b{bits} %v0, [%p0+N];\n st.shared.b{bits} [box+N], %v0;\n"
    back = f" ld.shared.b{bits} %v0, [box+N];\n st.global.b{bits} [%p0+N], %v0;\n"
    fill, drain = (
        "".join(part.replace("N", str(n * size)) for n in range(BINS)) if shared else "" for part in (moved, back)
    )
    loads = "".join(f" ld.global.b{bits} %v{n}, [%p1+{n * size}];\n" for n in elements)
    stores = "".join(f" st.global.b{bits} [%p2+{n * size}], %w{n};\n" for n in elements if result)
    body = (
        f" .shared .align 8 .b8 box[64];\n .reg .b{bits} {', '.join(news + olds)};\n .reg .u32 %bin;\n"
        f" .reg .pred %one;\n setp.ne.u32 %one, %t, 0;\n@%one bra ready;\n{fill}ready:\n bar.sync 0;\n"
        f" rem.u32 %bin, %t, {BINS};\n mul.wide.u32 %off, %bin, {size * count};\n{place} add.s64 %x, %x, %off;\n"
        f" mul.wide.u32 %off, %t, {size * count};\n add.s64 %p1, %p1, %off;\n add.s64 %p2, %p2, %off;\n"
        f"{loads} {opcode} {f'{old}, ' if result else ''}[%x],{compared} {new};\n"
        f"{stores} bar.sync 0;\n@%one bra done;\n{drain}done:\n"
    )
    counts = executed(body, bins, given, seen, threads=LANES)
    assert (counts.shared_atomics if shared else counts.atomics).accesses == LANES
    state, before = first.copy(), np.zeros_like(values)
    for lane in range(LANES):  # documented: in the order of the threads
        held = before[lane] = state[lane % BINS].copy()
        state[lane % BINS] = [UPDATES[operation](int(o), int(v)) for o, v in zip(held, values[lane], strict=True)]
    np.testing.assert_array_equal(bins, encoded(state, kind), err_msg=opcode)
    np.testing.assert_array_equal(seen, encoded(before if result else unseen, kind), err_msg=opcode)


@pytest.mark.parametrize(("operation", "kind"), OPERATIONS)
def test_atomics_of_every_type_in_both_orders_of_words(operation: str, kind: str) -> None:
    noftz = ".noftz" if "16" in kind and kind != "b16" else ""
    for base in ("atom", "red"):
        if base == "red" and operation in ("exch", "cas"):
            continue
        for where in ("global", "gpu.global", "global.gpu"):
            atomic_updates(f"{base}.{where}.{operation}{noftz}.{kind}", operation, kind)


PLACES = (
    *("shared", "shared::cta", "relaxed.cta.shared", "relaxed.gpu.shared::cta", "shared.cta", "shared::cta.cta"),
    *(f"{order}.{scope}.global" for order in ("relaxed", "acquire", "release", "acq_rel") for scope in ("gpu", "cta")),
    *(f"{scope}.global" for scope in ("cta", "cluster", "gpu", "sys")),
    *(f"global.{scope}" for scope in ("cta", "cluster", "gpu", "sys")),
    *("", "acq_rel.sys", "global.gpu.acq_rel", "global.release.gpu"),
)


@pytest.mark.parametrize("place", PLACES)
def test_atomics_of_every_space_order_and_scope(place: str) -> None:
    for base in ("atom", "red"):
        if base == "red" and "acq" in place:  # no result, so nothing to acquire
            continue
        dotted = f".{place}" if place else ""
        atomic_updates(f"{base}{dotted}.add.s32", "add", "s32", shared="shared" in place)


VECTORS = [
    *(("add", "f32", count) for count in (2, 4)),
    *itertools.product(("add", "min", "max"), ("f16", "bf16"), (2, 4, 8)),
    *itertools.product(("add", "min", "max"), ("f16x2", "bf16x2"), (2, 4)),
]


@pytest.mark.parametrize(("operation", "kind", "count"), VECTORS)
def test_vector_atomics_update_each_element(operation: str, kind: str, count: int) -> None:
    noftz = "" if kind == "f32" else ".noftz"
    for base in ("atom", "red"):
        atomic_updates(f"{base}.global.{operation}{noftz}.v{count}.{kind}", operation, kind, count=count)
