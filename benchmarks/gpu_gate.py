"""Judge kernels of many kinds on a GPU as CI does: unchanged, edited and slower ones, by their old code beside them.

    python benchmarks/gpu_gate.py      # unchanged, edited, 3, 5 and 10 % slower, at a tolerance of 2 %
    python benchmarks/gpu_gate.py --drop 5% --tolerance 3% --kernel copy --kernel gemm --rounds 3

In a git repository of its own, with --bandwidth-strict; the baseline is of three new processes, and each round's
change is a commit. A slower kernel works 1/(1 − drop) times as much as it declares, in the same arrays; an edited one
does the same work by other code. Prints for each round what became of each kernel, and the seconds of a row, start of
pytest included. Ends with 1 where a kernel that lost nothing fails under strict, a slower one passes, or one is not
measured, and with 2 without a GPU.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from arena import AUTHOR, judged_by
from gpu import FAILED, FINE, UNUSABLE, ask_child

from pytest_bandwidth.domain.units import format_percent, parse_fraction

FINE_STATUSES = ("OK", "IMPROVED")
# What slower kernels do besides has room in arrays of 6/5.
MOST_DROP = 1 - 5 / 6
KERNELS = ("copy", "triad", "rowsum", "softmax", "gather", "transpose", "gemm", "exponential", "serial", "short")
# MORE(n): what a kernel does of n, in millionths more where it is slower; EDITED: whether it is other code.
SOURCE = """
#define MORE(n) ((n) + (long long)(n) * {more} / 1000000)
#define EDITED {edited}
typedef long long i64;

__device__ __forceinline__ i64 first() { return (i64)blockIdx.x * blockDim.x + threadIdx.x; }
__device__ __forceinline__ i64 step() { return (i64)gridDim.x * blockDim.x; }
// Never true, which the compiler does not see.
__device__ __forceinline__ bool edited(i64 i, i64 n) { return EDITED && i == (n ^ 0x5a5a5a5a5a5all); }

extern "C" __global__ void copy(const float4* __restrict__ x, float4* __restrict__ y, i64 n) {
    for (i64 i = first(); i < MORE(n); i += step()) { float4 v = x[i]; if (edited(i, n)) v.x = 1; y[i] = v; }
}
extern "C" __global__ void triad(
    const float4* __restrict__ b, const float4* __restrict__ c, float4* __restrict__ a, i64 n) {
    for (i64 i = first(); i < MORE(n); i += step()) {
        float4 v = b[i], w = c[i];
        if (edited(i, n)) v.x = 1;
        a[i] = make_float4(v.x + 3 * w.x, v.y + 3 * w.y, v.z + 3 * w.z, v.w + 3 * w.w);
    }
}
__device__ float block_sum(float v) {
    __shared__ float part[32];
    for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = v;
    __syncthreads();
    v = threadIdx.x < blockDim.x / 32 ? part[threadIdx.x] : 0;
    if (threadIdx.x < 32) for (int o = 16; o; o /= 2) v += __shfl_down_sync(~0u, v, o);
    if (threadIdx.x == 0) part[0] = v;
    __syncthreads();
    return part[0];
}
// One block a row, of 1024 columns.
extern "C" __global__ void rowsum(const float4* __restrict__ x, float* __restrict__ y, i64 rows) {
    for (i64 row = blockIdx.x; row < MORE(rows); row += gridDim.x) {
        float4 v = x[row * 256 + threadIdx.x];
        if (edited(row, rows)) v.x = 1;
        float sum = block_sum(v.x + v.y + v.z + v.w);
        if (threadIdx.x == 0) y[row] = sum;
    }
}
extern "C" __global__ void softmax(const float4* __restrict__ x, float4* __restrict__ y, i64 rows) {
    for (i64 row = blockIdx.x; row < MORE(rows); row += gridDim.x) {
        float4 v = x[row * 256 + threadIdx.x];
        if (edited(row, rows)) v.x = 1;
        v = make_float4(__expf(v.x), __expf(v.y), __expf(v.z), __expf(v.w));
        float over = 1 / block_sum(v.x + v.y + v.z + v.w);
        y[row * 256 + threadIdx.x] = make_float4(v.x * over, v.y * over, v.z * over, v.w * over);
    }
}
extern "C" __global__ void gather(
    const float* __restrict__ x, const int* __restrict__ at, float* __restrict__ y, i64 n) {
    for (i64 i = first(); i < MORE(n); i += step()) { float v = x[at[i]]; if (edited(i, n)) v = 1; y[i] = v; }
}
// Of a matrix with 4096 columns; a column of the result is as far apart as the rows are.
extern "C" __global__ void transpose(const float* __restrict__ x, float* __restrict__ y, i64 rows, i64 stride) {
    for (i64 i = first(); i < MORE(rows) * 4096; i += step()) {
        float v = x[i];
        if (edited(i, rows)) v = 1;
        y[i % 4096 * stride + i / 4096] = v;
    }
}
// c (side, side) = a (side, most) times b (most, side), of the first `depth` of most.
extern "C" __global__ void gemm(const float* a, const float* b, float* c, int side, int depth, int most) {
    __shared__ float s[16][16], t[16][16];
    int row = blockIdx.y * 16 + threadIdx.y, col = blockIdx.x * 16 + threadIdx.x;
    float sum = 0;
    for (int k = 0; k < MORE(depth); k += 16) {
        s[threadIdx.y][threadIdx.x] = a[row * most + k + threadIdx.x];
        t[threadIdx.y][threadIdx.x] = b[(k + threadIdx.y) * side + col];
        __syncthreads();
#pragma unroll
        for (int i = 0; i < 16; ++i) sum += s[threadIdx.y][i] * t[i][threadIdx.x];
        __syncthreads();
    }
    if (edited(row, side)) sum = 1;
    c[row * side + col] = sum;
}
extern "C" __global__ void exponential(const float* __restrict__ x, float* __restrict__ y, i64 n, int times) {
    for (i64 i = first(); i < n; i += step()) {
        float v = x[i];
        for (int k = 0; k < MORE(times); ++k) v = __expf(-v) + 1;
        if (edited(i, n)) v = 1;
        y[i] = v;
    }
}
// One thread that waits for each of its loads.
extern "C" __global__ void serial(const int* __restrict__ next, int* __restrict__ y, int hops) {
    int at = 0;
    for (int k = 0; k < MORE(hops); ++k) at = next[at];
    if (edited(at, hops)) at = 1;
    *y = at;
}
"""
TEST = """
import numpy as np
import pytest

