"""What the interpreter does itself, in the spellings that CUDA C++ rarely leads to: written as PTX."""

from __future__ import annotations

import numpy as np
import pytest
from opcode_lab import run_body, without_faults

from pytest_bandwidth.features.traffic import ptx


def execute(body: str, *args: object, threads: int = 64, functions: str = "") -> ptx.Execution:
    """Runs a body in which %p0, %p1 … are the arguments' pointers, and %t is the thread's number."""
    return without_faults(executed(body, args, threads, functions))


def stored(body: str, *args: object, functions: str = "") -> np.ndarray:
    """Returns the %a of each thread, 99 of those that came to no end."""
    out = np.full(64, 99, np.uint32)
    execute(body + STORE, out, *args, functions=functions)
    return out


def faults(body: str, *args: object) -> set[str]:
    return {fault.code for fault in executed(body, args, 64, "").faults}


def executed(body: str, args: tuple[object, ...], threads: int, functions: str) -> ptx.Execution:
    more = " .reg .u32 %a, %b, %c;\n .reg .pred %q, %r;\n mul.wide.u32 %off, %t, 4;\n"
    return run_body(f"{more}{body}\n", args, threads, functions=functions)


STORE = " add.s64 %x, %p0, %off;\n st.global.u32 [%x], %a;"


def handed_over(barrier: str, partner: int) -> str:
    """Each thread puts %a into shared memory and, after the barrier, takes that of thread %t xor `partner`."""
    return f""" st.shared.u32 [%x], %a;
 {barrier};
 xor.b32 %b, %t, {partner};
 mul.wide.u32 %x, %b, 4;
 mov.u64 %off, box;
 add.s64 %x, %x, %off;
 ld.shared.u32 %a, [%x];
 mul.wide.u32 %off, %t, 4;
{STORE}"""


BOX = """ .shared .align 4 .b32 box[64];
 mov.u64 %x, box;
 add.s64 %x, %x, %off;
"""


@pytest.mark.parametrize("uniform", ["", ".uni"])
def test_branches_by_index(uniform: str) -> None:
    body = """ and.b32 %b, %t, 3;
 targets: .branchtargets one, two, three, two;
 brx.idx UNI %b, targets;
one: mov.u32 %a, 10;
 bra.uni store;
two: mov.u32 %a, 20;
 bra.uni store;
three: mov.u32 %a, 30;
store:
""".replace(" UNI", uniform)
    np.testing.assert_array_equal(stored(body), np.resize([10, 20, 30, 20], 64))


LOW = " setp.lt.u32 %q, %t, 5;\n"
# What threads store over 99, by what they compute in %a.
STORED = {
    "exit ends a thread and not its warp": (f" mov.u32 %a, 7;\n{LOW}@%q exit;\n", [99] * 5 + [7] * 59),
    "the mask of lanes that did not branch away": (
        f" mov.u32 %a, 0;\n{LOW}@%q bra done;\n activemask.b32 %a;\ndone:\n",
        [0] * 5 + [0xFFFFFFE0] * 27 + [0xFFFFFFFF] * 32,
    ),
    "the upper half of a clock": (" mov.u32 %a, %clock_hi;\n", [0] * 64),
    "the upper half of a timer": (" mov.u32 %a, %globaltimer_hi;\n", [0] * 64),
    "the size of a warp is a number": (" mov.u32 %a, WARP_SZ;\n", [32] * 64),
}


@pytest.mark.parametrize("name", STORED)
def test_what_each_thread_stores(name: str) -> None:
    body, expected = STORED[name]
    np.testing.assert_array_equal(stored(body), expected)


def test_barriers_in_every_spelling() -> None:
    """Each orders a store before the neighbour's load; a race would be a fault."""
    for barrier in ("bar.sync 0", "bar.cta.sync 0", "barrier.sync 0", "barrier.cta.sync.aligned 0"):
        out = np.zeros(64, np.uint32)
        execute(f"{BOX} mul.lo.u32 %a, %t, 3;\n{handed_over(barrier, 32)}", out)
        np.testing.assert_array_equal(out, (np.arange(64) ^ 32) * 3, err_msg=barrier)


