"""The compile gate: every kernel compiles without a warning for every architecture, and needs what it needed before."""

import functools

import kernel_resources
import pytest

from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.devices.kernel_source import kernel_names
from pytest_bandwidth.domain.errors import KernelError

pytest.importorskip("cuda.bindings.nvrtc", reason="compiling kernels needs: pip install 'pytest-bandwidth[traffic]'")

FILES = kernel_resources.kernel_files()
# Each takes ten seconds or more for all architectures.
LONG = {"attention.cu", "gemm.cu", "kvcache.cu", "q4_0.cu"}
file_by_file = pytest.mark.parametrize(
    "file", [pytest.param(f, id=f.name, marks=[pytest.mark.slow] if f.name in LONG else []) for f in FILES]
)


@functools.cache
def compiled(file):
    return kernel_resources.compiled(file.read_text(encoding="utf-8"), file.name)


@file_by_file
def test_compiles_without_a_warning_and_without_local_memory(file):
    spilling = {(name, arch) for name, found in compiled(file).items() for arch, of in found.items() if of.local_bytes}
    assert spilling == set()


@file_by_file
def test_every_kernel_is_found_by_its_name_in_the_text_and_has_code_of_its_own(file):
    # No macro may make kernels: a wrong name could not be answered with the list of those that exist.
    text = file.read_text(encoding="ascii")
    assert sorted(kernel_names(text)) == sorted(compiled(file)) != []
    made = kernel_resources.cubin(text, file.name, "sm_90")
    found = [kernel_code(made.ptx.ptx, made.data, name).identity for name in compiled(file)]
    assert len({one.ptx for one in found} - {None}) == len({one.sass for one in found} - {None}) == len(found)
    assert max(map(len, text.splitlines())) <= 120
    assert text.startswith("// "), "a header comment tells what the family is"


@file_by_file
def test_needs_the_recorded_resources(file):
    made_with, compiler = kernel_resources.recorded_nvrtc(), kernel_resources.nvrtc_version()
    if made_with != compiler:
        pytest.skip(
            f"resources.yaml was made with NVRTC {made_with}, this is {compiler}, which allots registers in its own way"
        )
    remedy = f"where that is intended: {kernel_resources.REWRITE}, then commit the file's diff"
    assert compiled(file) == kernel_resources.recorded(file.name), remedy


def test_the_record_has_no_file_that_is_gone():
    assert set(kernel_resources.recorded_files()) == {file.name for file in FILES}


def test_a_warning_stops_the_gate():
    unused = 'extern "C" __global__ void scale(float* a) { int left_over = 3; a[threadIdx.x] *= 3.0f; }'
    with pytest.raises(KernelError, match="never referenced"):
        kernel_resources.compiled(unused, "warns.cu", ["sm_90"])
