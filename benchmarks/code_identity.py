"""Measure what it costs a test to identify its code, in addition to compiling it.

    python benchmarks/code_identity.py [--repeat 5] [--indices-mib 1024] [--file softmax.cu]

For each shipped kernel: the normal form of its PTX, its machine code from the cubin, and both hashes, as at a test's
first launch of it. For each of its twins on the host: the Numba function's hash, which every test takes. Where CuPy is
installed: the same of its raw kernels, and the second compilation of their source, once for all kernels of a file. It
needs no GPU. And the list of files of a test that imports a package of 200 modules: the first, which hashes all, and
later ones. Prints milliseconds of the processor: the median, the longest, and which kernel took longest. The last
lines have the seconds by the clock for the hash of an index array on this host, and those for a card that reads it.
"""

from __future__ import annotations

import argparse
import importlib
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numba
import numpy as np

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.code.callables import function_digest
from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.devices.code.launch import launch_digest
from pytest_bandwidth.devices.contents import bytes_digest
from pytest_bandwidth.devices.cuda.code import RawKernelCodes
from pytest_bandwidth.devices.kernel_source import kernel_names, shipped_files, shipped_folder
from pytest_bandwidth.domain.code.kernel_signature import source_name
from pytest_bandwidth.features.traffic.ptx import Program, compile_cubin
from pytest_bandwidth.read_files.listing import ReadFiles
from pytest_bandwidth.read_files.opened import OpenedFiles


def milliseconds(call: Callable[[], object], repeat: int) -> float:
    """Return the processor's time of the median of so many calls."""
    taken = []
    for _ in range(repeat):
        begun = time.process_time()
        call()
        taken.append(time.process_time() - begun)
    return 1e3 * median(taken)


def kernels(names: Sequence[str], repeat: int) -> tuple[dict[str, float], list[int]]:
    """Return milliseconds by kernel, and the bytes of each normal form."""
    found: dict[str, float] = {}
    sizes = []
    for file in names:
        text = (shipped_folder() / file).read_text(encoding="utf-8")
        made = compile_cubin(text, filename=file)
        ptx, cubin = made.ptx, made.data
        for name in Program(ptx).kernels:
            identify = partial(kernel_code.__wrapped__, ptx.ptx, cubin, name)
            found[source_name(name)] = milliseconds(identify, repeat)
            sizes.append(len(kernel_code(ptx.ptx, cubin, name).ptx or ""))
    return found, sizes


def raw_kernels(names: Sequence[str]) -> tuple[dict[str, float], dict[str, float]]:
    """Return milliseconds of each shipped kernel whose source is compiled, and of each source; nothing without CuPy."""
    try:
        import cupy
    except ImportError:
        return {}, {}
    cupy.cuda.compiler._get_arch_for_options_for_nvrtc = lambda: ("-arch=sm_90", "cubin")  # there need be no GPU
    codes = RawKernelCodes(cupy, None)
    compiled, found = {}, {}
    for file in names:
        text = (shipped_folder() / file).read_text(encoding="utf-8")
        compiled[file] = milliseconds(partial(codes.code, cupy.RawKernel(text, "none")), 1)
        for name in kernel_names(text):
            found[name] = milliseconds(partial(codes.code, cupy.RawKernel(text, name)), 1)
    return found, compiled


def indices(mebibytes: int, repeat: int) -> tuple[int, float]:
    """Return an index array's bytes, and the least seconds by the clock that its hash takes here."""
    array = np.arange(mebibytes * 2**20 // 4, dtype=np.int32)
    taken = []
    for _ in range(repeat):
        begun = time.perf_counter()
        bytes_digest(array)
        taken.append(time.perf_counter() - begun)
    return array.nbytes, min(taken)


def files(repeat: int) -> tuple[float, float]:
    """Return milliseconds of a test's list of files: the first in a process, and later ones."""
    with tempfile.TemporaryDirectory() as name:
        root = Path(name).resolve()
        (root / "big").mkdir()
        modules = [f"m{number}" for number in range(200)]
        for number, module in enumerate(modules):
            earlier = "".join(f"from .{one} import f as f_{one}\n" for one in modules[max(0, number - 5) : number])
            functions = "".join(f"def g{one}(x):\n    return x + {one}\n" for one in range(20))
            (root / "big" / f"{module}.py").write_text(f"{earlier}def f(x):\n    return x\n{functions}")
        (root / "big" / "__init__.py").write_text("")
        test = root / "test_big.py"
        test.write_text(f"from big import {modules[-1]}\n")
        sys.path.insert(0, name)
        importlib.import_module("test_big")
        asking = "test_big.py::test", str(test), (), ()

        def listed() -> ReadFiles:
            return ReadFiles(OpenedFiles(name), ["test_*.py"])

        read = listed()
        first = milliseconds(lambda: read.list_of(*asking), 1)
        return first, milliseconds(lambda: read.list_of(*asking), repeat)


def line(what: str, found: dict[str, float]) -> str:
    """Return a table's row."""
    slowest = max(found, key=lambda name: found[name])
    return f"| {what} | {len(found)} | {median(found.values()):.2f} | {found[slowest]:.2f} | {slowest} |"


@numba.njit(parallel=True)
def scaled(out: Any, x: Any) -> None:
    for i in numba.prange(out.size):
        out[i] = 2.0 * x[i]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeat", type=int, default=5, help="calls of which the median counts (default: 5)")
    parser.add_argument("--indices-mib", type=int, default=1024, help="MiB of indices to hash (default: 1024)")
    parser.add_argument("--file", action="append", help="a file of kernels (default: all that ship)")
    options = parser.parse_args()
    repeat, names = options.repeat, options.file or shipped_files()
    of_kernels, sizes = kernels(names, repeat)
    of_functions = {"scaled": milliseconds(lambda: function_digest(scaled), repeat)}
    launch = Launch(None, (1, 1, 1), (256, 1, 1), (*(np.zeros(64, np.float32) for _ in range(4)), np.int64(64)))
    print("| identified | how many | median ms | longest ms | which |\n|---|---|---|---|---|")
    print(line("kernel: PTX and cubin", of_kernels))
    print(line("Numba function", of_functions))
    print(line("launch of five arguments", {"any": milliseconds(lambda: launch_digest(launch), repeat)}))
    first, later = files(repeat)
    print(line("files of a test of 200 modules, first", {"any": first}))
    print(line("files of a test of 200 modules, later", {"any": later}))
    raw, sources = raw_kernels(names)
    if raw:
        print(line("raw kernel of CuPy's", raw))
        print(line("its source, compiled once more", sources))
    size, seconds = indices(options.indices_mib, repeat)
    rate = size / seconds / 1e9
    print(f"indices: {size / 1e6:,.0f} MB in {seconds:.3f} s here, {rate:.2f} GB/s; a card reads them once:")
    print(f"{1e3 * size / 3350e9:.2f} ms at 3,350 GB/s (H100 SXM), 5 ms from {size / 5e-3 / 1e9:,.0f} GB/s on")
    print(f"normal forms: {min(sizes) / 1e3:.1f} to {max(sizes) / 1e3:.1f} kB, {sum(sizes) / 1e6:.2f} MB in all")


if __name__ == "__main__":
    main()