SCALE = {scale}
MOST = 6 / 5  # room for what slower kernels do besides
BLOCKS = 2048


def streams(bandwidth, name, inputs, mib):
    n = mib * 2**20 // SCALE // 16
    arrays = [bandwidth.random(int(4 * n * MOST), "float32") for _ in range(inputs)]
    out = bandwidth.empty(int(4 * n * MOST), "float32")
    return name, BLOCKS, 256, (*arrays, out, np.int64(n)), 16 * n * inputs, 16 * n


def rows(bandwidth, name, wide):
    n = 2**18 // SCALE
    x = bandwidth.random(int(n * MOST) * 1024, "float32")
    y = bandwidth.empty(int(n * MOST) * (1024 if wide else 1), "float32")
    return name, BLOCKS, 256, (x, y, np.int64(n)), 4096 * n, 4096 * n if wide else 4 * n


def gather(bandwidth):
    n = 2**26 // SCALE
    at = bandwidth.xp.asarray(np.random.default_rng(1).integers(0, n, int(n * MOST), dtype=np.int32))
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(int(n * MOST), "float32")
    return "gather", BLOCKS, 256, (x, at, y, np.int64(n)), 8 * n, 4 * n


def transpose(bandwidth):
    n = 2**14 // SCALE
    stride = -(-int(n * MOST + 1) // 8) * 8
    x, y = bandwidth.random(stride * 4096, "float32"), bandwidth.empty(stride * 4096, "float32")
    return "transpose", BLOCKS, 256, (x, y, np.int64(n), np.int64(stride)), 4 * 4096 * n, 4 * 4096 * n


def gemm(bandwidth):
    side, depth = max(2048 // SCALE // 16 * 16, 16), max(8192 // SCALE // 16 * 16, 16)
    most = int(depth * MOST) // 16 * 16 + 16
    a, b = bandwidth.random(side * most, "float32"), bandwidth.random(side * most, "float32")
    c = bandwidth.empty(side * side, "float32")
    args = (a, b, c, np.int32(side), np.int32(depth), np.int32(most))
    return "gemm", (side // 16, side // 16), (16, 16), args, 8 * side * depth, 4 * side * side


def exponential(bandwidth):
    n = 2**22 // SCALE
    x, y = bandwidth.random(n, "float32"), bandwidth.empty(n, "float32")
    return "exponential", BLOCKS, 256, (x, y, np.int64(n), np.int32(1000)), 4 * n, 4 * n


def serial(bandwidth):
    n = 2**22 // SCALE
    order = np.random.default_rng(1).permutation(n).astype(np.int32)
    follow = np.empty(n, np.int32)
    follow[order] = np.roll(order, -1)
    return "serial", 1, 1, (bandwidth.xp.asarray(follow), bandwidth.empty(1, "int32"), np.int32(2000)), 8000, 4


WORK = {{
    "copy": lambda b: streams(b, "copy", 1, 512),
    "triad": lambda b: streams(b, "triad", 2, 512),
    "short": lambda b: streams(b, "copy", 1, 8),
    "rowsum": lambda b: rows(b, "rowsum", False),
    "softmax": lambda b: rows(b, "softmax", True),
    "gather": gather,
    "transpose": transpose,
    "gemm": gemm,
    "exponential": exponential,
    "serial": serial,
}}


@pytest.mark.bandwidth(tolerance="{tolerance}")
@pytest.mark.parametrize("kernel", {kernels})
def test_kernel(bandwidth, kernel):
    name, grid, block, args, reads, writes = WORK[kernel](bandwidth)
    bandwidth.launch(bandwidth.kernel("kernels.cu", name), grid, block, args, reads=reads, writes=writes)
"""


class Project:
    """Keep a user's repository, and run its tests in it."""

    def __init__(self, folder: Path, device: str, kernels: Sequence[str], tolerance: str, scale: int) -> None:
        self._folder, self._device = folder, device
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / ".gitignore").write_text("__pycache__/\nout.json\nbandwidth-results/\n")
        given = {"kernels": tuple(kernels), "tolerance": tolerance, "scale": scale}
        (folder / "test_kernels.py").write_text(TEST.format(**given))
        self._git("init", "-q")

    def commit(self, what: str, drop: float = 0.0, *, edited: bool = False) -> None:
        """Commit the kernels as they are to be judged, and what else has changed."""
        more = round(1e6 * (1 / (1 - drop) - 1))
        text = SOURCE.replace("{more}", str(more)).replace("{edited}", str(int(edited)))
        (self._folder / "kernels.cu").write_text(text)
        self._git("add", "-A")
        self._git("-c", "commit.gpgsign=false", "commit", "-q", "--allow-empty", "-m", what)

    def run(self, *args: str) -> tuple[str, list[dict], float]:
        """Run the tests; return what was printed, the rows, and seconds."""
        given = (f"--bandwidth-device={self._device}", "--bandwidth-baseline=base.yaml")
        return judged_by(self._folder, (*given, *args))[1:]

    def _git(self, *args: str) -> None:
        subprocess.run(["git", *AUTHOR, *args], cwd=self._folder, check=True)


def told(row: dict) -> str:
    """Return what was found of a kernel, and of how much its time is known to have changed."""
    drop = (row["verdict"] or {}).get("drop")
    return f"{row['status']}" + (f" {-100 * drop:+.2f} %" if drop is not None else "")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--drop", action="append", help="drop to inject (default: 3%%, 5%% and 10%%)")
    parser.add_argument("--tolerance", default="2%")
    parser.add_argument("--kernel", action="append", choices=KERNELS, help="kernel to judge (default: all)")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--runs", type=int, default=3, help="processes of the baseline (default: 3)")
    parser.add_argument("--scale", type=int, default=1, help="divide the sizes by this, for slow devices")
    parser.add_argument("--shown", type=Path, metavar="FOLDER", help="keep what each run printed")
    parser.add_argument("--pytest", default="", metavar="ARGS", help="further arguments of each run")
    options = parser.parse_args()
    drops = [parse_fraction(given) for given in options.drop or ["3%", "5%", "10%"]]
    if max(drops) > MOST_DROP:
        parser.error(f"found a drop of {format_percent(max(drops))}, expected at most {format_percent(MOST_DROP)}")
    described = ask_child(options.device)
    if isinstance(described, str):
        print(f"no GPU to measure: {described}", file=sys.stderr)
        return UNUSABLE
    print(
        f"{described['name']}, driver {described['facts']['driver_version']}, tolerance {options.tolerance}", flush=True
    )
    kernels, more = options.kernel or KERNELS, tuple(options.pytest.split())
    asked = [
        ("unchanged", 0.0, False),
        ("edited", 0.0, True),
        *((f"{format_percent(d)} slower", d, True) for d in drops),
    ]
    wrong = 0
    with tempfile.TemporaryDirectory() as folder:
        project = Project(Path(folder), options.device, kernels, options.tolerance, options.scale)
        project.commit("kernels")
        shown, rows, seconds = project.run("--bandwidth-update", f"--bandwidth-runs={options.runs}", *more)
        print(f"baseline of {options.runs} processes: {seconds:.1f} s, {dict(Counter(row['status'] for row in rows))}")
        keep(options.shown, "baseline", shown)
        for turn in range(options.rounds):
            for what, drop, edited in asked:
                project.commit(what, drop, edited=edited)
                shown, rows, seconds = project.run("--bandwidth-strict", *more)
                keep(options.shown, f"{turn} {what}", shown)
                found = Counter(row["status"] for row in rows)
                passed = sum(found[status] for status in FINE_STATUSES)
                wrong += passed if drop else len(rows) - passed
                missing = len(kernels) - len(rows)
                wrong += missing
                print(f"\n{what}: {dict(found)}, {missing} not measured, {seconds / len(kernels):.1f} s a row")
                for row in rows:
                    name = row["nodeid"].partition("[")[2].rstrip("]")
                    print(f"    {name:12} {row['gbps'] or 0:7.0f} GB/s  {told(row)}")
                sys.stdout.flush()
    return FAILED if wrong else FINE


def keep(folder: Path | None, name: str, shown: str) -> None:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name.replace(' ', '-').replace('%', '')}.txt").write_text(shown)


if __name__ == "__main__":
    sys.exit(main())
