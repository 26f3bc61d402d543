"""What cannot run is refused in one line that says what was found, what is expected and where."""

from __future__ import annotations

import random
import re
import tracemalloc
from typing import Any

import numpy as np
import pytest
from ptx_sources import REDUCTION, line_of, program, run

from pytest_bandwidth.domain.errors import BandwidthError, KernelError, NotOnThisDevice, UsageError
from pytest_bandwidth.features.traffic import ptx

SCALE = r"""
extern "C" __global__ void scale(float* x, float by, int n, bool on) {
    if (on && threadIdx.x < n) x[threadIdx.x] *= by;
}
"""
X = np.ones(8, np.float32)


def refused(kind: type[BandwidthError], *args: Any, **options: Any) -> str:
    launch = {"grid": (1,), "block": (8,), **options}
    with pytest.raises(kind) as caught:
        ptx.execute(
            program(SCALE), launch.pop("name", "scale"), launch.pop("grid"), launch.pop("block"), args, **launch
        )
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.mark.parametrize(
    ("args", "parts"),
    [
        ((X, 3.0, 8, True), ("argument 2 (by)", "is 3.0", ".f32 (4 bytes): give numpy.float32(3.0)")),
        ((X, np.float32(3), 1.5, True), ("argument 3 (n)", "is 1.5, but", ".u32 (4 bytes): give a whole number")),
        ((X, np.float64(3), 8, True), ("argument 2 (by)", "numpy.float64 (8 bytes)", ".f32 (4 bytes)")),
        ((X, np.float32(3), np.int64(8), True), ("argument 3 (n)", "numpy.int64", ".u32 (4 bytes)")),
        ((X, np.float32(3), 2**32, True), ("argument 3 (n)", str(2**32), "32 bits")),
        ((X, np.float32(3), None, True), ("argument 3 (n)", "None", ".u32 (4 bytes): give a NumPy")),
        ((X, np.float32(3), X, True), ("argument 3 (n)", "array", "not a pointer")),
        ((3, np.float32(3), 8), ("takes 4 arguments (x, by, n, on)", "found 3")),
        ((np.array([None] * 8), np.float32(3), 8, True), ("argument 1 (x)", "Python objects")),
        ((X.astype(">f4"), np.float32(3), 8, True), ("argument 1 (x)", "byte-swapped")),
        (([1.0, 2.0], np.float32(3), 8, True), ("argument 1 (x)", "list", "NumPy array")),
    ],
)
def test_arguments_that_would_be_misread(args: tuple[Any, ...], parts: tuple[str, ...]) -> None:
    message = refused(UsageError, *args)
    assert all(part in message for part in parts), message


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"grid": (0,)}, ("grid is (0, 1, 1)", "1 to 2147483647")),
        ({"grid": (2**31 - 1,)}, ("grid (2147483647, 1, 1) has 2147483647 blocks", "at most 2147483646")),
        ({"block": (64, 32)}, ("2048 threads", "allows 1024")),
        ({"shared_bytes": -1}, ("-1 bytes", "expected 0 to")),
        ({"shared_bytes": 300_000}, ("300000 bytes", "expected 0 to 232448 on sm_90")),
        ({"blocks": 0, "grid": (4,)}, ("blocks is 0", "at least 1")),
    ],
)
def test_launches_that_cuda_would_refuse(options: dict[str, Any], parts: tuple[str, ...]) -> None:
    message = refused(UsageError, X.copy(), np.float32(1), 8, True, **options)
    assert all(part in message for part in parts), message


PLAIN = """.version 8.8
.target sm_90
.address_size 64
.visible .entry k(.param .u64 x)
.reqntid 4, 2
{
 .reg .b32 %r<3>;
 .reg .b64 %rd<3>;
 .reg .pred %p<2>;
 ld.param.u64 %rd1, [x];
 mov.u32 %r1, %tid.x;
 st.global.u32 [%rd1], %r1;
 ret;
}
"""


def of_text(text: str, **given: Any) -> ptx.Program:
    return ptx.Program(ptx.PtxModule(text, "none", "sm_90", **given))


