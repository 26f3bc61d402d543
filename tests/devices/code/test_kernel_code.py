"""The table of edits: which leave a kernel's code what it is, and which make it another. Compiled by NVRTC, no GPU."""

import base64
import functools
import struct
from dataclasses import replace

import pytest

pytest.importorskip("cuda.bindings", reason="NVRTC compiles here: pip install 'pytest-bandwidth[traffic]'")

import numpy as np

from pytest_bandwidth.devices.base import Launch
from pytest_bandwidth.devices.code.cubin import code_of_file, kernel_code, machine_code
from pytest_bandwidth.devices.code.launch import arguments_digest, launch_digest
from pytest_bandwidth.domain.code.identity import CodeIdentity
from pytest_bandwidth.domain.code.ptx_normal_form import normal_form, ptx_digest
from pytest_bandwidth.features.traffic.ptx import Program, compile_cubin, compile_ptx, execute, nvrtc

ARCHITECTURES = ("sm_80", "sm_120")
SOURCE = """
static __constant__ float weights[4] = {1.0f, 2.0f, 3.0f, 4.0f};
namespace { __device__ float offset = 0.5f; }
static __device__ __noinline__ float shifted(float x) { return x * weights[1] + offset; }

extern "C" __global__ void __launch_bounds__(256) kernel(const float* in, float* out, int n) {
    __shared__ float tile[256];
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    tile[threadIdx.x] = i < n ? in[i] : 0.0f;
    __syncthreads();
    for (int k = 1; k < n; k *= 2) {
        float beside = tile[threadIdx.x ^ (k & 255)];
        __syncthreads();
        tile[threadIdx.x] += beside;
        __syncthreads();
    }
    if (i < n) out[i] = shifted(tile[255 - threadIdx.x]) / 3.0f;
}
"""
OTHERS = """
__device__ __noinline__ float shifted_more(float x) { return x * 5.0f; }
extern "C" __global__ void before(float* out, int n) {
    float local[64];
    for (int i = 0; i < 64; ++i) local[i] = out[(i * 7) % n];
    for (int i = 0; i < n; ++i) out[i] = shifted_more(local[i % 64]) ;
}
"""
WITH_CONSTANTS = """
static __constant__ double others[64] = {8.0};
extern "C" __global__ void constants(float* out, int n) {
    for (int i = 0; i < n; ++i) out[i] = (float)others[i % 64];
    if (n == 77) printf("of another kernel %d", n);
}
"""
UNCHANGED = {
    "a comment": SOURCE.replace("__syncthreads();", "__syncthreads();  // wait for all\n /* and\n more */", 1),
    "another kernel before": OTHERS + SOURCE,
    "another kernel after": SOURCE + OTHERS,
    "an unused function": SOURCE + "__device__ float unused(float x) { return x + offset; }\n",
}
CHANGED = {
    "an instruction": SOURCE.replace("tile[255 - threadIdx.x]", "tile[threadIdx.x]"),
    "a number": SOURCE.replace("/ 3.0f", "/ 3.1f"),
    "a constant's value": SOURCE.replace("{1.0f, 2.0f", "{1.0f, 2.5f"),
    "a variable's value": SOURCE.replace("offset = 0.5f", "offset = 0.25f"),
    "a function that it calls": SOURCE.replace("weights[1] +", "weights[2] +"),
    "launch bounds": SOURCE.replace("__launch_bounds__(256)", "__launch_bounds__(128)"),
    "shared memory": SOURCE.replace("tile[256];", "tile[512];"),
}

# What `assert` and `printf` only say is no code: it changes with each line above.
HEAD = 'extern "C" __global__ void kernel(const float* in, float* out, int n) {\n'
SAID = f"""{HEAD}    int i = blockIdx.x * blockDim.x + threadIdx.x;
    assert(i < n && "in range");
    if (in[i] < 0) printf("negative %d in " __FILE__ "\\n", i);
    out[i] = in[i] + 7;
    assert(out[i] > 0); assert(n > 5);
    for (int k = 0; k < n; ++k) {{ assert(in[k] < 9); out[k] += 3; }}
}}
"""
SAID_UNCHANGED = {
    "a comment above": f"// first\n{SAID}",
    "many lines above": "\n" * 70_000 + SAID,
    "a comment between": SAID.replace("    out[i] =", "    // now\n    out[i] ="),
    "another text of printf": SAID.replace("negative %d in", "%d is below zero:"),
}
SAID_CHANGED = {
    "a constant and lines": f"\n{SAID.replace('+ 7', '+ 8')}",
    "what is asserted": SAID.replace("assert(n > 5)", "assert(n > 6)"),
    "an assertion more": SAID.replace("assert(n > 5)", "assert(n > 5); assert(n < 500)"),
    "what is printed": SAID.replace('"\\n", i);', '"\\n", n);'),
}


@functools.lru_cache(None)
def code(text: str, arch: str, options: tuple[str, ...] = (), filename: str = "kernel.cu") -> CodeIdentity:
    module = compile_ptx(text, arch=arch, options=options, filename=filename)
    cubin = compile_cubin(text, arch=arch, options=options, filename=filename)
    return kernel_code(module.ptx, cubin.data, "kernel").identity


