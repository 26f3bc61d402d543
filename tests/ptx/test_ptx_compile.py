"""Compiling touches nothing of the process that asks for it, and can be ended."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from ptx_sources import run

from pytest_bandwidth import ptx
from pytest_bandwidth.domain.errors import KernelError, NotOnThisDevice
from pytest_bandwidth.ptx.nvrtc.process import _POOL, _SERVER

# Not in the cache of programs that other tests share: it has to be compiled here.
EMPTY_LOG = 'extern "C" __global__ void nothing_to_log_of() {}\n'


def test_a_compile_leaves_the_one_byte_objects_that_python_shares() -> None:
    """An empty log is one NUL byte, written where NVRTC is told to; Python has one object for each byte."""
    module = ptx.compile_ptx(EMPTY_LOG)
    assert module.log == ""
    assert [chr(code).encode("latin-1")[0] for code in range(256)] == list(range(256))


# Each instance has two of its own: 2²² functions in all, for minutes and gigabytes.
ENDLESS = """
template <int N, int I> struct Many {
    static __device__ int f() { return Many<N - 1, 2 * I>::f() + Many<N - 1, 2 * I + 1>::f(); }
};
template <int I> struct Many<0, I> { static __device__ int f() { return I; } };
extern "C" __global__ void k(int* x) { *x = Many<21, 0>::f(); }
"""
PLAIN = 'extern "C" __global__ void k(int* x) { *x = 1; }'


def test_a_compilation_past_its_time_is_ended_and_the_next_one_is_well() -> None:
    began = time.monotonic()
    with pytest.raises(KernelError, match=r"much\.cu has been compiled for 1 s without an end; .*traffic-timeout"):
        ptx.compile_ptx(ENDLESS, filename="much.cu", max_seconds=1)
    assert time.monotonic() - began < 20
    assert ".entry k" in ptx.compile_ptx(PLAIN).ptx


def test_ctrl_c_ends_a_compilation_at_once() -> None:
    text = f"from pytest_bandwidth import ptx\nptx.nvrtc_version()\nprint(flush=True)\nptx.compile_ptx({ENDLESS!r})"
    with subprocess.Popen(
        [sys.executable, "-c", text], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(1)
        assert process.poll() is None
        began = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert "KeyboardInterrupt" in said
    assert time.monotonic() - began < 10


def test_a_compiler_has_a_bound_of_memory() -> None:
    text = f"""
import resource, runpy
server = runpy.run_path({str(_SERVER)!r})
server["_bound_memory"]()
print(resource.getrlimit(resource.RLIMIT_AS)[0] == server["MEMORY_BYTES"])
"""
    assert subprocess.run([sys.executable, "-c", text], check=True, capture_output=True, text=True).stdout == "True\n"


def test_a_compiler_that_died_is_told_and_replaced() -> None:
    ptx.compile_ptx(PLAIN)
    child = _POOL.take()
    child._process.kill()
    with pytest.raises(KernelError, match=r"the compiler ended while it read NVRTC \(status -9\)"):
        child.ask({}, 60)
    child.end()
    _POOL.give_back(child)
    assert ".entry k" in ptx.compile_ptx(PLAIN).ptx


def test_a_compiler_reads_no_module_of_the_current_folder(tmp_path: Path) -> None:
    for name in ("runpy", "json", "signal"):
        (tmp_path / f"{name}.py").write_text(f"open('read', 'w').write({name!r})\n")
    text = "import os, sys; from pytest_bandwidth import ptx; os.chdir(sys.argv[1]); print(ptx.nvrtc_version())"
    made = subprocess.run([sys.executable, "-c", text, str(tmp_path)], check=True, capture_output=True, text=True)
    assert made.stdout.strip() == ptx.nvrtc_version()
    assert not (tmp_path / "read").exists()


def test_headers_of_the_host_that_change_nothing_may_be_included() -> None:
    names = ("stdint.h", "cstdint", "stddef.h", "stdio.h", "math.h", "string.h", "assert.h", "cuda_fp16.h")
    includes = "".join(f"#include <{name}>\n" for name in names)
    text = (
        includes
        + """
    extern "C" __global__ void k(uint32_t* x, size_t n, std::uint8_t b) {
        assert(n > 1);
        x[0] = UINT32_MAX - (int64_t(n) << 1) - b;
        x[1] = (uint32_t)sqrtf(16.0f);
    }"""
    )
    x = np.zeros(2, np.uint32)
    run(text, "k", (1,), (1,), x, np.uint64(3), np.uint8(4))
    assert x.tolist() == [2**32 - 1 - 10, 4]


@pytest.mark.parametrize(
    ("header", "remedy"),
    [("cmath", "include <cuda/std/cmath>"), ("limits.h", "include <cuda/std/climits>"), ("vector", "copy what")],
)
def test_other_headers_of_the_host_come_with_a_remedy(header: str, remedy: str) -> None:
    found = rf"kernel\.cu includes <{header}>, and NVRTC.* no headers of the host; {remedy}"
    with pytest.raises(KernelError, match=found):
        ptx.compile_ptx(f"#include <{header}>\n{PLAIN}")


def test_kernels_for_tensor_cores_skip() -> None:
    with pytest.raises(NotOnThisDevice, match="tensor cores"):
        ptx.compile_ptx(f"#include <mma.h>\n{PLAIN}")
