"""What the executor does itself, in the spellings that CUDA C++ rarely leads to: written as PTX."""

from __future__ import annotations

import numpy as np

from pytest_bandwidth import ptx


def execute(body: str, *args: object, threads: int = 64) -> ptx.Execution:
    """Runs a body in which %p0, %p1 … are the arguments' pointers, and %t is the thread's number."""
    parameters = ", ".join(f".param .u64 a{n}" for n in range(len(args)))
    loads = "".join(f" ld.param.u64 %p{n}, [a{n}];\n" for n in range(len(args)))
    pointers = ", ".join(f"%p{n}" for n in range(len(args)))
    text = (
        f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k({parameters})\n{{\n"
        f" .reg .u64 {pointers}, %off, %x;\n .reg .u32 %t, %a, %b, %c;\n .reg .pred %q, %r;\n"
        f" mov.u32 %t, %tid.x;\n mul.wide.u32 %off, %t, 4;\n{loads}{body}\n ret;\n}}\n"
    )
    execution = ptx.execute(ptx.load(ptx.PtxModule(text, "none", "sm_90")), "k", (1,), (threads,), args)
    assert not execution.faults, [fault.text for fault in execution.faults]
    return execution


STORE = " add.s64 %x, %p0, %off;\n st.global.u32 [%x], %a;"


def test_branches_by_index() -> None:
    body = (
        """ and.b32 %b, %t, 3;
 targets: .branchtargets one, two, three, two;
 brx.idx %b, targets;
one: mov.u32 %a, 10;
 bra.uni store;
two: mov.u32 %a, 20;
 bra.uni store;
three: mov.u32 %a, 30;
store:
"""
        + STORE
    )
    out = np.zeros(64, np.uint32)
    execute(body, out)
    np.testing.assert_array_equal(out, np.resize([10, 20, 30, 20], 64))


def test_exit_ends_a_thread_and_not_its_warp() -> None:
    out = np.zeros(64, np.uint32)
    execute(" mov.u32 %a, 7;\n setp.lt.u32 %q, %t, 5;\n@%q exit;\n" + STORE, out)
    np.testing.assert_array_equal(out, np.where(np.arange(64) < 5, 0, 7))


def test_barriers_in_every_spelling() -> None:
    """Each orders a store before the neighbour's load; a race would be a fault."""
    for barrier in ("bar.sync 0", "bar.cta.sync 0", "barrier.sync 0", "barrier.cta.sync.aligned 0"):
        body = f""" .shared .align 4 .b32 box[64];
 mov.u64 %x, box;
 add.s64 %x, %x, %off;
 mul.lo.u32 %a, %t, 3;
 st.shared.u32 [%x], %a;
 {barrier};
 xor.b32 %b, %t, 32;
 mul.wide.u32 %x, %b, 4;
 mov.u64 %off, box;
 add.s64 %x, %x, %off;
 ld.shared.u32 %a, [%x];
 mul.wide.u32 %off, %t, 4;
{STORE}"""
        out = np.zeros(64, np.uint32)
        execute(body, out)
        np.testing.assert_array_equal(out, (np.arange(64) ^ 32) * 3, err_msg=barrier)


def test_barriers_that_reduce() -> None:
    out = np.zeros(64, np.uint32)
    execute(" setp.lt.u32 %q, %t, 37;\n barrier.red.popc.u32 %a, 0, %q;\n" + STORE, out)
    np.testing.assert_array_equal(out, 37)
    for name, expected in (("and", 0), ("or", 1)):
        body = f" setp.lt.u32 %q, %t, 37;\n barrier.cta.red.{name}.pred %r, 0, %q;\n selp.u32 %a, 1, 0, %r;\n"
        execute(body + STORE, out)
        np.testing.assert_array_equal(out, expected)


def test_match_all() -> None:
    """The mask where all lanes hold the same, else 0: the first warp's values differ, the second's do not."""
    out, held = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    body = """ setp.lt.u32 %q, %t, 32;
 selp.u32 %b, %t, 5, %q;
 match.all.sync.b32 %a|%r, %b, 0xffffffff;
 selp.u32 %c, 1, 0, %r;
 add.s64 %x, %p1, %off;
 st.global.u32 [%x], %c;
"""
    execute(body + STORE, out, held)
    np.testing.assert_array_equal(out, np.repeat([0, 0xFFFFFFFF], 32))
    np.testing.assert_array_equal(held, np.repeat([0, 1], 32))


def test_older_spellings_of_atomics() -> None:
    sums, seen = np.zeros(2, np.uint32), np.zeros(64, np.uint32)
    body = """ atom.global.gpu.add.u32 %a, [%p1], 3;
 red.global.gpu.max.u32 [%p1+4], %t;
"""
    execute(body + STORE, seen, sums)
    np.testing.assert_array_equal(sums, [64 * 3, 63])
    np.testing.assert_array_equal(np.sort(seen), np.arange(64) * 3)


def test_uniform_loads() -> None:
    source = np.arange(100, 104, dtype=np.uint32)
    out = np.zeros(64, np.uint32)
    execute(" ldu.global.v2.u32 {%b, %c}, [%p1+8];\n sub.u32 %a, %c, %b;\n add.u32 %a, %a, %b;\n" + STORE, out, source)
    np.testing.assert_array_equal(out, 103)


def test_spaces_of_addresses() -> None:
    out = np.zeros(64, np.uint32)
    body = """ .shared .align 4 .b32 box[4];
 mov.u64 %x, box;
 cvta.shared.u64 %x, %x;
 isspacep.shared %q, %x;
 selp.u32 %a, 1, 0, %q;
 isspacep.global %q, %x;
 selp.u32 %b, 2, 0, %q;
 or.b32 %a, %a, %b;
 isspacep.global %q, %p0;
 selp.u32 %b, 4, 0, %q;
 or.b32 %a, %a, %b;
 isspacep.shared %q, %p0;
 selp.u32 %b, 8, 0, %q;
 or.b32 %a, %a, %b;
"""
    execute(body + STORE, out)
    np.testing.assert_array_equal(out, 1 | 4)


def test_packed_comparisons_give_a_predicate_for_each_half() -> None:
    halves = np.array([[1, 2], [3, 0], [np.nan, 5], [-1, 7]], np.float16)
    for kind, words in (
        ("f16x2", halves.view(np.uint32)[:, 0]),
        ("bf16x2", (halves.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16).view(np.uint32)[:, 0]),
    ):
        first, out = np.resize(words, 64), np.zeros(64, np.uint32)
        second = np.repeat(words, 16)
        body = f""" add.s64 %x, %p1, %off;
 ld.global.u32 %b, [%x];
 add.s64 %x, %p2, %off;
 ld.global.u32 %c, [%x];
 setp.lt.{kind} %q|%r, %b, %c;
 selp.u32 %a, 1, 0, %q;
 selp.u32 %b, 2, 0, %r;
 or.b32 %a, %a, %b;
"""
        execute(body + STORE, out, first, second)
        less = np.resize(halves, (64, 2)) < np.repeat(halves, 16, axis=0)
        np.testing.assert_array_equal(out, less[:, 0] + 2 * less[:, 1], err_msg=kind)


def test_hints_and_fences_change_nothing() -> None:
    source, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    body = """ add.s64 %x, %p1, %off;
 nanosleep.u32 20;
 prefetch.global.L2 [%x];
 prefetchu.L1 [%x];
 discard.global.L2 [%p0], 128;
 pmevent 1;
 fence.acq_rel.gpu;
 fence.sc.cta;
 membar.gl;
 ld.global.u32 %a, [%x];
"""
    counts = execute(body + STORE, out, source).counts
    np.testing.assert_array_equal(out, source)
    assert (counts.loads.accesses, counts.stores.accesses) == (64, 64)
