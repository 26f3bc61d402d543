"""Whether the kernels to copy ask for enough at once to fill a fast memory. How fast they are, a GPU has to say."""

import functools
import runpy

import kernel_resources
import pytest

from pytest_bandwidth.suite.operations.rows import HELD_BYTES, LARGEST_BLOCK
from pytest_bandwidth.suite.operations.stream import WIDE_BYTES_AHEAD

REGISTERS_PER_SM = 64 * 1024
# KiB that CUB wants in flight on each multiprocessor (cub/device/dispatch/tuning/tuning_transform.cuh): A100, H200.
WANTED_KIB = {"sm_80": 16, "sm_90": 48}
ARCHITECTURES = ("sm_80", "sm_90", "sm_120")  # those of the table
NEEDS_NVRTC = "compiling kernels needs: pip install 'pytest-bandwidth[traffic]'"
TABLE = kernel_resources.ROOT / "benchmarks" / "results" / "kernel_facts.md"
# By file, what loads and is to be copied.
LOADING = {
    "stream.cu": ("read", "copy", "scale", "add", "triad"),
    "reductions.cu": ("sum", "dot"),
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


def by_architecture(cell):
    """A cell of the table as its value for each architecture."""
    values = cell.split(" / ")
    return dict(zip(ARCHITECTURES, values if len(values) > 1 else values * len(ARCHITECTURES), strict=True))


@functools.cache
def table():
    """The kept table's rows by operation and kernel, their cells by the column's name."""
    head, _, *rows = (
        [cell.strip() for cell in line.strip("|").split("|")]
        for line in TABLE.read_text(encoding="utf-8").splitlines()
        if line.startswith("|")
    )
    return {(row[0], row[1]): dict(zip(head, row, strict=True)) for row in rows}


@pytest.mark.parametrize(("arch", "wanted"), WANTED_KIB.items())
def test_enough_is_in_flight_on_each_multiprocessor_by_the_machine_code(arch, wanted):
    in_flight = {name: by_architecture(cells["KiB in flight an SM"])[arch] for (_, name), cells in table().items()}
    assert [kernel for _, kernel in KERNELS if float(in_flight[kernel]) < wanted] == []


def test_the_table_has_each_kernel_of_the_suite_as_it_compiles():
    recorded = {}
    for file in kernel_resources.recorded_files():
        recorded |= kernel_resources.recorded(file)
    for (_, kernel), cells in table().items():
        of = {arch: recorded[kernel][arch] for arch in ARCHITECTURES}
        assert by_architecture(cells["registers"]) == {arch: str(found.registers) for arch, found in of.items()}, kernel
        assert by_architecture(cells["local bytes"]) == {arch: str(found.local_bytes) for arch, found in of.items()}
    pytest.importorskip("cuda.bindings.nvrtc", reason=NEEDS_NVRTC)
    operations = {one.operation.title for one in facts()["wanted"]("", facts()["DTYPES"])}
    assert {operation for operation, _ in table()} == operations


def test_no_loop_over_elements_divides_for_its_trip_count():
    files = ("stream.cu", "pointwise.cu", "access.cu", "intensity.cu", "transpose.cu")
    kernels = {kernel for file in files for kernel in kernel_resources.recorded(file)}
    kernels -= {"embedding_f32", "embedding_f16"}  # which divide for each element's row: that is plain about them
    assert [key for key, cells in table().items() if key[1] in kernels and "division" in cells["uses"]] == []


@pytest.mark.parametrize("kernel", ["gemm_pipelined_f16", "gemm_int8_pipelined_f16", "attention_flash2_64_bf16"])
def test_products_use_tensor_cores_fed_by_asynchronous_copies(kernel):
    (cells,) = (cells for (_, name), cells in table().items() if name == kernel)
    for used in cells["uses"].split(" / "):
        assert {"mma", "ldmatrix", "cp.async"} <= set(used.split(", "))


@pytest.mark.parametrize("kernel", ["copy", "sum"])
def test_a_row_of_the_table_is_what_the_machine_code_has(kernel):
    pytest.importorskip("cuda.bindings.nvrtc", reason=NEEDS_NVRTC)
    if facts()["nvdisasm"]() is None:
        pytest.skip("disassembling needs: pip install nvidia-cuda-nvdisasm")
    made_with, compiler = kernel_resources.recorded_nvrtc(), kernel_resources.nvrtc_version()
    if made_with != compiler:
        pytest.skip(f"the table was made with NVRTC {made_with}, this is {compiler}")
    for one in facts()["wanted"](kernel, ("float16",)):
        for row in facts()["rows"](one, ARCHITECTURES):
            assert list(row) == list(table()[row[:2]].values())


@each_kernel
def test_blocks_for_the_longest_rows_have_enough_registers(file, kernel):
    if file in ROWS:
        every = kernel_resources.recorded(file)[kernel].values()
        assert max(found.registers for found in every) * LARGEST_BLOCK <= REGISTERS_PER_SM


@functools.cache
def facts():
    return runpy.run_path(str(kernel_resources.ROOT / "benchmarks" / "kernel_facts.py"))


@each_kernel
def test_a_thread_loads_64_bytes_before_it_uses_the_first(file, kernel):
    _, size = facts()["loads_under_way"](facts()["kernel_ptx"](kernel_resources.ptx(file, "sm_90").ptx, kernel))
    assert size >= WIDE_BYTES_AHEAD == HELD_BYTES


LOAD_4, LOAD_16 = "ld.global.nc.u32 %r{0}, [%rd1];", "LDG.E.128.CONSTANT R{0}, desc[UR4][R2.64] ;"
EITHER = ["BRA.U !UP0, `(.L_x_1) ;", LOAD_16.format(16), "BRA `(.L_x_2) ;", ".L_x_1:"]
EITHER += ["LDG.E R8, desc[UR4][R2.64] ;", ".L_x_2:"]


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ([LOAD_4.format(1), LOAD_4.format(2)], (2, 8)),
        ([LOAD_4.format(1), "add.s32 %r3, %r1, 1;", LOAD_4.format(2)], (1, 4)),
        ([LOAD_4.format(1), "mov.b32 %r3, %r1;", LOAD_4.format(2), "add.s32 %r4, %r3, 1;", LOAD_4.format(5)], (2, 8)),
        ([LOAD_4.format(1), "add.s32 %r3, %r9, 1;", LOAD_4.format(2)], (2, 8)),
        ([LOAD_4.format(1), "st.global.u32 [%rd2], %r9;", LOAD_4.format(2)], (1, 4)),
        ([LOAD_4.format(1), "@%p1 bra $L__BB0_2;", "$L__BB0_2:", LOAD_4.format(2)], (2, 8)),
        (["$L__BB0_2:", LOAD_4.format(1), "@%p1 bra $L__BB0_2;", LOAD_4.format(2)], (1, 4)),
        (["ld.global.v4.u32 {%r1, %r2, %r3, %r4}, [%rd1];", "add.s32 %r9, %r4, 1;", LOAD_4.format(5)], (1, 16)),
        ([LOAD_16.format(4), "@!P0 " + LOAD_16.format(8)], (2, 32)),
        ([LOAD_16.format(4), "FADD R9, R7, R8 ;", LOAD_16.format(12)], (1, 16)),
        ([LOAD_16.format(4), "STG.E desc[UR4][R2.64], R8 ;", LOAD_16.format(12)], (1, 16)),
        ([LOAD_16.format(4), "EXIT ;", LOAD_16.format(12)], (1, 16)),
        # One of two ways, then more: by itself, by a uniform predicate, and a wait on the other way.
        ([LOAD_16.format(4), *EITHER, LOAD_16.format(24)], (3, 48)),
        ([LOAD_16.format(4), *EITHER[:3], "FADD R9, R7, R8 ;", *EITHER[3:], LOAD_16.format(24)], (3, 48)),
        (["LDG.E.U16 R1, desc[UR4][R2.64] ;"], (1, 2)),
        # Either 16 bytes at once, or six single words.
        (["@P2 " + LOAD_16.format(8), *(f"@!P4 LDG.E R{r}, desc[UR4][R2.64] ;" for r in range(8, 14))], (6, 24)),
    ],
)
def test_what_is_under_way_is_counted_from_either_notation(code, expected):
    assert facts()["loads_under_way"](code) == expected


