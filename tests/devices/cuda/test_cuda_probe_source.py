"""cuda_src/probe.cu without a GPU: its arithmetic built by the host's compiler, its loads looked at in PTX.

The host build runs the threads of a grid one after the other. That shows what each kernel computes, for every size; it
shows nothing of speed, and the clocks and the blocking kernel have no meaning there.
"""

import ctypes
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from children import HANGS_SECONDS

from pytest_bandwidth.devices.contents import sums_of
from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.devices.numpy_arrays import masks_for

SHIM = r"""
#include <cstddef>
#define __global__
#define __device__
#define __forceinline__ inline
#define __restrict__ __restrict
#define __align__(n) alignas(n)
struct Index { int x; };
static Index blockIdx, threadIdx, blockDim, gridDim;
static void __threadfence_system() {}
static void atomicAdd(unsigned long long* sum, unsigned long long more) { *sum += more; }
static unsigned long long wall_clock64() { return 0; }
#define __HIPCC__ 1
#include "PROBE"
template <typename F> void grid(int blocks, int threads, F body) {
    gridDim.x = blocks; blockDim.x = threads;
    for (blockIdx.x = 0; blockIdx.x < blocks; ++blockIdx.x)
        for (threadIdx.x = 0; threadIdx.x < threads; ++threadIdx.x) body();
}
extern "C" void run_read(Vector* x, u32* sink, u32 never, long long n) {
    grid(3, 5, [&] { probe_read(x, sink, never, n); });
}
extern "C" void run_write(Vector* out, u32 seed, long long n) { grid(3, 5, [&] { probe_write(out, seed, n); }); }
extern "C" void run_copy(Vector* x, Vector* out, long long n) { grid(3, 5, [&] { probe_copy(x, out, n); }); }
extern "C" void run_add(Vector* x, Vector* y, Vector* out, long long n) {
    grid(3, 5, [&] { probe_add(x, y, out, n); });
}
extern "C" void run_fill(Vector* x, u32* sink, u32 never, u32 seed, u32 dirty_of_64, long long n) {
    grid(3, 5, [&] { fill_cache(x, sink, never, seed, dirty_of_64, n); });
}
extern "C" void run_random(u64* out, u64 seed, u64 keep, u64 set, long long n) {
    grid(3, 5, [&] { random_words(out, seed, keep, set, n); });
}
extern "C" void run_sums(u64* x, u64* sums, long long n) { grid(3, 5, [&] { sum_words(x, sums, n); }); }
"""
SIZES = [0, 1, 14, 15, 16, 60, 61, 97, 1000]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Any:
    compiler = shutil.which("g++") or shutil.which("clang++")
    if compiler is None:
        pytest.skip("no C++ compiler on this machine")
    folder = tmp_path_factory.mktemp("probe")
    (folder / "shim.cpp").write_text(SHIM.replace("PROBE", str(shipped_folder() / "probe.cu")))
    command = [compiler, "-std=c++17", "-O1", "-shared", "-fPIC", "-w", "shim.cpp", "-o", "probe.so"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=HANGS_SECONDS)
    return ctypes.CDLL(str(folder / "probe.so"))


def words(count: int, seed: int) -> Any:
    """Random 32-bit words; rows of four are the kernels' vectors."""
    return np.random.default_rng(seed).integers(0, 2**32, (count, 4), np.uint32)


def at(array: Any) -> ctypes.c_void_p:
    return ctypes.c_void_p(array.ctypes.data)


def fenced(count: int) -> tuple[Any, Any]:
    """An output with a row before and after it that must stay as they are."""
    whole = np.full((count + 2, 4), 0xDEADBEEF, np.uint32)
    return whole, whole[1 : count + 1]


@pytest.mark.parametrize("n", SIZES)
def test_copy_and_add_compute_every_element_and_no_other(built: Any, n: int) -> None:
    x, y = words(n, 1), words(n, 2)
    for run, arguments, expected in ((built.run_copy, (at(x),), x), (built.run_add, (at(x), at(y)), x + y)):
        whole, out = fenced(n)
        run(*arguments, at(out), ctypes.c_longlong(n))
        assert (out == expected).all()
        assert (whole[[0, -1]] == 0xDEADBEEF).all()


@pytest.mark.parametrize("n", SIZES)
def test_write_fills_every_vector_differently_and_by_its_seed(built: Any, n: int) -> None:
    outs = []
    for seed in (1, 2):
        whole, out = fenced(n)
        built.run_write(at(out), ctypes.c_uint32(seed), ctypes.c_longlong(n))
        assert (whole[[0, -1]] == 0xDEADBEEF).all()
        assert len({tuple(row) for row in out.tolist()}) == n
        outs.append(out)
    assert n == 0 or (outs[0] != outs[1]).any()


