"""The compile gate: every kernel compiles without a warning, and needs what the record has for every architecture."""

import functools

import kernel_resources
import pytest

from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.devices.kernel_source import kernel_names
from pytest_bandwidth.domain.errors import KernelError

pytest.importorskip("cuda.bindings.nvrtc", reason="compiling kernels needs: pip install 'pytest-bandwidth[traffic]'")

FILES = kernel_resources.kernel_files()
file_by_file = pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)


@functools.cache
def compiled(file):
    """Compile for one architecture where the record is of the same text and compiler, else for all."""
    text = file.read_text(encoding="utf-8")
    once = [kernel_resources.ALWAYS] if kernel_resources.is_recorded(text, file.name) else []
    return kernel_resources.compiled(text, file.name, once or kernel_resources.ARCHITECTURES)


@file_by_file
def test_compiles_without_a_warning_and_without_local_memory(file):
    for kernels in (compiled(file), kernel_resources.recorded(file.name)):
        assert [(name, arch) for name, of in kernels.items() for arch, one in of.items() if one.local_bytes] == []


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
    recorded = kernel_resources.recorded(file.name)
    found = compiled(file)
    assert found == {name: {arch: of[arch] for arch in found.get(name, of)} for name, of in recorded.items()}, remedy
    assert kernel_resources.is_recorded(file.read_text(encoding="utf-8"), file.name), remedy


def test_the_record_has_no_file_that_is_gone():
    assert set(kernel_resources.recorded_files()) == {file.name for file in FILES}


def test_a_warning_stops_the_gate():
    unused = 'extern "C" __global__ void scale(float* a) { int left_over = 3; a[threadIdx.x] *= 3.0f; }'
    with pytest.raises(KernelError, match="never referenced"):
        kernel_resources.compiled(unused, "warns.cu", ["sm_90"])