def test_what_is_nested_too_deep_is_refused() -> None:
    for deep in ("{" * 5000 + "}" * 5000, f"mov.u32 %r1, {'(' * 20_000}1{')' * 20_000};"):
        with pytest.raises(KernelError, match=r"nested deeper|cannot be read"):
            ptx.execute(of_text(PLAIN.replace(" ret;", f"{deep} ret;")), "k", (1,), (4, 2), (np.ones(8, np.int32),))


def test_a_block_that_the_kernel_needs_exactly() -> None:
    x = np.ones(1, np.int32)
    loaded = of_text(PLAIN.replace(" mov.u32 %r1, %tid.x;", " mov.u32 %r1, %ntid.y;"))
    for block in ((8,), (2, 4), (4, 1), (4, 2, 2)):
        found = (*block, 1, 1)[:3]
        message = f"block {found}: kernel k needs exactly (4, 2, 1) threads (.reqntid)"
        with pytest.raises(UsageError, match=f"^{re.escape(message)}$"):
            ptx.execute(loaded, "k", (1,), block, (x,))
    assert x[0] == 1
    ptx.execute(loaded, "k", (1,), (4, 2), (x,))
    assert x[0] == 2


@pytest.mark.parametrize(
    ("old", "new", "found"),
    [
        (".target sm_90", ".target gfx90a", "PTX line 2: found .target gfx90a, expected an architecture such as sm_90"),
        (".target sm_90", ".target foo, debug", "PTX line 2: found .target foo, debug, expected an architecture"),
        (".target sm_90", "", "the PTX has no .target, expected an architecture such as .target sm_90"),
        (" ret;", " bra $L__NOPE;", "PTX line 13: found no label $L__NOPE in kernel k, expected its declaration; no"),
        (
            " ret;",
            " $L__t: .branchtargets $L__NOPE;\n brx.idx %r1, $L__t;",
            "PTX line 14: found no label $L__NOPE in kernel k, expected its declaration",
        ),
        ("[%rd1], %r1", "[%rd1], %r9", "PTX line 12: found no register %r9 in kernel k, expected its declaration"),
        ("[%rd1], %r1", "[%rd9], %r1", "PTX line 12: found no register %rd9 in kernel k"),
        ("mov.u32 %r1", "mov.u32 %fresh", "PTX line 11: found no register %fresh in kernel k"),
        (" st.global", " @%p7 st.global", "PTX line 12: found no register %p7 in kernel k"),
        (" ret;\n}", " ret;\n", "PTX line 13: found 'ret;', where the text ends, expected the rest or }"),
        (" ret;\n}", " add.s32 %r1, %r", "PTX line 13: found 'add.s32 %r1, %r', where the text ends"),
        (" ret;\n}", " ret;\n}\n.visible .entry k(", "PTX line 15: found '.visible .entry k(', where the text ends"),
        ("}\n", "}\n" + PLAIN[PLAIN.index(".vis") :], "PTX line 15: found k again, expected one definition"),
    ],
)
def test_ptx_that_no_assembler_takes(old: str, new: str, found: str) -> None:
    """A skip would leave the suite green."""
    broken = PLAIN.replace(old, new)
    for given, place in (({}, ""), ({"file": "/a/k.ptx"}, "/a/k.ptx: ")):
        with pytest.raises(KernelError, match=f"^{re.escape(place + found)}.*$"):
            of_text(broken, **given).kernel("k")


@pytest.mark.parametrize("target", ["sm_121a, debug", "texmode_unified, sm_100f"])
def test_ptx_for_newer_architectures_is_read(target: str) -> None:
    assert of_text(PLAIN.replace("sm_90", target)).kernel("k").exact_block == (4, 2, 1)