SASS = ["S2R R0, SR_TID.X ;", LOAD_16.format(4), "I2F.U64.RP R8, R4 ;", "STG.E desc[UR4][R2.64], R8 ;", "EXIT ;"]
SASS += [".L_x_1:", "BRA `(.L_x_1) ;", "NOP ;"]


def test_the_first_load_has_its_place_without_what_fills_the_kernel_up():
    assert facts()["first_load"](SASS) == "2 of 5"
    assert facts()["first_load"](SASS[2:]) == "none"
    assert facts()["first_load"](["mov.u32 %r1, 1;", "cp.async.cg.shared.global [%r1], [%rd1], 16;"]) == "2 of 2"


@pytest.mark.parametrize(
    ("instruction", "used"),
    [
        ("div.s64 %rd1, %rd2, %rd3;", ["division"]),
        ("rem.u32 %r1, %r2, %r3;", ["division"]),
        ("div.rn.f32 %f1, %f2, %f3;", []),
        ("@!P0 UI2F.U32.RP UR4, UR5 ;", ["division"]),
        ("I2FP.F32.U32 R13, R13 ;", []),
        ("HMMA.16816.F32 R4, R8, R6, R4 ;", ["mma"]),
        ("IMMA.16832.S8.S8 R4, R8.ROW, R6.COL, R4 ;", ["mma"]),
        ("LDSM.16.M88.4 R8, [R2] ;", ["ldmatrix"]),
        ("@!P1 LDGSTS.E.BYPASS.128 [R85], desc[UR18][R18.64] ;", ["cp.async"]),
        ("LDGDEPBAR ;", []),
        ("IDP.4A.S8.S8 R4, R5, R6, R4 ;", ["dp4a"]),
    ],
)
def test_what_a_kernel_uses_is_found_in_either_notation(instruction, used):
    assert facts()["uses"]([instruction]) == used