@pytest.mark.parametrize("spelling", ["bar.red", "bar.cta.red", "barrier.red", "barrier.cta.red", "barrier.cta.red+"])
def test_barriers_that_reduce(spelling: str) -> None:
    """A plus stands for .aligned, which follows the operation."""
    base, aligned = spelling.rstrip("+"), ".aligned" if spelling.endswith("+") else ""
    np.testing.assert_array_equal(stored(f" setp.lt.u32 %q, %t, 37;\n {base}.popc{aligned}.u32 %a, 0, %q;\n"), 37)
    for name, limit, expected in (("and", 37, 0), ("and", 64, 1), ("or", 1, 1), ("or", 0, 0)):
        body = f" setp.lt.u32 %q, %t, {limit};\n {base}.{name}{aligned}.pred %r, 0, %q;\n selp.u32 %a, 1, 0, %r;\n"
        np.testing.assert_array_equal(stored(body), expected)


def shuffled(mode: str, lane: int, distance: int, clamp: int) -> tuple[int, bool]:
    """The lane that is read, and whether it is within the segment: the PTX manual's own pseudo-code for shfl."""
    segment, bound = clamp >> 8 & 31, clamp & 31
    lowest, highest = lane & segment, (lane & segment) | (bound & ~segment)
    source, inside = {
        "up": (lane - distance, lane - distance >= highest),
        "down": (lane + distance, lane + distance <= highest),
        "bfly": (lane ^ distance, lane ^ distance <= highest),
        "idx": (lowest | (distance & ~segment), (lowest | (distance & ~segment)) <= highest),
    }[mode]
    return (source, True) if inside else (lane, False)