@pytest.mark.parametrize(
    ("old", "new", "what", "line"),
    [
        ("mov.u32", "mov.foo.u32", "mov.foo.u32", 11),
        ("[x]", "[x+8]", "ld.param.u64", 10),  # beyond the parameter
        ("%tid.x", "%pm3", "mov.u32 of %pm3", 11),
        ("%tid.x", "%new_special", "mov.u32 of %new_special", 11),
        (" ret;", " p_0 : .callprototype ()\n_ (.param .b32 _);\n call %rd2, (), p_0;", "call of %rd2", 15),
        (" ret;", " t_0: .calltargets f, g;\n call %rd2, (), t_0;", "call of %rd2", 14),
    ],
)
def test_ptx_that_an_assembler_may_take_is_not_modelled(old: str, new: str, what: str, line: int) -> None:
    message = f"kernel k uses {what}, which the traffic device does not model (PTX line {line})"
    with pytest.raises(NotOnThisDevice, match=f"^{re.escape(message)}$"):
        of_text(PLAIN.replace(old, new)).kernel("k")


def test_names_from_cxx_and_overloads() -> None:
    text = """__global__ void one(int* x) { *x = 1; }
    __global__ void two(int* x) { *x = 2; }
    __global__ void two(float* x) { *x = 3; }"""
    x = np.zeros(1, np.int32)
    run(text, "one", (1,), (1,), x)
    assert x[0] == 1
    with pytest.raises(KernelError, match="several kernels named 'two'"):
        program(text).kernel("two")


def test_compile_errors_carry_the_log() -> None:
    with pytest.raises(
        KernelError, match=r"(?s)mine\.cu does not compile for sm_80.*mine\.cu\(1\): error: identifier \"oops\""
    ):
        ptx.compile_ptx("__global__ void k() { oops; }", arch="sm_80", filename="mine.cu")
    shared = 'extern "C" __global__ void k(float* x) { __shared__ float t[20000]; t[threadIdx.x] = *x; *x = t[0]; }'
    with pytest.raises(KernelError, match=r"\):\nptxas error +: Entry function 'k' uses too much shared data"):
        ptx.compile_cubin(shared, arch="sm_80")
    with pytest.raises(KernelError, match="does not know sm_12; it compiles for sm_75"):
        ptx.compile_ptx("__global__ void k() {}", arch="sm_12")


NOT_MODELLED = {
    "recursion": (
        "__device__ __noinline__ int f(int n) { return n < 2 ? n : f(n - 1) + f(n - 2); }  // here\n"
        'extern "C" __global__ void k(int* x) { *x = f(*x); }',
        "recursive",
    ),
    "textures": (
        'extern "C" __global__ void k(float* o, cudaTextureObject_t t) { *o = tex2D<float>(t, 1.0f, 2.0f); }  // here',
        "tex.2d",
    ),
}


@pytest.mark.parametrize("name", NOT_MODELLED)
def test_opcodes_that_are_not_modelled_are_named_with_their_line(name: str) -> None:
    text, opcode = NOT_MODELLED[name]
    loaded = program(text)
    with pytest.raises(NotOnThisDevice) as caught:
        loaded.kernel("k")
    message = str(caught.value)
    assert message.startswith("kernel k uses ")
    assert opcode in message
    assert ", which the traffic device does not model (" in message
    assert f"kernel.cu line {line_of(text, '// here')}" in message
    assert "\n" not in message


