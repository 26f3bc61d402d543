"""The table of edits of a library: which leave its identity what it is, and which change it. Built by nvcc, no GPU."""

import functools
from pathlib import Path

import numpy as np
import pytest
from nvcc import nvcc

from pytest_bandwidth.devices.code.callables import callable_code
from pytest_bandwidth.devices.code.given import digest_of_file
from pytest_bandwidth.fixture.input import checked_code

SOURCE = """
#include <cassert>
#include <cstdio>
__constant__ float weights[4] = {1, 2, 3, 4};
__device__ float left[4] = {5, 6, 7, 8}, right[4] = {5, 6, 7, 8};
static __device__ __noinline__ float scaled(float x) { return x * weights[1]; }
template <typename T> __global__ void BOUNDS copy(T* out, const T* in, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = in[i] + scaled(left[i & 3]);
}
namespace { __global__ void check(const float* x, int n) { assert(n > 0); if (x[n] < 0) printf("negative %d", n); } }
extern "C" void launch(float* out, float* in, int n) {
    copy<float><<<8, 256>>>(out, in, n);
    check<<<1, 1>>>(in, n);
}
"""
# Small and large elements, of one architecture and of several, PTX among them.
BUILDS = {
    "as by default": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]"),
    "packed by zstd": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-compress-mode=size"),
    "packed by LZ4": ("-gencode", "arch=compute_80,code=[sm_80,compute_80]", "-compress-mode=speed"),
    "not packed": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-compress-mode=none"),
    "for several": (
        *("-gencode", "arch=compute_80,code=[sm_80,compute_80]"),
        *("-gencode", "arch=compute_120,code=[sm_120,compute_120]", "-compress-mode=size"),
    ),
    "with line numbers": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-lineinfo"),
    "linked again": ("-gencode", "arch=compute_90,code=[sm_90,compute_90]", "-rdc=true"),
}
# There the sizes of packed kernels move addresses that the host's instructions hold.
RELOCATED = ("linked again",)
PLAIN = BUILDS["as by default"]
# Comments above and inside, lines above, and a text of printf.
UNCHANGED = "// a comment\n" + "\n" * 90 + SOURCE.replace("    if (i < n)", "    // not past the end\n    if (i < n)")
UNCHANGED = UNCHANGED.replace("negative %d", "below zero: %d")
CHANGED = {
    "the order of access": SOURCE.replace("in[i]", "in[i * 4099 % n]"),
    "an instruction": SOURCE.replace("in[i] +", "in[i] *"),
    "a constant": SOURCE.replace("{1, 2,", "{1, 9,"),
    "a variable's value": SOURCE.replace("left[4] = {5,", "left[4] = {9,"),
    "which variable": SOURCE.replace("left[i & 3]", "right[i & 3]"),
    "a function that it calls": SOURCE.replace("* weights[1]", "* weights[2]"),
    "cluster": SOURCE.replace("BOUNDS", "__cluster_dims__(8)"),
    "bounds": SOURCE.replace("BOUNDS", "__launch_bounds__(512)"),
    "what is asserted": SOURCE.replace("assert(n > 0)", "assert(n > 1)"),
    "another kernel": SOURCE.replace("extern", "__global__ void more(int* x) { *x = 1; }\nextern"),
    "how the host launches": SOURCE.replace("<<<8, 256>>>", "<<<16, 256>>>"),
}


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    """Return a function that compiles a text with options, each once, in a folder of its own."""

    @functools.cache
    def built(text: str, options: tuple[str, ...], *, name: str = "copies.cu") -> Path:
        made = tmp_path_factory.mktemp("built")
        source = made / name
        source.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(text.replace("BOUNDS", ""))
        as_library = () if "-fatbin" in options else ("-shared", "-Xcompiler", "-fPIC", "-cudart", "none")
        return nvcc(source, made / "copies.so", *as_library, *options)

    return built


@pytest.mark.parametrize("options", BUILDS)
def test_a_library_is_known_by_its_kernels_however_they_lie_in_it(build, options):
    before, edited = (build(text, BUILDS[options]) for text in (SOURCE, UNCHANGED))
    if options not in RELOCATED:
        assert before.read_bytes() != edited.read_bytes()
        assert digest_of_file(edited) == digest_of_file(before)
    assert digest_of_file(build(CHANGED["the order of access"], BUILDS[options])) != digest_of_file(before)


def test_without_their_ptx_lines_of_asserts_are_code(build):
    """In machine code alone they look like any constant; what holds none is known without PTX."""
    alone = ("-gencode", "arch=compute_90,code=sm_90", "-lineinfo")
    quiet = SOURCE.replace("assert(n > 0);", "")
    for text, is_same in ((SOURCE, False), (quiet, True)):
        found = [digest_of_file(build(edited, alone)) for edited in (text, f"// a comment\n{text}")]
        assert (found[0] == found[1]) == is_same


def test_a_moved_source_leaves_a_library(build):
    moved = build(SOURCE, PLAIN, name="further/than/before/copies.cu")
    assert digest_of_file(moved) == digest_of_file(build(SOURCE, PLAIN))


@pytest.mark.parametrize("edit", CHANGED)
def test_an_edit_that_changes_code_changes_its_identity(build, edit):
    """Of the kernels alone, which is built in half the time; how the host launches is told by a library."""
    how = PLAIN if edit == "how the host launches" else (*PLAIN, "-fatbin")
    assert CHANGED[edit] != SOURCE
    assert digest_of_file(build(CHANGED[edit], how)) != digest_of_file(build(SOURCE, how))


def test_a_callable_is_known_by_its_library(build):
    def known_by(said):
        return callable_code(len, (np.zeros(4),), {}, checked_code(said)).identity

    before, after = build(SOURCE, PLAIN), build(CHANGED["the order of access"], PLAIN)
    same = build(UNCHANGED, PLAIN)
    assert known_by(before).is_same(known_by(same), by="sass")
    assert known_by(before).is_same(known_by(before.read_bytes()), by="sass")
    assert not known_by(before).is_same(known_by(after), by="sass")
    assert known_by(after).changes_since(known_by(before)) == ("the code changed",)


def test_another_architecture_is_another_library(build):
    of_several = ("as by default", "packed by LZ4", "for several")  # 90; 80; 80 and 120
    assert len({digest_of_file(build(SOURCE, BUILDS[options])) for options in of_several}) == 3
