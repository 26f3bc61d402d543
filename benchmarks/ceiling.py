"""Measure how near the host kernels come to C with non-temporal stores; and where this host's caches end.

    python benchmarks/ceiling.py [--mib 512] [--rounds 21]     each stream kernel against benchmarks/ceiling.c
    python benchmarks/ceiling.py --kernels                     every family's kernels against their probes
    python benchmarks/ceiling.py --plateau                     bandwidth by array size, caches warm and cold

C and Numba run alternately, on the same arrays, each round in the other order; the ratio is the median over the rounds.
Prints Markdown. Without gcc it prints an error and ends with exit status 3.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import platform
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from pytest_bandwidth.devices.base import Budget, Launch, Workload
from pytest_bandwidth.devices.cpu.device import CpuDevice
from pytest_bandwidth.devices.host import ActivityWatch, cache_bytes, last_cache_bytes
from pytest_bandwidth.devices.kernel_source import read_source
from pytest_bandwidth.domain.traffic import Traffic
from pytest_bandwidth.suite.host_kernels import stream

HERE = Path(__file__).resolve().parent
SCALAR = np.float32(3)
Call = Callable[[], object]


def headline(device: CpuDevice) -> str:
    """Print the machine and the date, as they stand above each table."""
    found = device.identity
    return (
        f"{datetime.now(timezone.utc):%Y-%m-%d %H:%M} UTC, {found.name}, {found.settings['threads']} threads, "
        f"L3 as reported {(cache_bytes()['3'] or 0) / 2**20:.0f} MiB, {platform.system()} {platform.release()}, "
        f"Numba {found.facts['numba']} ({found.facts['threading_layer']}), "
        f"load {os.getloadavg()[0]:.2f}"
    )


def company(watch: ActivityWatch) -> str:
    """Print what else ran meanwhile: other work changes the figures."""
    return "Others meanwhile: " + ("; ".join(watch.conditions().others) or "none") + "."


def compile_c(folder: Path, threads: int) -> ctypes.CDLL:
    """Compile ceiling.c to a library. Raises SystemExit(3) without gcc, or where gcc fails."""
    gcc = shutil.which("gcc")
    if gcc is None:
        print("gcc is not installed, so there is no C version to compare with", file=sys.stderr)
        raise SystemExit(3)
    library = folder / "ceiling.so"
    flags = ["-O3", "-march=native", "-fopenmp", "-shared", "-fPIC", "-w"]
    done = subprocess.run([gcc, *flags, str(HERE / "ceiling.c"), "-o", str(library)], capture_output=True, text=True)
    if done.returncode:
        print(f"gcc failed: {done.stderr.strip()}", file=sys.stderr)
        raise SystemExit(3)
    loaded = ctypes.CDLL(str(library))
    loaded.set_threads(threads)
    loaded.c_sum.restype = ctypes.c_float
    if not loaded.has_nontemporal_stores():
        print("this processor's C version stores ordinarily: the ratios flatter Numba", file=sys.stderr)
    return loaded


def seconds_of(call: Call) -> float:
    started = time.perf_counter_ns()
    call()
    return (time.perf_counter_ns() - started) * 1e-9


def pairs(device: CpuDevice, library: Any, n: int) -> list[tuple[str, int, Call, Call]]:
    """Name, bytes moved, the C version and the Numba version of each kernel, on the same arrays."""
    a, b, c = device.empty(n, "float32"), device.random(n, "float32"), device.random(n, "float32")
    a[:] = 0
    sink, threads = np.zeros(1, np.float32), int(device.identity.settings["threads"])
    pa, pb, pc = (ctypes.c_void_p(x.ctypes.data) for x in (a, b, c))
    s, size = ctypes.c_float(SCALAR), ctypes.c_size_t(n)
    h = stream
    return [
        ("copy", 8 * n, lambda: library.c_copy(pa, pb, size), lambda: h.copy(threads, a, b, n)),
        ("triad", 12 * n, lambda: library.c_triad(pa, pb, pc, s, size), lambda: h.triad(threads, a, b, c, SCALAR, n)),
        ("add", 12 * n, lambda: library.c_add(pa, pb, pc, size), lambda: h.add(threads, a, b, c, n)),
        ("scale", 8 * n, lambda: library.c_scale(pa, pb, s, size), lambda: h.scale(threads, a, b, SCALAR, n)),
        ("write", 4 * n, lambda: library.c_write(pa, s, size), lambda: h.write(threads, a, SCALAR, n)),
        ("sum", 4 * n, lambda: library.c_sum(pb, size), lambda: h.sum_all(threads, sink, b, 1, n)),
    ]


def against_c(mib: int, rounds: int) -> None:
    device, watch = CpuDevice(), ActivityWatch()
    print(headline(device) + f"; {mib} MiB arrays, {rounds} rounds\n")
    print("| kernel | C GB/s | Numba GB/s | Numba ÷ C, median of rounds |\n|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        library = compile_c(Path(folder), int(device.identity.settings["threads"]))
        for name, moved, in_c, in_numba in pairs(device, library, mib * 2**20 // 4):
            for warm_up in (in_c, in_numba, in_c, in_numba):
                warm_up()
            c_seconds, numba_seconds = [], []
            for number in range(rounds):
                if number % 2:
                    c_seconds.append(seconds_of(in_c))
                    numba_seconds.append(seconds_of(in_numba))
                else:
                    numba_seconds.append(seconds_of(in_numba))
                    c_seconds.append(seconds_of(in_c))
            ratio = median(c / n for c, n in zip(c_seconds, numba_seconds, strict=True))
            print(f"| {name} | {gbps(moved, c_seconds)} | {gbps(moved, numba_seconds)} | {ratio:.3f} |", flush=True)
    print("\n" + company(watch))


def gbps(moved: int, seconds: list[float]) -> str:
    return f"{moved / median(seconds) / 1e9:.1f}"


def plateau(budget_seconds: float = 3.0) -> None:
    """Print reads and triads by array size: as the last run left the caches, and after reading 1 to 8 × the last level.

    The cases of one size alternate in random order. Otherwise the host's own drift would look like an effect.
    """
    device, watch = CpuDevice(), ActivityWatch()
    cache, threads = last_cache_bytes(), int(device.identity.settings["threads"])
    if cache is None:
        raise SystemExit("the system does not tell the size of its caches")
    factors = (0, 1, 2, 4, 8)
    buffer = device.random(2 * cache, "float32")
    sink, never = np.zeros(1, np.float32), np.float32(np.nan)

    def evict(factor: int) -> None:
        stream.read(threads, sink, buffer, never, factor * cache // 4)

    evict(1)
    costs = {factor: median([seconds_of(partial(evict, factor)) for _ in range(5)]) for factor in factors}
    print(headline(device))
    for name, arrays in (("read", 1), ("triad", 3)):
        print(f"\n{name}, GB/s by MiB of data\n\n| MiB | warm | ", end="")
        print(" | ".join(f"{f} × L3 read before, {costs[f] * 1e3:.1f} ms" for f in factors[1:]) + " |")
        print("|---|" + "---|" * len(factors))
        for mib in (1.5, 6, 24, 48, 96, 160, 384):
            n = int(mib * 2**20 / 4 / arrays)
            a, b, c = device.empty(n, "float32"), device.random(n, "float32"), device.random(n, "float32")

            def run(a: Any = a, b: Any = b, c: Any = c, n: int = n, reads: bool = arrays == 1) -> None:
                if reads:
                    stream.read(threads, sink, b, never, n)
                else:
                    stream.triad(threads, a, b, c, SCALAR, n)

            taken: dict[int, list[float]] = {factor: [] for factor in factors}
            ends = time.perf_counter() + budget_seconds
            while time.perf_counter() < ends:
                for factor in random.sample(factors, len(factors)):
                    run()
                    evict(factor)
                    taken[factor].append(seconds_of(run))
            print(f"| {mib:g} | " + " | ".join(gbps(4 * arrays * n, t) for t in taken.values()) + " |", flush=True)
    print("\n" + company(watch))


def kernels(mib: int) -> None:
    """Print every family's float32 kernels, measured as the plugin measures them."""
    device, watch = CpuDevice(), ActivityWatch()
    cols = 4096
    rows = mib * 2**20 // 4 // cols
    n, f = rows * cols, np.float32
    x, y, out = device.random(n, "float32"), device.random(n, "float32"), device.empty(n, "float32")
    side, row = device.random(cols, "float32"), device.empty(rows, "float32")
    packed, index = device.random(n // 32 * 18, "uint8"), np.random.default_rng(1).permutation(n).astype(np.int32)
    seed, tenth = np.uint32(7), f(0.1)
    shape = (rows, cols)
    # File, kernel, arguments, what is read, what is written.
    cases: list[tuple[str, str, tuple[Any, ...], tuple[Any, ...], tuple[Any, ...]]] = [
        ("stream", "read_f32", (row, x, f(np.nan), n), (x,), ()),
        ("stream", "write_f32", (out, f(1), n), (), (out,)),
        ("stream", "copy_f32", (out, x, n), (x,), (out,)),
        ("stream", "scale_f32", (out, x, f(3), n), (x,), (out,)),
        ("stream", "add_f32", (out, x, y, n), (x, y), (out,)),
        ("stream", "triad_f32", (out, x, y, f(3), n), (x, y), (out,)),
        ("reductions", "sum_f32", (row, x, n), (x,), ()),
        ("reductions", "dot_f32", (row, x, y, n), (x, y), ()),
        ("pointwise", "bias_f32", (out, x, f(1), n), (x,), (out,)),
        ("pointwise", "cos_f32", (out, x, n), (x,), (out,)),
        ("pointwise", "cos_cos_f32", (out, x, n), (x,), (out,)),
        ("pointwise", "dropout_f32", (out, x, tenth, seed, n), (x,), (out,)),
        ("pointwise", "bias_relu_dropout_f32", (out, x, f(1), tenth, seed, n), (x,), (out,)),
        ("access", "misaligned_f32", (out, x, 3, n - 3), (x,), (out,)),
        ("access", "strided_read_f32", (out, x, 2, n // 2), (x[: n // 2],), (out[: n // 2],)),
        ("access", "strided_write_f32", (out, x, 2, n // 2), (x[: n // 2],), (out[: n // 2],)),
        ("access", "gather_f32_i32", (out, x, index, n, n), (x, index), (out,)),
        ("transpose", "transpose_naive_f32", (out, x, *shape), (x,), (out,)),
        ("transpose", "transpose_tiled_f32", (out, x, *shape), (x,), (out,)),
        ("softmax", "softmax_naive_f32", (out, x, *shape), (x,), (out,)),
        ("softmax", "softmax_online_f32", (out, x, *shape), (x,), (out,)),
        ("softmax", "softmax_staged_f32", (out, x, *shape), (x,), (out,)),
        ("layernorm", "layer_norm_naive_f32", (out, x, side, side, f(1e-5), *shape), (x, side, side), (out,)),
        ("layernorm", "layer_norm_staged_f32", (out, x, side, side, f(1e-5), *shape), (x, side, side), (out,)),
        ("logsumexp", "logsumexp_fused_f32", (row, x, *shape), (x,), (row,)),
        ("logsumexp", "exp_shifted_f32", (out, x, row, *shape), (x, row), (out,)),
        ("q4_0", "q4_0_dequantize_f32", (out, packed, n), (packed,), (out,)),
        ("q4_0", "q4_0_gemv_f32", (row, side, packed, 1, rows, cols), (side, packed), (row,)),
        ("q4_0", "linear_gemv_f32", (row, side, x, 1, rows, cols), (side, x), (row,)),
    ]
    print(headline(device) + f"; {mib} MiB arrays, rows of {cols}\n")
    print("| kernel | GB/s | probe | probe GB/s | relative |\n|---|---|---|---|---|")
    for file, name, args, reads, writes in cases:
        launch = Launch(device.kernel(read_source(f"{file}.cu", name, [])), (1, 1, 1), (256, 1, 1), args)
        traffic = Traffic(sum(a.nbytes for a in reads), sum(a.nbytes for a in writes))
        workload = Workload(device.launcher(launch, None), traffic, launch=launch, reads=reads, writes=writes)
        found = device.measure(workload, Budget(15, 0.8, tolerates_run_delay="all"), lambda _: None)
        print(
            f"| {name} | {found.gbps or 0:.1f} | {found.rounds.probe_name} | {found.probe_gbps or 0:.1f} "
            f"| {found.relative or 0:.2f} |",
            flush=True,
        )
    print("\n" + company(watch))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mib", type=int, default=512, help="MiB of each array")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--kernels", action="store_true")
    parser.add_argument("--plateau", action="store_true")
    options = parser.parse_args()
    if options.plateau:
        plateau()
    elif options.kernels:
        kernels(options.mib)
    else:
        against_c(options.mib, options.rounds)


if __name__ == "__main__":
    main()
