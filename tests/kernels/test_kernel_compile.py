"""The compile gate: every kernel compiles without a warning for every architecture, and needs what it needed before."""

import functools

import kernel_resources
import pytest

from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.devices.kernel_source import kernel_names
from pytest_bandwidth.domain.errors import KernelError
from pytest_bandwidth.domain.measured.measurement import KernelResources

pytest.importorskip("cuda.bindings.nvrtc", reason="compiling kernels needs: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.features.traffic.ptx import compile_ptx

FILES = kernel_resources.kernel_files()
file_by_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


@functools.cache
def compiled(file):
    return kernel_resources.compiled(file.read_text(encoding="utf-8"), file.name)


def test_there_are_kernels_to_gate():
    assert {file.name for file in FILES} >= {"stream.cu", "gemm.cu", "attention.cu", "q4_0.cu"}


@file_by_file
def test_compiles_without_a_warning_and_without_local_memory(file):
    kernels = compiled(file)
    assert kernels, f'{file.name} has no extern "C" kernel'
    spills = kernel_resources.spilling(kernels)
    assert not spills, f"{file.name} keeps values in local memory:\n  " + "\n  ".join(spills)


@file_by_file
def test_every_kernel_is_found_by_its_name_in_the_text(file):
    # No macro may make kernels: a wrong name could not be answered with the list of those that exist.
    assert sorted(kernel_names(file.read_text(encoding="utf-8"))) == sorted(compiled(file))


@file_by_file
def test_every_kernel_is_identified_by_its_ptx_and_its_machine_code(file):
    text = file.read_text(encoding="utf-8")
    ptx, machine_code = compile_ptx(text, filename=file.name).ptx, kernel_resources.cubin(text, file.name, "sm_90").data
    found = {name: kernel_code(ptx, machine_code, name).identity for name in compiled(file)}
    assert not [name for name, identity in found.items() if None in (identity.ptx, identity.sass)]


@file_by_file
def test_is_plain_ascii_within_120_columns(file):
    text = file.read_text(encoding="ascii")
    assert max(map(len, text.splitlines())) <= 120
    assert text.startswith("// "), "a header comment tells what the family is"


@file_by_file
def test_needs_the_recorded_resources(file):
    made_with, compiler = kernel_resources.recorded_nvrtc(), kernel_resources.nvrtc_version()
    if made_with != compiler:
        pytest.skip(
            f"resources.yaml was made with NVRTC {made_with}, this is {compiler}, which allots registers in its own way"
        )
    changes = kernel_resources.differences(kernel_resources.recorded(file.name), compiled(file))
    assert not changes, (
        f"{file.name} needs other resources than tests/support/resources.yaml says:\n  "
        + "\n  ".join(changes)
        + f"\nWhere that is intended: {kernel_resources.REWRITE}, then commit the file's diff."
    )


def test_the_record_has_no_file_that_is_gone():
    assert set(kernel_resources.recorded_files()) == {file.name for file in FILES}


# ---- the gate itself ------------------------------------------------------------------------------------------------

GOOD = 'extern "C" __global__ void scale(float* a) { a[threadIdx.x] *= 3.0f; }'


def test_a_warning_stops_the_gate():
    with pytest.raises(KernelError, match="never referenced"):
        kernel_resources.compiled(GOOD.replace("{", "{ int left_over = 3;", 1), "warns.cu", ["sm_90"])


def test_a_spill_stops_the_gate():
    # 64 values that depend on each other across a barrier do not fit the 32 registers that 2048 threads leave.
    hungry = """
    extern "C" __global__ void __launch_bounds__(1024, 2) hungry(float* out, const float* in) {
        float kept[64];
        #pragma unroll
        for (int i = 0; i < 64; ++i) kept[i] = in[i * 1024 + threadIdx.x];
        __syncthreads();
        float product = 1.0f;
        #pragma unroll
        for (int i = 0; i < 64; ++i) {
            product = product * kept[i] + kept[63 - i];
            out[i * 1024 + threadIdx.x] = product;
        }
    }"""
    spills = kernel_resources.spilling(kernel_resources.compiled(hungry, "hungry.cu", ["sm_80"]))
    assert len(spills) == 1
    assert spills[0].startswith("hungry sm_80: ")
    assert spills[0].endswith(" B of local memory a thread")


def test_another_kernel_body_shows_as_a_difference():
    before = kernel_resources.compiled(GOOD, "scale.cu", ["sm_75", "sm_90"])
    heavier = GOOD.replace("{", "{ __shared__ float s[64]; s[threadIdx.x] = a[0]; __syncthreads(); a[1] = s[3];", 1)
    changes = kernel_resources.differences(before, kernel_resources.compiled(heavier, "scale.cu", ["sm_75", "sm_90"]))
    assert [line.split(":")[0] for line in changes] == ["scale sm_75", "scale sm_90"]
    assert all("shared bytes 0 → 256" in line for line in changes)


def test_differences_name_what_changed():
    def resources(registers, local_bytes=0):
        return {"sm_90": KernelResources(registers=registers, local_bytes=local_bytes, shared_bytes=0)}

    before = {"same": resources(32), "grew": resources(32), "went": resources(8)}
    after = {"same": resources(32), "grew": resources(96, 128), "came": resources(8)}
    assert kernel_resources.differences(before, after) == [
        "came: is not in the record",
        "went: is in the record, but the file has no such kernel",
        "grew sm_90: registers 32 → 96, local bytes 0 → 128",
    ]
