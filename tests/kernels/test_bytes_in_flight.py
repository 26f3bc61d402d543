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
