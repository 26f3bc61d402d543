"""What a built kernel does beside computing: errors, barriers, waiting, clocks, counters of other memories."""

from __future__ import annotations

import importlib.util
from typing import Any

import numpy as np
import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

from interpreted import CUDA_SRC

from emulated_card.kernels import NotSupported, build, variables_of
from emulated_card.kernels.build import translator_sources
from emulated_card.kernels.comparing import needs_compiler, run_both
from emulated_card.kernels.launching import HOST, Clock, Memory, launch
from pytest_bandwidth.features.traffic import ptx

pytestmark = needs_compiler

ILLEGAL, ASSERT, MISALIGNED, TRAP, STOPPED, OUT_OF_TURNS = 700, 710, 716, 719, -1, -2
MILLISECOND = 10**6

TEXT = r"""
typedef unsigned u32;
typedef unsigned long long u64;
__device__ u32 tally[4] = {1, 2, 3, 4};
__constant__ float table[4] = {0.5f, 1.5f, 2.5f, 3.5f};

extern "C" __global__ void put(u32* out, long long at) { out[at + threadIdx.x] = threadIdx.x; }
extern "C" __global__ void get(u32* out, const char* in, long long at) {
    out[threadIdx.x] = *(const u32*)(in + at + 4 * threadIdx.x);
}
extern "C" __global__ void check(const u32* in) { if (in[threadIdx.x] == 7) asm("trap;"); }

extern "C" __global__ void exchange(u32* out, const u32* in, int n) {
    __shared__ u32 tile[256];
    extern __shared__ u32 more[];
    u32 v = in[blockIdx.x * blockDim.x + threadIdx.x];
    tile[threadIdx.x] = v;
    __syncthreads();
    for (int step = 1; step < n; step *= 2) {
        u32 other = tile[(threadIdx.x + step) & 255];
        __syncthreads();
        tile[threadIdx.x] += other;
        __syncthreads();
    }
    more[255 - threadIdx.x] = tile[threadIdx.x];
    int odd = __syncthreads_count(v & 1), any = __syncthreads_or(v == 9), all = __syncthreads_and(v < 4000000000u);
    v = more[threadIdx.x] + odd * 3 + any * 5 + all * 7;
    for (int by = 16; by; by /= 2) v += __shfl_down_sync(~0u, v, by);
    v ^= __shfl_xor_sync(~0u, v, 5) + __shfl_up_sync(~0u, v, 3, 16) + __shfl_sync(~0u, v, 2, 8);
    v += __ballot_sync(~0u, v & 2) + __popc(__match_any_sync(~0u, v & 3)) + __reduce_add_sync(~0u, v & 15);
    if (threadIdx.x % 3 == 0) v += __any_sync(__activemask(), v & 4) + 2 * __all_sync(__activemask(), v & 8);
    out[blockIdx.x * blockDim.x + threadIdx.x] = v;
}

extern "C" __global__ void count(u32* bins, u64* total, float* sum, const u32* in) {
    __shared__ u32 own[16];
    if (threadIdx.x < 16) own[threadIdx.x] = 0;
    __syncthreads();
    u32 v = in[blockIdx.x * blockDim.x + threadIdx.x];
    atomicAdd(&own[v & 15], 1);
    __syncthreads();
    if (threadIdx.x < 16) atomicAdd(&bins[threadIdx.x], own[threadIdx.x]);
    atomicMax(total, (u64)v);
    atomicAdd(sum, 1.0f);
    atomicXor(&tally[v & 3], v);
    if (threadIdx.x == 0) atomicCAS(&bins[16], 0u, v | 1u);
    atomicInc(&bins[17], 1000u);
}

extern "C" __global__ void spill(float* out, const u32* in) {
    float own[16];
    for (int i = 0; i < 16; ++i) own[i] = table[i & 3] * i;
    for (int i = 0; i < 8; ++i) own[in[threadIdx.x] & 15] += own[(in[threadIdx.x] >> 4) & 15];
    out[threadIdx.x] = own[in[threadIdx.x] >> 8 & 15];
}

extern "C" __global__ void ticket_lock(volatile u32* lock, u32* sum) {
    for (bool done = false; !done;) {
        if (atomicCAS((u32*)lock, 0u, 1u) == 0u) {
            *(volatile u32*)sum = *(volatile u32*)sum + 1;
            __threadfence();
            atomicExch((u32*)lock, 0u);
            done = true;
        }
    }
}

// Waits for a block that begins later, as no kernel may that is not launched cooperatively.
extern "C" __global__ void wait_for_next(volatile u32* flags) {
    flags[blockIdx.x] = 1;
    __threadfence();
    while (blockIdx.x + 1 < gridDim.x && flags[blockIdx.x + 1] == 0) {}
}

extern "C" __global__ void never(volatile u32* flags) { while (flags[0] == 0) {} }

extern "C" __global__ void clocks(u64* out) {
    u64 now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    long long cycles = clock64();
    u32 sm;
    asm("mov.u32 %0, %%smid;" : "=r"(sm));
    out[3 * blockIdx.x] = now, out[3 * blockIdx.x + 1] = cycles, out[3 * blockIdx.x + 2] = sm;
}
"""


