"""Bulk copies between global and shared memory: what they move and count, and what does not wait for them."""

from __future__ import annotations

import numpy as np
import pytest
from ptx_sources import MBARRIERS, kernel_of, line_of, run

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.features.traffic.ptx import Execution

# Thread 0 fetches a tile of 1 KiB; all 256 threads look at it; thread 0 brings it back.
HEAD = r"""
MBARRIERS
__device__ void expect(u64* b, int n) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" :: "r"(at(b)), "r"(n) : "memory");
}
__device__ void fetch(float* to, const float* from, int n, u64* b) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"  // fetches
                 :: "r"(at(to)), "l"(from), "r"(n), "r"(at(b)) : "memory");
}
__device__ void bring(float* to, const float* from, int n) {
    asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;"  // brings
                 :: "l"(to), "r"(at(from)), "r"(n) : "memory");
}
__device__ void commit() { asm volatile("cp.async.bulk.commit_group;"); }
__device__ void brought() { asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); }
__device__ void all_but_one_brought() { asm volatile("cp.async.bulk.wait_group 1;" ::: "memory"); }
extern "C" __global__ void k(float* o, const float* a) {
    __shared__ __align__(128) float s[2][256]; __shared__ u64 b[2]; int t = threadIdx.x; float v = 0;
    a += blockIdx.x * 1024, o += blockIdx.x * 1024;
    if (t == 0) { init(&b[0], 1); init(&b[1], 1); }
    __syncthreads();
    BODY
}
""".replace("MBARRIERS", MBARRIERS)
FETCH = "if (t == 0) { expect(&b[0], 1024); fetch(s[0], a, 1024, &b[0]); } "
BRING = "s[0][t] = a[t]; __syncthreads(); if (t == 0) { bring(o, s[0], 1024); commit(); brought(); } "
ROUNDS = r"""
    auto next = [&](int i) {
        if (t == 0) { expect(&b[i % 2], 1024); fetch(s[i % 2], a + 256 * i, 1024, &b[i % 2]); }
    };
    next(0);
    for (int i = 0; i < 4; i++) { if (i < 3) next(i + 1); WAIT; v += s[i % 2][255 - t]; SYNC; }
    o[t] = v;
"""
WAIT, SYNC = "wait(&b[i % 2], i / 2 & 1)", "__syncthreads()"
# What a body leaves in o, of a's four parts of 256.
RIGHT = {
    "a tile": (FETCH + "wait(&b[0], 0); o[t] = s[0][255 - t];", lambda a: a[0, ::-1]),
    "one warp waits, then the block's barrier": (
        FETCH + "if (t < 32) wait(&b[0], 0); __syncthreads(); o[t] = s[0][255 - t];",
        lambda a: a[0, ::-1],
    ),
    "two copies for one phase": (
        "if (t == 0) { expect(&b[0], 1024); fetch(s[0], a, 512, &b[0]); fetch(s[0] + 128, a + 128, 512, &b[0]); }"
        "wait(&b[0], 0); o[t] = s[0][255 - t];",
        lambda a: a[0, ::-1],
    ),
    "two stages": (ROUNDS.replace("WAIT", WAIT).replace("SYNC", SYNC), lambda a: a.sum(axis=0)[::-1]),
    "pieces of several sizes": (
        "if (t < 3) { if (t == 0) expect(&b[0], 1024); fetch(s[0] + 64 * t, a + 64 * t, t < 2 ? 256 : 512, &b[0]); }"
        "wait(&b[0], 0); o[t] = s[0][255 - t];",
        lambda a: a[0, ::-1],
    ),
    "brought back": (BRING, lambda a: a[0]),
    "brought back, then overwritten": (BRING + "__syncthreads(); s[0][t] = 3;", lambda a: a[0]),
    "read while it is brought back": (
        "s[0][t] = a[t]; __syncthreads(); if (t == 0) { bring(o + 256, s[0], 1024); commit(); } o[t] = s[0][255 - t];"
        "if (t == 0) brought();",
        lambda a: a[0, ::-1],
    ),
    "in and out": (
        FETCH
        + "wait(&b[0], 0); s[0][t] *= 2; __syncthreads(); if (t == 0) { bring(o, s[0], 1024); commit(); brought(); }",
        lambda a: 2 * a[0],
    ),
}
EARLY = {
    "a block barrier instead of the wait": FETCH + "__syncthreads(); o[t] = s[0][255 - t];",
    "the copy after the phase": (
        "if (t == 0) { arrive(&b[0]); fetch(s[0], a, 1024, &b[0]); } wait(&b[0], 0); o[t] = s[0][255 - t];"
    ),
    "fewer bytes expected, and more later": (
        "if (t == 0) { expect(&b[0], 512); fetch(s[0], a, 512, &b[0]); fetch(s[0] + 128, a + 128, 512, &b[0]); }"
        "wait(&b[0], 0); o[t] = s[0][255 - t];"
    ),
    "written before the wait": FETCH + "if (t == 9) s[0][9] = 1; wait(&b[0], 0); o[t] = s[0][t];",
    "overwritten while it is brought back": BRING.replace("brought();", "") + "__syncthreads(); s[0][t] = 3;",
    "overwritten before its group is waited for": (
        BRING.replace("brought();", "all_but_one_brought();") + "__syncthreads(); s[0][t] = 3; if (t == 0) brought();"
    ),
    "a group that was not committed": BRING.replace("commit(); ", ""),
    "ended while it is brought back": BRING.replace("brought();", ""),
    "fetched anew while it is brought back": (
        BRING.replace("brought();", "expect(&b[0], 1024); fetch(s[0], a, 1024, &b[0]);") + "wait(&b[0], 0);"
        "if (t == 0) brought();"
    ),
}
RACES = {
    "one lane waits": FETCH + "if (t == 0) wait(&b[0], 0); o[t] = s[0][255 - t];",
    "overwritten while others read": ROUNDS.replace("WAIT", WAIT).replace("SYNC", ""),
    "brought before others have written": BRING.replace("__syncthreads(); if", "if"),
}