@pytest.mark.parametrize(
    "opcode",
    [
        "setp.lt.b32 %q, %a, %a",  # bits have no order
        "setp.lo.s32 %q, %a, %a",
        "set.gt.u32.b32 %a, %a, %a",
        "min.relu.u16x2 %a, %a, %a",  # nothing is below zero
        "add.sat.bf16x2 %a, %a, %a",  # bf16 is neither clamped nor flushed
        "neg.ftz.bf16x2 %a, %a",
        "mad.f32 %a, %a, %a, %a",  # of sm_1x, and not rounded once
        "vabsdiff4.s32.s32.s32 %a, %a, %a, %a",
        "isspacep.const %q, %x",  # constant variables lie among the global ones here
        "st.const.u32 [%x], %a",
        "st.acquire.gpu.u32 [%x], %a",
        "ld.release.gpu.u32 %a, [%x]",
        "red.acquire.gpu.add.u32 [%x], %a",
        "red.global.exch.b32 [%x], %a",
        "ld.b128 %x, [%x]",
        "bar.red.popc.u32 %a, 1, 64, %q",
        "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%x, %x}, {%x}, {%x}, {%x, %x}",
        "cp.async.bulk.tensor.1d.global.shared::cta.bulk_group [%x, {%a}], [%a]",
        "cp.async.bulk.shared::cta.global.mbarrier::complete_tx::bytes [%a], [%x], 16",  # tells no mbarrier
        "mbarrier.arrive.shared.b64 %x, [%x], 1, 2",
        "mbarrier.init.shared.b64 [%x]",
        "@%q barrier.cluster.wait",
        "atom.global.min.f32 %a, [%x], %a",
        "atom.global.and.f32 %a, [%x], %a",
        "atom.global.inc.u64 %x, [%x], %x",
        "atom.global.xor.u32 %a, [%x], %a",
        "atom.global.exch.f16 %a, [%x], %a",
    ],
)
def test_what_no_gpu_has_or_nothing_here_computes_is_refused_by_name(opcode: str) -> None:
    """Inline assembler passes NVRTC unread: a spelling that the table let through would be computed as another one."""
    text = (
        ".version 8.8\n.target sm_100\n.address_size 64\n.visible .entry k()\n{\n"
        f" .reg .b32 %a;\n .reg .b64 %x;\n .reg .pred %q;\n {opcode};\n ret;\n}}\n"
    )
    name = opcode.removeprefix("@%q ").split()[0]
    with pytest.raises(
        NotOnThisDevice, match=f"kernel k uses {re.escape(name)}, which the traffic device does not model"
    ):
        ptx.Program(ptx.PtxModule(text, "none", "sm_100")).kernel("k")


def test_a_kernel_runs_beside_one_that_is_not_modelled() -> None:
    text = NOT_MODELLED["recursion"][0] + '\nextern "C" __global__ void fine(int* x) { *x = 5; }'
    x = np.zeros(1, np.int32)
    run(text, "fine", (1,), (1,), x)
    assert x[0] == 5


ADDER = 'extern "C" __global__ void add(int* x) { __threadfence(); if (threadIdx.x == 0) atomicAdd(x, 1); }'


@pytest.mark.parametrize(
    ("grid", "found"),
    [
        ((2**31 - 2, 65535, 65535), "blocks, this device takes at most 2147483646"),
        ((2**30,), r"launched with 3\.44e\+10 threads, more than the 2e\+10 thread-instructions.*sample"),
    ],
)
def test_grids_past_what_can_be_executed_are_refused_before_anything_runs(grid: tuple[int, ...], found: str) -> None:
    x = np.zeros(1, np.int32)
    with pytest.raises(UsageError, match=found):
        ptx.execute(program(ADDER), "add", grid, (32,), (x,))
    assert x[0] == 0


def test_a_sample_of_a_huge_grid_keeps_state_for_its_own_blocks_only() -> None:
    x = np.zeros(1, np.int32)
    tracemalloc.start()
    execution = ptx.execute(program(ADDER), "add", (2**31 - 2,), (32,), (x,), blocks=20)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (x[0], execution.blocks_run) == (20, 20)
    assert peak < 64 * 2**20