@pytest.fixture(scope="module")
def module() -> ptx.PtxModule:
    return ptx.compile_ptx(TEXT, arch="sm_90")


def words(count: int, seed: int = 0) -> Any:
    return np.random.default_rng(seed).integers(0, 2**32, count, np.uint32)


def test_barriers_shuffles_and_votes(module: ptx.PtxModule) -> None:
    out = np.zeros(1024, np.uint32)
    _, account = run_both(module, "exchange", (4,), (256,), (out, words(1024), np.int32(256)), shared_bytes=1024)
    assert account.barriers == 4 * 8 * (1 + 2 * 8 + 3)
    assert account.shared_loads.passes >= account.shared_loads.least_passes > 0


def test_atomics_and_variables(module: ptx.PtxModule) -> None:
    bins, total, sums = np.zeros(32, np.uint32), np.zeros(1, np.uint64), np.zeros(1, np.float32)
    run_both(module, "count", (8,), (96,), (bins, total, sums, words(768)))
    assert bins[:16].sum() == sums[0] == bins[17] == 768


def test_local_memory_and_constants(module: ptx.PtxModule) -> None:
    _, account = run_both(module, "spill", (1,), (50,), (np.zeros(50, np.float32), words(50)))
    assert account.local_load_bytes > 0
    assert account.loads.requests == 2  # constants are not the L2's


def test_variables_are_described(module: ptx.PtxModule) -> None:
    found = {v.name: v for v in variables_of(module.ptx)}
    assert found["tally"].initial == np.arange(1, 5, dtype=np.uint32).tobytes()
    assert not found["tally"].constant
    assert found["table"].constant
    assert found["table"].size == 16


class Case:
    """Memory with some arrays, to launch kernels of `TEXT` on."""

    def __init__(self, module: ptx.PtxModule) -> None:
        self.module = module
        self.memory = Memory()

    def array(self, *values: int, kind: int = 0) -> Any:
        return self.memory.add(np.array(values, np.uint32), kind)

    def run(self, kernel: str, grid: int, block: int, *values: Any, **options: Any) -> Any:
        built = build(self.module.ptx, kernel, "sm_90")
        return launch(built, (grid,), (block,), self.memory, values, **options)


@pytest.fixture
def case(module: ptx.PtxModule) -> Case:
    return Case(module)


@pytest.mark.parametrize(("at", "place"), [(-1, -4), (33, 64 * 4), (10**12, 4 * 10**12)])
def test_an_address_of_no_array_is_error_700(case: Case, at: int, place: int) -> None:
    out = case.array(*range(64))
    before = out.data.copy()
    status, account = case.run("put", 1, 32, out, np.int64(at))
    assert (status, account.error_address) == (ILLEGAL, out.address + place)
    assert account.error_line > 0
    assert at == 33 or (out.data == before).all()


def test_a_misaligned_address_is_error_716(case: Case) -> None:
    out, data = case.array(*range(32)), case.array(*range(64))
    assert case.run("get", 1, 32, out, data, np.int64(2))[0] == MISALIGNED
    assert case.run("get", 1, 32, out, data, np.int64(4))[0] == 0
    assert out.data.view(np.uint32)[0] == 1


def test_a_trap_ends_the_kernel(case: Case) -> None:
    assert case.run("check", 1, 32, case.array(*range(32)))[0] == TRAP
    assert case.run("check", 1, 4, case.array(*range(32)))[0] == 0


def test_lanes_that_spin_let_the_holder_of_a_lock_go_on(case: Case) -> None:
    lock, total = case.array(0), case.array(0)
    assert case.run("ticket_lock", 2, 40, lock, total)[0] == 0
    assert total.data.view(np.uint32)[0] == 80


def test_a_block_may_wait_for_a_later_one(case: Case) -> None:
    flags = case.array(*[0] * 3)
    assert case.run("wait_for_next", 3, 32, flags)[0] == 0
    assert flags.data.view(np.uint32).tolist() == [1, 1, 1]


def test_what_never_ends_is_stopped(case: Case) -> None:
    assert case.run("never", 1, 32, case.array(0), most_instructions=10**6)[0] == OUT_OF_TURNS