@pytest.mark.parametrize("width", [32, 8, 2])
@pytest.mark.parametrize("mode", ["up", "down", "bfly", "idx"])
def test_shuffles(mode: str, width: int) -> None:
    generator = np.random.default_rng(width)
    source, distance = generator.integers(0, 2**32, 64, np.uint32), generator.integers(0, 32, 64).astype(np.uint32)
    inside = np.zeros(64, np.uint32)
    clamp = (32 - width) << 8 | (0 if mode == "up" else 31)
    body = f""" add.s64 %x, %p1, %off;
 ld.global.u32 %b, [%x];
 add.s64 %x, %p2, %off;
 ld.global.u32 %c, [%x];
 shfl.sync.{mode}.b32 %a|%q, %b, %c, {clamp}, 0xffffffff;
 selp.u32 %b, 1, 0, %q;
 add.s64 %x, %p3, %off;
 st.global.u32 [%x], %b;
"""
    out = stored(body, source, distance, inside)
    expected = [shuffled(mode, lane % 32, int(distance[lane]), clamp) for lane in range(64)]
    np.testing.assert_array_equal(out, [source[lane // 32 * 32 + expected[lane][0]] for lane in range(64)])
    np.testing.assert_array_equal(inside, [within for _, within in expected])


@pytest.mark.parametrize("tile", [4, 32])
def test_parts_of_a_warp_exchange_each_among_itself(tile: int) -> None:
    """At the same time, with masks of their own: what cooperative groups make of tiles. The first agrees."""
    # One of the three is negative as a signed number.
    values = np.random.default_rng(tile).integers(0, 3, 64, np.uint32) * np.uint32(0x60000001)
    values[:tile] = 0
    tiles = values.reshape(-1, tile)
    low = (np.arange(64) // tile * tile % 32).astype(np.uint64)
    members = ((1 << tile) - 1 << low).astype(np.uint32)
    set_up = f""" .reg .b32 %m, %low;
 add.s64 %x, %p1, %off;
 ld.global.u32 %b, [%x];
 and.b32 %low, %t, {32 - tile};
 mov.u32 %m, {(1 << tile) - 1};
 shl.b32 %m, %m, %low;
 setp.eq.u32 %q, %b, 0;
"""

    def found(line: str, after: str = "") -> np.ndarray:
        return stored(f"{set_up} {line};\n{after}", values)

    def each(of_tile: np.ndarray) -> np.ndarray:
        return np.repeat(of_tile, tile)

    truth = " selp.u32 %a, 1, 0, %r;\n"
    for name, expected in (("all", (tiles == 0).all(1)), ("any", (tiles == 0).any(1))):
        for spelling in (f"vote.sync.{name}.pred", f"vote.{name}.sync.pred"):
            np.testing.assert_array_equal(found(f"{spelling} %r, %q, %m", truth), each(expected))
    uniform = (tiles == 0).all(1) | (tiles != 0).all(1)
    for spelling in ("vote.sync.uni.pred", "vote.uni.sync.pred"):
        np.testing.assert_array_equal(found(f"{spelling} %r, %q, %m", truth), each(uniform))
    bits = np.uint64(1) << (np.arange(64) % 32).astype(np.uint64)
    zeros = ((values == 0) * bits).reshape(-1, tile).sum(1).astype(np.uint32)
    for spelling in ("vote.sync.ballot.b32", "vote.ballot.sync.b32"):
        np.testing.assert_array_equal(found(f"{spelling} %a, %q, %m"), each(zeros))
    alike = (tiles[:, :, None] == tiles[:, None, :]) * bits.reshape(-1, 1, tile)
    np.testing.assert_array_equal(found("match.any.sync.b32 %a, %b, %m"), alike.sum(2).ravel().astype(np.uint32))
    equal = each((tiles == tiles[:, :1]).all(1))
    np.testing.assert_array_equal(found("match.all.sync.b32 %a|%r, %b, %m"), np.where(equal, members, 0))
    np.testing.assert_array_equal(found("match.all.sync.b32 %a|%r, %b, %m", truth), equal)
    of_bits = {"and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor}
    of_numbers = {"add": np.add, "min": np.minimum, "max": np.maximum}
    for kind, operations in (("u32", of_numbers), ("s32", of_numbers), ("b32", of_bits)):
        typed = tiles.view(np.int32 if kind == "s32" else np.uint32)
        for name, operation in operations.items():
            expected = each(operation.reduce(typed, axis=1, dtype=typed.dtype)).view(np.uint32)
            line = f"redux.sync.{name}.{kind} %a, %b, %m"
            np.testing.assert_array_equal(found(line), expected, err_msg=line)


def test_a_warps_barrier_orders_its_shared_memory() -> None:
    body = f"{BOX} mov.u32 %a, %t;\n{handed_over('bar.warp.sync 0xffffffff', 1)}"
    out = np.zeros(64, np.uint32)
    execute(body, out)
    np.testing.assert_array_equal(out, np.arange(64) ^ 1)
    assert "race" in faults(body.replace("bar.warp.sync 0xffffffff", "nanosleep.u32 1"), out)


def test_a_trap_is_a_fault() -> None:
    assert faults(" setp.eq.u32 %q, %t, 9;\n@%q trap;\n", np.zeros(1, np.uint32)) == {"trap"}


def test_matches_of_64_bits() -> None:
    """Lanes are told apart by the upper half, too."""
    wide = " .reg .u64 %w;\n and.b32 %b, %t, 5;\n mov.b64 %w, {%t, %b};\n and.b64 %w, %w, 0xffffffff00000001;\n"
    out = stored(f"{wide} match.any.sync.b64 %a, %w, 0xffffffff;\n")
    lanes = np.arange(32)
    alike = (lanes[:, None] & 5) == (lanes[None, :] & 5)
    masks = (alike * (np.uint64(1) << lanes.astype(np.uint64))).sum(axis=1).astype(np.uint32)
    np.testing.assert_array_equal(out, np.tile(masks, 2))
    body = """ .reg .u64 %w;
 setp.lt.u32 %q, %t, 63;
 selp.u32 %b, 1, 2, %q;
 mov.b64 %w, {0, %b};
 match.all.sync.b64 %a|%r, %w, 0xffffffff;
"""
    np.testing.assert_array_equal(stored(body), np.repeat([0xFFFFFFFF, 0], 32))


def test_spaces_of_addresses() -> None:
    body = """ .reg .u64 %s, %l;
 .shared .align 4 .b32 box[4];
 .local .align 4 .b32 own[2];
 mov.u64 %s, box;
 cvta.shared.u64 %s, %s;
 mov.u64 %l, own;
 cvta.local.u64 %l, %l;
 mov.u32 %a, 0;
"""
    asked = [(space, of) for space in ("shared", "shared::cta", "global", "local") for of in ("%s", "%p0", "%l")]
    for n, (space, of) in enumerate(asked):
        body += f" isspacep.{space} %q, {of};\n selp.u32 %b, {1 << n}, 0, %q;\n or.b32 %a, %a, %b;\n"
    right = [("shared", "%s"), ("shared::cta", "%s"), ("global", "%p0"), ("local", "%l")]
    np.testing.assert_array_equal(stored(body), sum(1 << asked.index(one) for one in right))


FENCES = (
    *(f"fence.{order}.{scope}" for order in ("sc", "acq_rel") for scope in ("cta", "cluster", "gpu", "sys")),
    *(f"fence.proxy.async{of}" for of in ("", ".global", ".shared::cta", ".shared::cluster")),
    *("fence.mbarrier_init.release.cluster", "fence.acquire.gpu", "fence.release.gpu", "fence.gpu"),
    *("membar.cta", "membar.gl", "membar.sys"),
)
HINTS = (
    *(f"prefetch{space}.{cache} [%x]" for space in ("", ".global") for cache in ("L1", "L2")),
    *("prefetch.local.L1 [own]", "prefetchu.L1 [%x]", "nanosleep.u32 20", "pmevent 1"),
    *("griddepcontrol.wait", "griddepcontrol.launch_dependents"),
    *("cp.async.bulk.prefetch.L2.global [%p0], 128", "cp.async.bulk.prefetch.L2.global.L2::cache_hint [%p0], 128, 0"),
    *("discard.L2 [%p0], 128", "discard.global.L2 [%p0], 128"),
    *(f"prefetch{space}.L2::evict_{which} [%p0]" for space in ("", ".global") for which in ("last", "normal", "first")),
    *("applypriority.L2::evict_normal [%p0], 128", "applypriority.global.L2::evict_normal [%p0], 128"),
    *("setmaxnreg.inc.sync.aligned.u32 232", "setmaxnreg.dec.sync.aligned.u32 24"),
)
POLICIES = (
    *(f"fractional.L2::evict_{which}.b64 %c, 0.5" for which in ("last", "normal", "first")),
    *(f"fractional.L2::evict_last.L2::evict_{other}.b64 %c" for other in ("first", "unchanged")),
    *(
        f"range{space}.L2::evict_{which}.b64 %c, [%p1], 64, 256"
        for space, which in (("", "last"), (".global", "first"))
    ),
    *(f"range.L2::evict_normal.L2::evict_{other}.b64 %c, [%p1], 64, 256" for other in ("first", "unchanged")),
    "cvt.L2.b64 %c, 1",
)


@pytest.mark.parametrize("policy", POLICIES)
def test_a_policy_of_the_cache_changes_no_access(policy: str) -> None:
    source, out, sums = np.arange(4, 68, dtype=np.uint32), np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    body = f""" .reg .u64 %c;
 .shared .align 16 .b32 box[64];
 createpolicy.{policy};
 add.s64 %x, %p1, %off;
 ld.global.L1::no_allocate.L2::cache_hint.L2::128B.u32 %a, [%x], %c;
 add.s64 %x, %p0, %off;
 st.global.L1::evict_first.L2::cache_hint.u32 [%x], %a, %c;
 add.s64 %x, %p2, %off;
 red.relaxed.gpu.global.add.L2::cache_hint.u32 [%x], %a, %c;
 atom.global.add.L2::cache_hint.u32 %b, [%x], %a, %c;
 add.s64 %x, %p1, %off;
 mov.u64 %p1, box;
 add.s64 %p1, %p1, %off;
 cp.async.ca.shared.global.L2::cache_hint [%p1], [%x], 4, %c;
 cp.async.wait_all;
 ld.shared.u32 %b, [%p1];
 add.s64 %x, %p2, %off;
 red.global.add.u32 [%x], %b;
"""
    counts = execute(body, out, source, sums).counts
    np.testing.assert_array_equal(out, source)
    np.testing.assert_array_equal(sums, 3 * source)
    assert (counts.loads.sectors, counts.stores.sectors) == (16, 8)  # 256 bytes, loaded twice


@pytest.mark.parametrize("clock", ["clock", "clock64", "globaltimer", "globaltimer_lo"])
def test_clocks_run(clock: str) -> None:
    """A kernel may wait for a time to pass, and no two reads are the same."""
    bits = 64 if clock in ("clock64", "globaltimer") else 32
    out = stored(
        f""" .reg .u{bits} %begin, %now;
 mov.u{bits} %begin, %{clock};
again:
 mov.u{bits} %now, %{clock};
 sub.u{bits} %now, %now, %begin;
 setp.lt.u{bits} %q, %now, 5000;
@%q bra again;
 cvt.u32.u{bits} %a, %now;
"""
    )
    assert (out >= 5000).all()
    assert (out < 5500).all()


def test_one_lane_is_elected() -> None:
    out, leaders = np.zeros(64, np.uint32), np.zeros(64, np.uint32)
    body = f""" mov.u32 %b, 99;
 setp.ge.u32 %r, %t, 3;
@!%r bra done;
 setp.lt.u32 %q, %t, 32;
 selp.u32 %c, 0xfffffff8, 0xffffffff, %q;
 elect.sync %b|%q, %c;
done:
 and.pred %q, %q, %r;
 selp.u32 %a, 1, 0, %q;
{STORE} add.s64 %x, %p1, %off;
 st.global.u32 [%x], %b;
"""
    execute(body, out, leaders)
    assert np.flatnonzero(out).tolist() == [3, 32]
    assert leaders.tolist() == [99] * 3 + [3] * 29 + [0] * 32


@pytest.mark.parametrize("arrive", ["bar.arrive", "bar.cta.arrive", "barrier.arrive", "barrier.cta.arrive.aligned"])
def test_a_warp_arrives_without_waiting(arrive: str) -> None:
    """The first warp hands over to the second, which alone waits."""
    out = np.zeros(64, np.uint32)
    body = f"""{BOX} setp.lt.u32 %q, %t, 32;
@!%q bra reader;
 st.shared.u32 [%x], %t;
 {arrive} 3, 64;
 bra done;
reader:
 barrier.cta.sync 3, 64;
 ld.shared.u32 %a, [%x+-128];
{STORE}
done:
"""
    execute(body, out)
    np.testing.assert_array_equal(out, [0] * 32 + list(range(32)))


def test_hints_and_fences_change_nothing() -> None:
    source, out = np.arange(64, dtype=np.uint32), np.zeros(64, np.uint32)
    body = " .local .align 4 .b32 own[2];\n add.s64 %x, %p1, %off;\n"
    body += "".join(f" {line};\n" for line in (*HINTS, *FENCES)) + " ld.global.u32 %a, [%x];\n"
    counts = execute(body + STORE, out, source).counts
    np.testing.assert_array_equal(out, source)
    assert (counts.loads.accesses, counts.stores.accesses) == (64, 64)


def test_calls_and_returns_in_every_spelling() -> None:
    functions = """.func (.param .b32 r) twice(.param .b32 x)
{
 .reg .u32 %v;
 ld.param.u32 %v, [x];
 add.u32 %v, %v, %v;
 st.param::func.u32 [r], %v;
 ret.uni;
}
.func (.param .b32 r) early(.param .b32 x)
{
 .reg .u32 %v;
 .reg .pred %small;
 ld.param::func.u32 %v, [x];
 st.param.u32 [r], %v;
 setp.lt.u32 %small, %v, 100;
 @%small ret;
 st.param.u32 [r], 7;
 ret;
}
"""

    def call(spelling: str, function: str, register: str) -> str:
        return (
            f" {{\n .param .b32 in;\n .param .b32 back;\n st.param.b32 [in], {register};\n"
            f" {spelling} (back), {function}, (in);\n ld.param.b32 %a, [back];\n }}\n"
        )

    body = call("call", "twice", "%t") + " mov.u32 %c, %a;\n" + call("call.uni", "twice", "%a")
    body += " add.u32 %a, %a, %c;\n" + call("call.uni", "early", "%a")
    total = 6 * np.arange(64)
    np.testing.assert_array_equal(stored(body, functions=functions), np.where(total < 100, total, 7))