@pytest.mark.parametrize("n", [1, 15, 61, 97])
def test_read_looks_at_every_element(built: Any, n: int) -> None:
    # With one thread's share the whole array, its sum is the fold of everything: change any word and it changes.
    x = words(n, 3)
    sink = np.zeros(1, np.uint32)
    for thread in range(min(15, n)):
        share = np.bitwise_xor.reduce(x[thread::15].ravel())
        sink[0] = 0
        built.run_read(at(x), at(sink), ctypes.c_uint32(int(share)), ctypes.c_longlong(n))
        assert sink[0] == share
    before = words(1, 9)[0, 0]
    sink[0] = before
    folds = {int(np.bitwise_xor.reduce(x[t::15].ravel())) for t in range(15)}
    never = next(v for v in range(100) if v not in folds)
    built.run_read(at(x), at(sink), ctypes.c_uint32(never), ctypes.c_longlong(n))
    assert sink[0] == before


LINE = 8  # vectors, 128 bytes


@pytest.mark.parametrize("dirty_of_64", [0, 1, 21, 32, 43, 64])
def test_filling_a_cache_writes_whole_lines_evenly_and_reads_the_others(built: Any, dirty_of_64: int) -> None:
    x = words(64 * LINE, 5)
    filled, sink = x.copy(), np.zeros(1, np.uint32)
    fill = (at(sink), ctypes.c_uint32(7), ctypes.c_uint32(3), ctypes.c_uint32(dirty_of_64))
    built.run_fill(at(filled), *fill, ctypes.c_longlong(len(x)))
    written = (filled != x).reshape(64, -1)
    assert (written.all(axis=1) == written.any(axis=1)).all()
    assert written.all(axis=1).sum() == dirty_of_64
    # In any sixteen lines that follow each other there are as many as in any others, to one.
    counts = [np.roll(written.all(axis=1), -start)[:16].sum() for start in range(64)]
    assert max(counts) - min(counts) <= 1


def test_filling_a_cache_looks_at_what_it_does_not_write(built: Any) -> None:
    x = words(15 * LINE, 6)  # of fifteen threads, each has eight vectors
    for thread in range(15):
        sink, share = np.zeros(1, np.uint32), int(np.bitwise_xor.reduce(x[thread::15].ravel()))
        fill = (at(sink), ctypes.c_uint32(share), ctypes.c_uint32(3), ctypes.c_uint32(0))
        built.run_fill(at(x), *fill, ctypes.c_longlong(len(x)))
        assert sink[0] == share


def test_random_words_are_splitmix64_under_masks(built: Any) -> None:
    n = 1000
    out = np.zeros(n, np.uint64)
    built.run_random(at(out), ctypes.c_uint64(0), ctypes.c_uint64(2**64 - 1), ctypes.c_uint64(0), ctypes.c_longlong(n))
    # The first outputs of splitmix64 from state 0, as published with it.
    assert [hex(word) for word in out[:3].tolist()] == ["0xe220a8397b1dcdaf", "0x6e789e6aa1b965f4", "0x6c45d188009454f"]
    assert len(np.unique(out)) == n

    masks = masks_for(np.dtype(np.float32))
    keep, fixed = ctypes.c_uint64(masks.keep), ctypes.c_uint64(masks.set)
    built.run_random(at(out), ctypes.c_uint64(5), keep, fixed, ctypes.c_longlong(n))
    floats = out.view(np.float32)
    assert ((floats >= 1) & (floats < 2)).all()


@pytest.mark.parametrize("n", SIZES)
def test_sums_of_words_are_the_hosts(built: Any, n: int) -> None:
    x, sums = words(max(n, 1), 7).view(np.uint64).ravel()[:n].copy(), np.zeros((3, 2), np.uint64)
    built.run_sums(at(x), at(sums), ctypes.c_longlong(n))
    assert tuple(map(int, sums.sum(axis=0, dtype=np.uint64))) == sums_of(x)


@pytest.fixture(scope="module")
def ptx() -> str:
    pytest.importorskip("cuda.bindings.nvrtc")
    from pytest_bandwidth.features.traffic.ptx.nvrtc import compile_ptx

    return compile_ptx((shipped_folder() / "probe.cu").read_text(), arch="sm_90", filename="probe.cu").ptx


@pytest.mark.parametrize(
    ("kernel", "loads", "stores"),
    [("probe_read", 5, 0), ("probe_write", 0, 1), ("probe_copy", 1, 1), ("probe_add", 2, 1)],
)
def test_probes_load_and_store_16_bytes_at_once(ptx: str, kernel: str, loads: int, stores: int) -> None:
    body = ptx.split(f".entry {kernel}(")[1].split("\n}")[0]
    # Of those that read alone, four in the unrolled loop; else one by one.
    assert len(re.findall(r"ld\.global\S*\.v4\.u32|ld\.global\S*\.v4\.b32", body)) >= loads
    assert len(re.findall(r"st\.global\S*\.v4\.u32|st\.global\S*\.v4\.b32", body)) >= stores
    assert not re.findall(r"ld\.global\S*\.[ub](?:8|16|64)\b", body)


def test_the_file_is_where_the_wheel_takes_it_from() -> None:
    assert (shipped_folder() / "probe.cu").is_file()
    assert Path(shipped_folder()).name == "cuda_src"
