"""What `assert` and `printf` only say is no code: it changes with each line above. Compiled by NVRTC, no GPU."""

import functools

import pytest

pytest.importorskip("cuda.bindings", reason="NVRTC compiles here: pip install 'pytest-bandwidth[traffic]'")

from pytest_bandwidth.devices.code.cubin import kernel_code
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form
from pytest_bandwidth.features.traffic.ptx import compile_cubin, compile_ptx

ARCHITECTURES = ("sm_80", "sm_90", "sm_120")
HEAD = 'extern "C" __global__ void kernel(const float* in, float* out, int n) {\n'
SOURCE = f"""{HEAD}    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < n && "in range");
    if (in[i] < 0) printf("negative %d in " __FILE__ "\\n", i);
    out[i] = in[i] + 7;
    assert(out[i] > 0); assert(n > 5);
    for (int k = 0; k < n; ++k) {{ assert(in[k] < 9); out[k] += 3; }}
}}
"""
UNCHANGED = {
    "a comment above": f"// first\n{SOURCE}",
    "many lines above": "\n" * 70_000 + SOURCE,
    "a comment between": SOURCE.replace("    out[i] =", "    // now\n    out[i] ="),
    "another text of printf": SOURCE.replace("negative %d in", "%d is below zero:"),
}
CHANGED = {
    "a constant": SOURCE.replace("+ 7", "+ 8"),
    "a constant and lines": f"\n{SOURCE.replace('+ 7', '+ 8')}",
    "what is asserted": SOURCE.replace("assert(n > 5)", "assert(n > 6)"),
    "an assertion more": SOURCE.replace("assert(n > 5)", "assert(n > 5); assert(n < 500)"),
    "an assertion less": SOURCE.replace("assert(n > 5);", ""),
    "what is printed": SOURCE.replace('"\\n", i);', '"\\n", n);'),
}


@functools.lru_cache(None)
def code(text: str, arch: str, filename: str = "kernel.cu") -> CodeIdentity:
    module = compile_ptx(text, arch=arch, filename=filename)
    return kernel_code(module.ptx, compile_cubin(text, arch=arch, filename=filename).data, "kernel").identity


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("edit", UNCHANGED)
def test_lines_and_texts_leave_code_what_it_is(edit, arch):
    assert UNCHANGED[edit] != SOURCE
    before = code(SOURCE, arch)
    assert None not in (before.ptx, before.sass)
    assert code(UNCHANGED[edit], arch) == before


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_a_moved_file_leaves_code_what_it_is(arch):
    assert code(SOURCE, arch, "a/much longer folder/of_another.cu") == code(SOURCE, arch)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_macros_of_the_file_are_texts_where_they_are_asserted_or_a_format(arch):
    said = 'assert(n > 5 && __LINE__ > 0 && "in " __FILE__);', 'printf("in " __FILE__ " %d\\n", n);'
    for text in said:
        source = f"{HEAD}    {text}\n}}\n"
        assert code(f"\n{source}", arch, "another/of_another.cu") == code(source, arch)


def test_another_kernel_that_asserts_leaves_ptx_what_it_is():
    """Of the machine code it changes where the addresses of texts lie."""
    other = "__global__ void other(int* x) { assert(*x); }\n"
    assert code(other + SOURCE, "sm_90").ptx == code(SOURCE, "sm_90").ptx


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize("edit", CHANGED)
def test_beside_texts_an_edit_changes_code(edit, arch):
    before, after = code(SOURCE, arch), code(CHANGED[edit], arch)
    assert after.ptx not in (None, before.ptx)
    assert after.sass not in (None, before.sass)


USED_ELSEWHERE = {
    "the line is a number": (f"{HEAD}    out[0] = in[__LINE__ % n];\n    assert(n > 1);\n}}\n", "\n"),
    "the line is read from memory": (
        f"{HEAD}    int line = __LINE__; out[1] = line; __assertfail(__FILE__, __FILE__, line, __FILE__, 1);\n}}\n",
        "\n",
    ),
    "the text is data": (
        f'{HEAD}    const char* text = "// "; printf(text); for (int k = 0; k < n; ++k) out[k] = text[k & 1];\n}}\n',
        "/",
    ),
    "the text is chosen": (
        f'{HEAD}    const char* text = n > 3 ? "// " : "//"; printf(text);\n}}\n',
        "/",
    ),
    "the user's own function of that name": (
        'extern "C" __device__ __noinline__ int vprintf(const char* f, void* b) { return f[1] + *(int*)b; }\n'
        f'{HEAD}    out[0] = printf("// ", n);\n}}\n',
        "/",
    ),
    "the line is printed": (f'{HEAD}    printf("%d", __LINE__);\n}}\n', "\n"),
    "the file is printed": (f'{HEAD}    printf("%s", __FILE__);\n}}\n', '#line 1 "moved.cu"\n'),
}


@pytest.mark.parametrize("case", USED_ELSEWHERE)
def test_what_goes_elsewhere_is_code(case):
    """A text, or a line, that anything but such a call may see is never left out."""
    source, more = USED_ELSEWHERE[case]
    edited = source.replace('"// "', '"/- "') if more == "/" else more + source
    assert edited != source
    assert code(edited, "sm_90").ptx not in (None, code(source, "sm_90").ptx)


def test_the_normal_form_without_texts_is_a_module():
    module = normal_form(compile_ptx(SOURCE).ptx, "kernel")
    assert module is not None
    assert module.said.lines == {3, 6, 7}
    assert "114, 97, 110, 103, 101" not in module.text  # "range"
    again = normal_form(module.text, "kernel")
    assert again is not None
    assert (again.text, again.said.lines) == (module.text, {0})
