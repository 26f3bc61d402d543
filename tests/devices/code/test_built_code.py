"""The table of edits of a library: which leave its identity what it is, and which change it. Built by nvcc, no GPU."""

import functools
from pathlib import Path

import pytest
from nvcc import nvcc

from pytest_bandwidth.devices.code.compiled import digest_of_file

SOURCE = """
#include <cassert>
#include <cstdio>
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ float left[4] = {5, 6, 7, 8}, right[4] = {5, 6, 7, 8};
static __device__ __noinline__ float scaled(float x) { return x * weights[1]; }
template <typename T> __global__ void copy(T* out, const T* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + scaled(left[i & 3]);
}
namespace { __global__ void check(const float* x, int n) { assert(n > 0); if (x[n] < 0) printf("negative %d", n); } }
extern "C" void launch(float* out, float* in, int n) {
    copy<float><<<8, 256>>>(out, in, n);
    check<<<1, 1>>>(in, n);
}
"""
# Of one architecture and of several, PTX among them. Other ways to pack: test_containers_of_kernels.py.
BUILDS = {
    "as by default": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]"),
    "for several": (
        *("-gencode", "arch=compute_80,code=[sm_80,compute_80]"),
        *("-gencode", "arch=compute_120,code=[sm_120,compute_120]", "-compress-mode=size"),
    ),
    "with line numbers": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-lineinfo"),
}
# There the sizes of packed kernels move addresses that the host's instructions hold.
RELOCATED = ("-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-rdc=true")
PLAIN = BUILDS["as by default"]
# Comments above and inside, lines above, and a text of printf; built as by default, another folder, too.
UNCHANGED = "// a comment\n" + "\n" * 90 + SOURCE.replace("    if (i < n)", "    // not past the end\n    if (i < n)")
UNCHANGED = UNCHANGED.replace("negative %d", "below zero: %d")
CHANGED = {
    "the order of access": SOURCE.replace("in[i]", "in[i * 4099 % n]"),
    "which variable": SOURCE.replace("left[i & 3]", "right[i & 3]"),
    "another kernel": SOURCE.replace("extern", "__global__ void more(int* x) { *x = 1; }\nextern"),
    "how the host launches": SOURCE.replace("<<<8, 256>>>", "<<<16, 256>>>"),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a function that compiles a text with options, each once, in a folder of its own."""

    @functools.cache
    def built(text: str, options: tuple[str, ...]) -> Path:
        made = tmp_path_factory.mktemp("built")
        source = made / ("further/than/before/copies.cu" if (text, options) == (UNCHANGED, PLAIN) else "copies.cu")
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text)
        return nvcc(source, made / "copies.so", "-shared", "-Xcompiler", "-fPIC", "-cudart", "none", *options)

    return built


@pytest.mark.parametrize("options", BUILDS)
def test_a_library_is_known_by_its_kernels_however_they_lie_in_it(build, options):
    before, edited = (build(text, BUILDS[options]) for text in (SOURCE, UNCHANGED))
    assert before.read_bytes() != edited.read_bytes()
    assert digest_of_file(edited) == digest_of_file(before)


def test_without_their_ptx_lines_of_asserts_are_code(build):
    """In machine code alone they look like any constant; what holds none is known without PTX."""
    alone = ("-gencode", "arch=compute_90,code=sm_90", "-lineinfo")
    quiet = SOURCE.replace("assert(n > 0);", "")
    for text, is_same in ((SOURCE, False), (quiet, True)):
        found = [digest_of_file(build(edited, alone)) for edited in (text, f"// a comment\n{text}")]
        assert (found[0] == found[1]) == is_same


@pytest.mark.parametrize(
    ("edit", "options"), [*((edit, PLAIN) for edit in CHANGED), ("the order of access", RELOCATED)]
)
def test_an_edit_that_changes_code_changes_its_identity(build, edit, options):
    """Edits inside of a kernel: test_kernel_code.py."""
    assert CHANGED[edit] != SOURCE
    assert digest_of_file(build(CHANGED[edit], options)) != digest_of_file(build(SOURCE, options))