AWKWARD = r"""
// extern "C" __global__ void k(float* wrong, int names) {
extern "C" __global__ void k(const float* __restrict__ in /* input */, float (*out)[4],
                             const int count, unsigned char* const flags, int list[]) {
    flags[0] = in[count] > out[0][1];
}
"""
GENERATED = '#define KERNEL(T) (T* out, int n) { *out = n; }\nextern "C" __global__ void k KERNEL(float)'
TEMPLATE = "template <typename T> __global__ void twice(T* x) { x[threadIdx.x] *= 2; }\n" + SCALE
BOUNDED = 'extern "C" __global__ void __launch_bounds__(64) k(float* x) { x[threadIdx.x] = 1; }'
WAITING = """#include <cooperative_groups.h>
extern "C" __global__ void k(int* x) { cooperative_groups::this_grid().sync(); *x = 1; }"""
SPINNING = 'extern "C" __global__ void spin(volatile int* x) { int n = 0; while (*x == 0) n++; *x = n; }'
# A text, its kernel, grid and block, how many arguments, and what is said.
REFUSED = {
    "launch bounds": (BOUNDED, "k", 1, 128, 1, "128 threads, this kernel allows 64"),
    "awkward signatures": (AWKWARD, "k", 1, 1, 0, r"takes 5 arguments \(in, out, count, flags, list\), found 0"),
    "another name": (SCALE, "scael", 1, 1, 0, "no kernel named 'scael'; it has: scale$"),
    "a template without arguments": (TEMPLATE, "twice", 1, 1, 1, "'twice'; it has: scale; a template .* twice<float>$"),
    "more blocks than run at once": (
        WAITING,
        "k",
        1024,
        1024,
        1,
        "barrier of the grid, but no GPU has its 1048576 threads",
    ),
    "no end": (SPINNING, "spin", 1, 32, 1, r"spin has executed more than 1e\+05 thread-instructions.*smaller size"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_kernels_that_cannot_be_launched_so(name: str) -> None:
    text, kernel, grid, block, count, said = REFUSED[name]
    args = [np.zeros(128, np.int32)] * count
    limit = {"max_thread_instructions": 100_000} if name == "no end" else {}
    with pytest.raises((KernelError, UsageError), match=said) as caught:
        ptx.execute(program(text), kernel, (grid,), (block,), args, **limit)
    assert "\n" not in str(caught.value)


def test_damaged_ptx_is_an_error_and_nothing_else() -> None:
    """Tokens of a real module dropped, doubled, swapped and replaced: all is refused, or runs within its bounds."""
    others = ["-1", "99999999999999999999", "%r1", "%p1", "{", "]", "f32", "bra", "0f7F800000"]
    whole, dice = ptx.compile_ptx(REDUCTION, arch="sm_80").ptx, random.Random(5)
    entry = whole[whole.index(".visible .entry") : whole.index(".file")]
    tokens = re.findall(r"\s+|[%$_A-Za-z.][\w.$%|<>]*|-?0[fFdDxX][0-9A-Fa-f]+U?|-?\d+|[^\s]", entry)
    for _ in range(150):
        damaged = list(tokens)
        for _ in range(dice.randrange(1, 4)):
            place, other = dice.randrange(len(damaged)), dice.randrange(len(damaged))
            first, second = damaged[place], damaged[other]
            damaged[place] = dice.choice(["", first + second, second, dice.choice(others)])
            damaged[other] = first if damaged[place] == second else second
        broken = ptx.PtxModule(".version 8.0\n.target sm_80\n.address_size 64\n" + "".join(damaged), "none", "sm_80")
        try:
            loaded = ptx.Program(broken)
            for name, parameters in loaded.kernels.items():
                args = [np.zeros(2048, np.float32) if p.size == 8 else np.int32(7) for p in parameters]
                ptx.execute(loaded, name, (2,), (64,), args, max_thread_instructions=100_000)
        except BandwidthError as error:
            assert "\n" not in str(error)  # noqa: PT017 (most damage is an error, some is not)


BY_VALUE = r"""
struct Pair { int a; float b; };
extern "C" __global__ void fill(float* x, Pair pair, float by) { x[threadIdx.x] = pair.a * pair.b * by; }
"""


def test_structs_and_scalars_go_by_value_as_cupy_passes_them() -> None:
    """NumPy's way to hold them: arrays of one."""
    pair = np.zeros(1, np.dtype([("a", np.int32), ("b", np.float32)]))
    pair["a"], pair["b"] = 3, 0.5
    for one, by in ((pair, np.array(4, np.float32)), (pair[0], np.float32(4)), (pair.reshape(()), np.float32(4))):
        x = np.zeros(8, np.float32)
        ptx.execute(program(BY_VALUE), "fill", (1,), (8,), (x, one, by))
        assert (x == 6).all()
    with pytest.raises(UsageError, match=r"argument 2 \(pair\) of kernel fill is a numpy.void32 \(4 bytes\)"):
        ptx.execute(program(BY_VALUE), "fill", (1,), (8,), (x, np.zeros(1, [("a", "i4")]), np.float32(1)))
    # An array of nothing but itself is one where the kernel takes a pointer.
    scalar = np.zeros((), np.float32)
    ptx.execute(program(BY_VALUE), "fill", (1,), (1,), (scalar, pair, np.float32(4)))
    assert scalar == 6