def test_clocks_are_the_launch_s(case: Case) -> None:
    out = case.memory.add(np.zeros(12, np.uint64))
    clock = Clock(start_ns=12_360, start_cycles=10**6, mhz=1500, timer_step_ns=32, sm_count=3)
    case.run("clocks", 4, 1, out, clock=clock)
    found = out.data.view(np.uint64).reshape(4, 3)
    assert found[:, 2].tolist() == [0, 1, 2, 0]
    assert (found[:, 0] == 12_360 // 32 * 32).all()
    assert (found[:, 1] > 10**6).all()
    assert (found[:, 1] < 10**6 + 100).all()


# The kernel by which the CUDA device holds a stream back.


@pytest.fixture(scope="module")
def probe() -> ptx.PtxModule:
    return ptx.compile_ptx((CUDA_SRC / "probe.cu").read_text(encoding="utf-8"), arch="sm_90", filename="probe.cu")


def hold(probe: ptx.PtxModule, released: int, poll: Any = None) -> Any:
    case = Case(probe)
    flags = case.array(released, 0, kind=HOST)
    gave_up = type(flags)(flags.data, flags.address + 4, HOST)
    arguments = (flags, gave_up, np.int32(1), np.uint64(MILLISECOND))
    clock = Clock(start_ns=10**9, timer_step_ns=32)
    status, account = case.run("blocking_kernel", 1, 1, *arguments, clock=clock, poll=poll)
    return status, account, flags.data.view(np.int32)


def test_a_released_hold_asks_once(probe: ptx.PtxModule) -> None:
    status, account, flags = hold(probe, 1)
    assert (status, account.polls, flags[1]) == (0, 1, 0)
    assert account.bus_bytes_read == 32
    assert account.loads.requests == 1


def test_a_hold_gives_up_in_virtual_time(probe: ptx.PtxModule) -> None:
    status, account, flags = hold(probe, 0)
    assert (status, flags[1]) == (0, 1)
    assert MILLISECOND < account.waited_ns + account.longest_warp_cycles < 1.01 * MILLISECOND  # at 1 GHz


def test_whoever_is_asked_may_release_a_hold_or_stop_it(probe: ptx.PtxModule) -> None:
    seen: list[tuple[int, int]] = []

    def stop(address: int, now_ns: int) -> int:
        seen.append((address, now_ns))
        return len(seen) > 2

    status, account, flags = hold(probe, 0, stop)
    assert (status, account.polls, flags[1]) == (STOPPED, 3, 0)
    assert [now for _, now in seen] == sorted({now for _, now in seen})
    assert seen[0][1] >= 10**9


def test_the_clock_s_step_is_found(probe: ptx.PtxModule) -> None:
    case = Case(probe)
    smallest = case.memory.add(np.zeros(1, np.uint64))
    _, account = case.run("clock_step", 1, 1, smallest, np.int32(8), clock=Clock(timer_step_ns=1024, mhz=1500))
    assert smallest.data.view(np.uint64)[0] == 1024
    assert account.longest_warp_cycles > 7 * 1024 * 1.5


def test_kernels_that_may_wait_say_so(probe: ptx.PtxModule) -> None:
    assert build(probe.ptx, "blocking_kernel", "sm_90").polls
    assert not build(probe.ptx, "probe_copy", "sm_90").polls


# What is not modelled is refused by name.


def entry(body: str, declared: str = "") -> str:
    return f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k()\n{{\n{declared}\n{body}\n ret;\n}}\n"


@pytest.mark.parametrize(
    ("body", "named"),
    [
        ("tcgen05.wait::ld.sync.aligned;", "tcgen05.wait::ld.sync.aligned"),
        ("mov.u32 %r, %pm0;", "%pm0"),
        ("tex.1d.v4.f32.s32 {%r, %r, %r, %r}, [%rd, {%r}];", "tex.1d.v4.f32.s32"),
    ],
)
def test_what_is_not_modelled_is_named(body: str, named: str) -> None:
    with pytest.raises(NotSupported, match="emulated card does not model") as raised:
        build(entry(body, ".reg .u32 %r; .reg .u64 %rd;"), "k", "sm_90")
    assert named in str(raised.value)


def test_a_number_that_looks_like_a_variable_s_place_is_refused() -> None:
    with pytest.raises(NotSupported, match="stands for a variable"):
        build(entry("mov.u64 %rd, 0x5EED000000001234;", ".reg .u64 %rd;"), "k", "sm_90")


def test_an_unknown_entry_is_a_key_error(probe: ptx.PtxModule) -> None:
    with pytest.raises(KeyError):
        build(probe.ptx, "nothing_of_the_kind", "sm_90")


def test_a_change_of_parser_or_decoder_builds_kernels_anew() -> None:
    names = {path.name for path in translator_sources()}
    assert {"ptx.lark", "parsing.py", "decode.py", "translate.py"} <= names
