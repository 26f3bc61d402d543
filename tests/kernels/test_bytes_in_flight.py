"""Whether the kernels to copy ask for enough at once to fill a fast memory. How fast they are, a GPU has to say."""

import functools
import runpy

import kernel_resources
import pytest

from pytest_bandwidth.devices.kernel_source import shipped_folder
from pytest_bandwidth.suite.operations.rows import HELD_BYTES, LARGEST_BLOCK
from pytest_bandwidth.suite.operations.stream import WIDE_BYTES_AHEAD

KIB = 1024
REGISTERS_PER_SM, THREADS_PER_SM, BLOCK = 64 * KIB, 2048, 256
# What CUB wants in flight on each multiprocessor (cub/device/dispatch/tuning/tuning_transform.cuh): A100, H200, B200.
WANTED_BYTES = {"sm_80": 16 * KIB, "sm_90": 48 * KIB, "sm_100": 64 * KIB}
# By file, what loads and is to be copied.
LOADING = {
    "stream.cu": ("read", "copy", "scale", "add", "triad"),
    "pointwise.cu": ("bias_relu_dropout", "cos_cos", "swiglu"),
    "softmax.cu": ("softmax_registers",),
    "layernorm.cu": ("layer_norm_registers", "rms_norm_residual_registers"),
    "logsumexp.cu": ("logsumexp_registers",),
    "quantize.cu": ("quantize_int8_registers", "quantize_fp8_registers", "quantize_mxfp8_registers"),
    "access.cu": ("embedding",),
    "topk.cu": ("topk",),
    "rope.cu": ("rope",),
}
ROWS = ("softmax.cu", "layernorm.cu", "logsumexp.cu", "quantize.cu")
KERNELS = [
    (file, kernel)
    for file, names in LOADING.items()
    for kernel in kernel_resources.recorded(file)
    if kernel.startswith(names) and (file in ROWS or "x" in kernel.rpartition("_")[2])
]
each_kernel = pytest.mark.parametrize(("file", "kernel"), KERNELS, ids=[kernel for _, kernel in KERNELS])


def resident_threads(registers: int) -> int:
    """Return how many threads of blocks of 256 fit: registers are given out by eights."""
    return min(THREADS_PER_SM, REGISTERS_PER_SM // (-(-registers // 8) * 8) // BLOCK * BLOCK)


@pytest.mark.parametrize("arch", WANTED_BYTES)
@each_kernel
def test_enough_is_in_flight_on_each_multiprocessor(file, kernel, arch):
    registers = kernel_resources.recorded(file)[kernel][arch].registers
    assert resident_threads(registers) * WIDE_BYTES_AHEAD >= WANTED_BYTES[arch]


@each_kernel
def test_blocks_for_the_longest_rows_have_enough_registers(file, kernel):
    if file in ROWS:
        every = kernel_resources.recorded(file)[kernel].values()
        assert max(found.registers for found in every) * LARGEST_BLOCK <= REGISTERS_PER_SM


@functools.cache
def ptx(file: str) -> str:
    nvrtc = pytest.importorskip("pytest_bandwidth.features.traffic.ptx.nvrtc")
    text = (shipped_folder() / file).read_text(encoding="ascii")
    return str(nvrtc.compile_ptx(text, arch="sm_90", filename=file).ptx)


@functools.cache
def facts():
    return runpy.run_path(str(kernel_resources.ROOT / "benchmarks" / "kernel_facts.py"))


@each_kernel
def test_a_thread_loads_64_bytes_before_it_uses_the_first(file, kernel):
    assert facts()["bytes_under_way"](facts()["kernel_ptx"](ptx(file), kernel)) >= WIDE_BYTES_AHEAD == HELD_BYTES


LOAD_4, LOAD_16 = "ld.global.nc.u32 %r{0}, [%rd1];", "LDG.E.128.CONSTANT R{0}, desc[UR4][R2.64] ;"


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ([LOAD_4.format(1), LOAD_4.format(2)], 8),
        ([LOAD_4.format(1), "add.s32 %r3, %r1, 1;", LOAD_4.format(2)], 4),
        ([LOAD_4.format(1), "mov.b32 %r3, %r1;", LOAD_4.format(2), "add.s32 %r4, %r3, 1;", LOAD_4.format(5)], 8),
        ([LOAD_4.format(1), "add.s32 %r3, %r9, 1;", LOAD_4.format(2)], 8),
        ([LOAD_4.format(1), "st.global.u32 [%rd2], %r9;", LOAD_4.format(2)], 4),
        ([LOAD_4.format(1), "@%p1 bra $L__BB0_2;", "$L__BB0_2:", LOAD_4.format(2)], 8),
        (["$L__BB0_2:", LOAD_4.format(1), "@%p1 bra $L__BB0_2;", LOAD_4.format(2)], 4),
        (["ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", "add.s32 %r9, %r4, 1;", LOAD_4.format(5)], 16),
        ([LOAD_16.format(4), "@!P0 " + LOAD_16.format(8)], 32),
        ([LOAD_16.format(4), "FADD R9, R7, R8 ;", LOAD_16.format(12)], 16),
        ([LOAD_16.format(4), "STG.E desc[UR4][R2.64], R8 ;", LOAD_16.format(12)], 16),
        ([LOAD_16.format(4), "EXIT ;", LOAD_16.format(12)], 16),
        (["LDG.E.U16 R1, desc[UR4][R2.64] ;"], 2),
    ],
)
def test_what_is_under_way_is_counted_from_either_notation(code, expected):
    assert facts()["bytes_under_way"](code) == expected
