"""Measure how fast PTX is executed on the CPU: thread-instructions a second, by kernel and by threads of a batch.

    python benchmarks/traffic.py [--rounds 7] [--largest 20]

One process, one thread. Each figure is the median of `--rounds` executions after one that compiles the loops. Seconds
are this process's CPU seconds, on which other processes have less influence; the wall clock's are there as well. Needs
NVRTC, no GPU. Prints Markdown.
"""

from __future__ import annotations

import argparse
import os
import platform
import time
from collections.abc import Callable
from datetime import datetime, timezone
from statistics import median

import numba
import numpy as np

from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx import launch

KERNELS = r"""
extern "C" __global__ void copy(float* a, const float* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i];
}
extern "C" __global__ void copy_float4(float4* a, const float4* b, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i];
}
extern "C" __global__ void triad(float* a, const float* b, const float* c, float s, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[i] + s * c[i];
}
extern "C" __global__ void gather(float* a, const float* b, const int* index, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) a[i] = b[index[i]];
}
#define TILE 16
extern "C" __global__ void gemm(float* c, const float* a, const float* b, int n) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int x = threadIdx.x, y = threadIdx.y, col = blockIdx.x * TILE + x, row = blockIdx.y * TILE + y;
    float sum = 0;
    for (int k = 0; k < n; k += TILE) {
        left[y][x] = a[row * n + k + x];
        right[y][x] = b[(k + y) * n + col];
        __syncthreads();
        for (int j = 0; j < TILE; j++) sum += left[y][j] * right[j][x];
        __syncthreads();
    }
    c[row * n + col] = sum;
}
extern "C" __global__ void softmax(float* out, const float* in, int n) {
    __shared__ float part[8];
    const float* row = in + blockIdx.x * n;
    float top = -3e38f, sum = 0;
    for (int i = threadIdx.x; i < n; i += 256) top = fmaxf(top, row[i]);
    for (int lane = 16; lane; lane /= 2) top = fmaxf(top, __shfl_xor_sync(~0u, top, lane));
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = top;
    __syncthreads();
    for (int warp = 0; warp < 8; warp++) top = fmaxf(top, part[warp]);
    __syncthreads();
    for (int i = threadIdx.x; i < n; i += 256) sum += expf(row[i] - top);
    for (int lane = 16; lane; lane /= 2) sum += __shfl_xor_sync(~0u, sum, lane);
    if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = 0;
    for (int warp = 0; warp < 8; warp++) sum += part[warp];
    for (int i = threadIdx.x; i < n; i += 256) out[blockIdx.x * n + i] = expf(row[i] - top) / sum;
}
"""

Execute = Callable[[], ptx.Execution]


def cost(execute: Execute, rounds: int) -> tuple[float, float, int]:
    """Return the median CPU and wall seconds of one execution, and how many instructions its threads executed.

    Raises RuntimeError where it has a fault, which would cost less than the work.
    """
    execution = execute()
    if execution.faults:
        raise RuntimeError(execution.faults[0].text)
    cpu, wall = [], []
    for _ in range(rounds):
        cpu_start, wall_start = time.process_time(), time.perf_counter()
        execution = execute()
        cpu.append(time.process_time() - cpu_start)
        wall.append(time.perf_counter() - wall_start)
    return median(cpu), median(wall), execution.thread_instructions


def floats(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def stream(program: ptx.Program, name: str, threads: int) -> Execute:
    """Measure a streaming kernel of so many threads."""
    per_thread = 4 if name == "copy_float4" else 1
    arrays = [floats(threads * per_thread) for _ in range(3 if name == "triad" else 2)]
    args: list[object] = list(arrays)
    if name == "triad":
        args.append(np.float32(3))
    if name == "gather":
        args.append(np.random.default_rng(1).permutation(threads).astype(np.int32))
    grid = -(-threads // 256)
    return lambda: ptx.execute(program, name, (grid,), (256,), (*args, threads))


def gemm(program: ptx.Program, n: int) -> Execute:
    a, b, c = floats(n, n), floats(n, n), np.zeros((n, n), np.float32)
    return lambda: ptx.execute(program, "gemm", (n // 16, n // 16), (16, 16), (c, a, b, n))


def softmax(program: ptx.Program, rows: int, columns: int) -> Execute:
    x, out = floats(rows, columns), np.zeros((rows, columns), np.float32)
    return lambda: ptx.execute(program, "softmax", (rows,), (256,), (out, x, columns))


def print_rates(program: ptx.Program, rounds: int, most: int) -> None:
    print("\n## Thread-instructions a second while counting\n")
    print("| kernel | threads | thread-instructions | CPU s | wall s | M instructions / s |")
    print("|---|---|---|---|---|---|")
    threads, side = 1 << most, 1 << min(8, most // 2)
    work: list[tuple[str, int, Execute]] = [
        (name, threads, stream(program, name, threads)) for name in ("copy", "copy_float4", "triad", "gather")
    ]
    work += [(f"gemm {side}³, fp32, tiles of 16", side * side, gemm(program, side))]
    work += [(f"softmax, {2 * side} rows of 4096", 2 * side * 256, softmax(program, 2 * side, 4096))]
    for name, count, execute in work:
        cpu, wall, instructions = cost(execute, rounds)
        figures = f"{instructions:,} | {cpu:.3f} | {wall:.3f} | {instructions / cpu / 1e6:.0f}"
        print(f"| {name} | {count:,} | {figures} |", flush=True)


def print_batches(program: ptx.Program, rounds: int, most: int) -> None:
    print("\n## Threads of a batch\n")
    side = 1 << min(8, most // 2)
    print(f"| threads a batch | triad of 2^{most} threads, M instructions / s | gemm {side}³, M instructions / s |")
    print("|---|---|---|")
    chosen = launch.BATCH_LANES
    for power in range(11, 19):
        launch.BATCH_LANES = 1 << power
        work = stream(program, "triad", 1 << most), gemm(program, side)
        costs = [cost(execute, rounds) for execute in work]
        rates = " | ".join(f"{instructions / cpu / 1e6:.0f}" for cpu, _, instructions in costs)
        mark = " (used)" if chosen == launch.BATCH_LANES else ""
        print(f"| 2^{power}{mark} | {rates} |", flush=True)
    launch.BATCH_LANES = chosen


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--largest", type=int, default=20, help="log2 of the most threads of a kernel")
    options = parser.parse_args()
    print(
        f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {platform.machine()} {platform.system()}, "
        f"{os.cpu_count()} processors, load {os.getloadavg()[0]:.2f}, Python {platform.python_version()}, "
        f"NumPy {np.__version__}, Numba {numba.__version__}, NVRTC {ptx.nvrtc_version()}"
    )
    program = ptx.Program(ptx.compile_ptx(KERNELS))
    print_rates(program, options.rounds, options.largest)
    print_batches(program, options.rounds, options.largest)


if __name__ == "__main__":
    main()