def launched(body: str) -> tuple[np.ndarray, np.ndarray, Execution]:
    a = np.random.default_rng(0).random((3, 4, 256), np.float32)
    o = np.zeros((3, 4, 256), np.float32)
    text, kernel = kernel_of(HEAD, body, (*(body for body, _ in RIGHT.values()), *EARLY.values(), *RACES.values()))
    return o, a, run(text, kernel, (3,), (256,), o, a, faulty=True)


@pytest.mark.parametrize("name", RIGHT)
def test_copies_that_are_waited_for_move_what_numpy_does(name: str) -> None:
    body, expected = RIGHT[name]
    o, a, execution = launched(body)
    assert not execution.faults, [fault.text for fault in execution.faults]
    np.testing.assert_allclose(o[:, 0], [expected(part) for part in a], rtol=1e-6)


@pytest.mark.parametrize("name", EARLY)
def test_what_is_used_before_the_wait_is_used_too_early(name: str) -> None:
    assert "early" in {fault.code for fault in launched(EARLY[name])[2].faults}


@pytest.mark.parametrize("name", RACES)
def test_what_the_wait_does_not_order_is_a_race(name: str) -> None:
    assert {fault.code for fault in launched(RACES[name])[2].faults} == {"race"}


def test_copies_are_counted_at_their_line_in_sectors() -> None:
    """A copy is one request: 1 KiB is 32 sectors of 32 bytes. One that starts in the midst of a sector has 33."""
    text = HEAD.replace("BODY", RIGHT["in and out"][0])
    counts = {line.line: line.counts for line in launched(RIGHT["in and out"][0])[2].lines}
    loads, stores = counts[line_of(text, "// fetches")].loads, counts[line_of(text, "// brings")].stores
    assert (loads.requests, loads.sectors, loads.bytes_requested) == (3, 96, 3072)
    assert (stores.requests, stores.sectors, stores.bytes_requested) == (3, 96, 3072)
    assert loads.requests_by_pattern == {"coalesced": 3}
    shifted = launched(RIGHT["a tile"][0].replace("fetch(s[0], a,", "fetch(s[0], a + 4,"))[2].counts.loads
    assert (shifted.sectors, shifted.requests_by_pattern) == (99, {"misaligned": 3})
    pieces = launched(RIGHT["pieces of several sizes"][0])[2].counts.loads
    assert (pieces.requests, pieces.sectors, pieces.bytes_requested) == (6, 96, 3072)


@pytest.mark.parametrize(
    ("body", "code", "sentence"),
    [
        (FETCH.replace("fetch(s[0], a,", "fetch(s[0], a + 1,"), "misaligned", "not a multiple of 16"),
        (FETCH.replace("fetch(s[0],", "fetch(s[0] + 1,"), "misaligned", "not a multiple of 16"),
        (FETCH.replace("1024", "1020"), "misaligned", "copies 1020 bytes, expected a multiple of 16"),
        (FETCH.replace("fetch(s[0],", "fetch(s[1] + 4,"), "out-of-bounds", "writes 1024 bytes"),
        (FETCH.replace("fetch(s[0], a,", "fetch(s[0], a + 4096,"), "out-of-bounds", "reads 1024 bytes"),
        (BRING.replace("s[0][t] = a[t];", ""), "uninitialised", "reads s"),
    ],
)
def test_places_that_no_copy_may_have(body: str, code: str, sentence: str) -> None:
    faults = launched(body + ("" if "bring" in body else "wait(&b[0], 0);"))[2].faults
    assert [code] == [fault.code for fault in faults]
    assert sentence in faults[0].text


@pytest.mark.parametrize(
    ("body", "missing"),
    [
        (FETCH.replace("expect(&b[0], 1024)", "expect(&b[0], 2048)") + "wait(&b[0], 0);", "0 arrivals and 1024 bytes"),
        (FETCH.replace("expect(&b[0], 1024)", "arrive(&b[1])") + "wait(&b[0], 0);", "1 arrivals and -1024 bytes"),
        (FETCH + "wait(&b[0], 1);", "1 arrivals and 0 bytes"),  # the phase after
    ],
)
def test_waits_that_no_copy_ends_say_what_is_missing(body: str, missing: str) -> None:
    with pytest.raises(UsageError, match=rf"waits forever at kernel\.cu:\d+: .* lacks {missing}"):
        launched(body)