def table(source, edits):
    return [pytest.param(source, edited, id=edit) for edit, edited in edits.items()]


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("source", "edited"), [*table(SOURCE, UNCHANGED), *table(SAID, SAID_UNCHANGED)])
def test_an_edit_that_changes_no_code_leaves_its_identity(source, edited, arch):
    before, after = code(source, arch), code(edited, arch)
    assert edited != source
    assert None not in (before.ptx, before.sass)
    assert after == before


@pytest.mark.parametrize("arch", ARCHITECTURES)
@pytest.mark.parametrize(("source", "edited"), [*table(SOURCE, CHANGED), *table(SAID, SAID_CHANGED)])
def test_an_edit_that_changes_code_changes_its_identity(source, edited, arch):
    assert edited != source
    before, after = code(source, arch), code(edited, arch)
    assert after.ptx not in (None, before.ptx)
    assert after.sass not in (None, before.sass)


BOUNDED = SOURCE.replace("__launch_bounds__(256)", "{}")
BOUNDS = (
    *("", "__cluster_dims__(1)", "__cluster_dims__(2)", "__cluster_dims__(8)", "__cluster_dims__(2, 2)"),
    *("__launch_bounds__(256)", "__launch_bounds__(512)", "__launch_bounds__(256, 1, 4)", "__maxnreg__(32)"),
    *("__block_size__((256, 1, 1))", "__block_size__((256, 1, 1), (2, 1, 1))"),
)


def test_what_bounds_a_launch_is_machine_code():
    """It lies beside the instructions, which are the same."""
    found = [code(BOUNDED.replace("{}", bounds), "sm_90") for bounds in BOUNDS]
    assert len({one.sass for one in found} - {None}) == len(BOUNDS)
    assert len({of_file(BOUNDED.replace("{}", bounds), arch="sm_90") for bounds in BOUNDS} - {None}) == len(BOUNDS)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_options_change_the_code_or_do_not(arch):
    before = code(SOURCE, arch)
    fast = code(SOURCE, arch, ("--use_fast_math",))
    assert (fast.ptx == before.ptx, fast.sass == before.sass) == (False, False)
    slower = code(SOURCE, arch, ("--ptxas-options=-O1",))
    assert (slower.ptx == before.ptx, slower.sass == before.sass) == (True, False)
    assert code(SOURCE, arch, ("-DUNUSED=1", "-lineinfo")) == before
    assert code(SOURCE, arch, filename="a/longer name of another_file.cu") == before
    assert code(SOURCE, arch, filename='a "quoted" {folder; }/kernel.cu') == before
    assert code(SAID, arch, filename="a/much longer folder/of_another.cu") == code(SAID, arch)


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_constants_and_asserts_of_other_kernels_change_no_ptx(arch):
    """Of the machine code they may: all constants of a file lie together, and addresses of texts move."""
    after = WITH_CONSTANTS.replace("others", "o").replace("constants", "c")
    assert code(WITH_CONSTANTS + SOURCE + after, arch).ptx == code(SOURCE, arch).ptx
    other = "__global__ void other(int* x) { assert(*x); }\n"
    assert code(other + SAID, arch).ptx == code(SAID, arch).ptx


def test_the_normal_form_is_a_module_that_does_and_asks_for_the_same():
    compiled = compile_ptx(WITH_CONSTANTS + SOURCE + OTHERS)
    module = normal_form(compiled.ptx, "kernel")
    found = normal_form(module.text, "kernel")
    assert found.text == module.text
    assert "before" not in module.text
    assert ".loc" not in module.text
    whole, alone = Program(compiled), Program(type(compiled)(module.text, compiled.nvrtc_version, compiled.arch))
    results = []
    for program in (whole, alone):
        out, source = np.zeros(1000, np.float32), np.linspace(1, 2, 1000, dtype=np.float32)
        execution = execute(program, "kernel", (4,), (256,), (source, out, np.int32(1000)))
        results.append((out.tobytes(), execution.counts, execution.faults))
    assert results[0] == results[1]


@pytest.mark.parametrize("arch", ARCHITECTURES)
def test_macros_of_the_file_are_texts_where_they_are_asserted_or_a_format(arch):
    said = 'assert(n > 5 && __LINE__ > 0 && "in " __FILE__);', 'printf("in " __FILE__ " %d\\n", n);'
    for text in said:
        source = f"{HEAD}    {text}\n}}\n"
        assert code(f"\n{source}", arch, filename="another/of_another.cu") == code(source, arch)


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
    module = normal_form(compile_ptx(SAID).ptx, "kernel")
    assert module.only_printed.lines == {3, 6, 7}
    assert "114, 97, 110, 103, 101" not in module.text  # "range"
    again = normal_form(module.text, "kernel")
    assert (again.text, again.only_printed.lines) == (module.text, {0})


def test_what_a_module_says_of_its_language_is_no_part_of_its_hash():
    text = ".version 8.0\n.target sm_90\n.visible .entry k()\n{\nret;\n}\n"
    assert ptx_digest(text) == ptx_digest(text.replace("8.0", "9.5"))
    assert ptx_digest(text) != ptx_digest(text.replace("sm_90", "sm_80"))


@pytest.mark.parametrize(
    "more",
    [
        ".version 8.0 .visible .entry other() { trap; }\n.target sm_90\nret;\n",
        ".version 8.0;\n.target sm_90\nret;\n",
        ".version 8.0\x0b.extern .func f();\n.target sm_90\nret;\n",
        ".version 8.0\n.target sm_90\n.version 8.0\nret;\n",
        "\n.version 8.0\n.target sm_90\nret;\n",
    ],
)
def test_nothing_hides_on_a_line_of_the_version(more):
    assert ptx_digest(more) != ptx_digest(".version 8.0\n.target sm_90\nret;\n")


@pytest.mark.parametrize("cubin", [b"", b"\x7fELF", b"\x7fELF\x02\x01" + b"\xff" * 60, b"no ELF" * 100])
def test_what_cannot_be_read_is_unknown(cubin):
    assert machine_code(cubin, "kernel") is code_of_file(cubin) is None
    assert kernel_code("no PTX {", cubin, "kernel").identity == CodeIdentity()
    ptx = compile_ptx(SOURCE).ptx
    assert kernel_code(ptx, cubin, "kernel").identity.sass is None
    assert kernel_code(ptx, cubin, "shifted").identity == CodeIdentity()


def test_a_cubin_that_is_cut_short_is_unknown_or_whole():
    data = compile_cubin(SOURCE).data
    for read in (code_of_file, functools.partial(machine_code, kernel="kernel")):
        whole = read(data)
        assert whole is not None
        assert {read(data[:size]) for size in range(0, len(data) - 1, 97)} <= {None, whole}


def of_file(text, **given):
    return code_of_file(compile_cubin(text, **given).data)


def test_a_whole_cubin_is_known_by_its_code_and_not_by_its_line_numbers():
    asked = {"text": SOURCE, "filename": "kernel.cu", "names": [], "options": ["--gpu-architecture=sm_90"]}
    bare, with_lines = base64.b64decode(nvrtc.ask(asked)["cubin"]), compile_cubin(SOURCE)
    assert bare != with_lines.data
    assert None is not of_file(SOURCE) == code_of_file(bare) == of_file(UNCHANGED["a comment"])
    both = [kernel_code(with_lines.ptx.ptx, cubin, "kernel").identity for cubin in (bare, with_lines.data)]
    assert both[0] == both[1]
    assert of_file(UNCHANGED["another kernel after"]) != of_file(SOURCE)
    assert not [edit for edit, text in CHANGED.items() if of_file(text) == of_file(SOURCE)]


def test_a_cubin_without_symbols_is_unknown():
    data = bytearray(compile_cubin(SOURCE).data)
    (start,), (size, count) = struct.unpack_from("<Q", data, 0x28), struct.unpack_from("<HH", data, 0x3A)
    for header in range(start, start + size * count, size):
        if struct.unpack_from("<I", data, header + 4) == (2,):
            struct.pack_into("<I", data, header + 4, 1)
    assert machine_code(bytes(data), "kernel") is None
    assert code_of_file(bytes(data)) is None


ARRAY, TABLE = np.zeros(64, np.float32), np.zeros((64, 2), np.float32)
LAUNCH = Launch("kernel", (4, 1, 1), (64, 1, 1), (ARRAY, np.int32(64)), 128)


@pytest.mark.parametrize(
    "other",
    [
        {"grid": (5, 1, 1)},
        {"block": (32, 1, 1)},
        {"shared_bytes": 0},
        *({"args": (ARRAY, n)} for n in (np.int32(63), np.int64(64), 64)),
        *({"args": (x, np.int32(64))} for x in (ARRAY[:32], ARRAY.astype(np.float64), TABLE[:, 0], None)),
    ],
)
def test_a_launch_is_known_by_its_shape_types_sizes_and_scalars(other):
    assert launch_digest(replace(LAUNCH, **other)) != launch_digest(LAUNCH)


def test_where_arrays_lie_is_no_part_of_a_launch_but_whether_in_one_anothers_memory():
    first, second = ARRAY.copy(), ARRAY + 1

    def launched(*args):
        return launch_digest(Launch("kernel", (4, 1, 1), (64, 1, 1), args))

    apart = launched(first, second)
    assert launched(second, first) == launched(first, first.copy()) == apart
    assert launch_digest(replace(LAUNCH, kernel="other", args=(second, np.int32(64)))) == launch_digest(LAUNCH)
    in_place = launched(first, first)
    assert in_place == launched(second, second)
    beside, over = launched(first[:32], first[32:]), launched(first[:32], first[16:48])
    assert beside == launched(first[:32], second[:32])
    assert len({apart, in_place, beside, over}) == 4
    assert arguments_digest((first,), {"out": first}) != arguments_digest((first,), {"out": second})
