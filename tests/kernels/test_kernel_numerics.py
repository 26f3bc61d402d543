"""Every kernel, executed, against NumPy in float64: random input, poisoned output, sizes 0, 1, odd and past a tile."""

import functools
import importlib.util
import re

import numpy as np
import pytest

from pytest_bandwidth.suite.operations import OPERATIONS, references
from pytest_bandwidth.suite.operations.model import poison, wrong_results

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("executing kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

import interpreted
import kernel_resources
from interpreted import CUDA_SRC, FreshArrays, faults, run, shipped

from pytest_bandwidth.domain.code.ptx_normal_form import is_same_but_for_target, normal_form
from pytest_bandwidth.features.traffic.ptx.decode import Program
from pytest_bandwidth.features.traffic.ptx.launch import execute
from pytest_bandwidth.features.traffic.ptx.nvrtc import compile_ptx

ARCH = "sm_90"
# Those for which sources, and the headers of half types, have code of their own.
OTHER_ARCHITECTURES = ("sm_75", "sm_80", "sm_89")

EXECUTABLE = [operation for operation in OPERATIONS if "traffic" in operation.devices]
WITH_DTYPES = [pytest.param(o, dtype, id=f"{o.title}-{dtype}") for o in EXECUTABLE for dtype in o.dtypes]
every_operation = pytest.mark.parametrize(("operation", "dtype"), WITH_DTYPES)


def check(operation, dtype, sizes, arch, *, one_block=False):
    arrays = FreshArrays()
    case = operation.prepare(arrays, dtype, sizes)
    poison(case)
    executions = run(case, arrays, arch, one_block=one_block)
    told = f"{operation.title} {dtype} {dict(sizes)} {arch}, seed {arrays.seed}{', one block' if one_block else ''}"
    assert not faults(executions), told
    assert not wrong_results(case), told
    return case, executions


@every_operation
def test_gives_what_numpy_gives_and_touches_what_the_model_says(operation, dtype):
    for sizes in operation.small:
        case, executions = check(operation, dtype, sizes, ARCH)
        model = case.traffic
        read = sum(execution.bytes_read for execution in executions)
        written = sum(execution.bytes_written for execution in executions)
        asked_read = sum(execution.counts.loads.bytes_requested for execution in executions)
        asked_written = sum(execution.counts.stores.bytes_requested for execution in executions)
        told = f"{operation.title} {dtype} {dict(sizes)}"
        if not all(sizes.values()):
            # Where there is nothing to do, the compiler may leave out loads that the model counts.
            assert read <= model.bytes_read + case.between, told
        else:
            assert read == model.bytes_read + case.between, told
            assert model.requested_read in (None, asked_read - case.between), told
        assert written == model.bytes_written + case.between, told
        assert model.requested_written in (None, asked_written - case.between), told
    # One block does the work of any grid, but for a reduction's: its grid is the number of its results.
    if operation.name not in ("sum", "dot") and any(step.grid != (1, 1, 1) for step in case.steps):
        check(operation, dtype, operation.small[-1], ARCH, one_block=True)


@functools.cache
def with_code_of_its_own(file, kernel):
    """Of the other architectures those whose code of the kernel is neither `ARCH`'s nor that of one before."""
    codes = []
    # Where a source has nothing for Ada (sm_89), its code there is sm_86's.
    left_out = () if "890" in (CUDA_SRC / file).read_text(encoding="utf-8") else ("sm_89",)
    for arch in (ARCH, *OTHER_ARCHITECTURES):
        if arch in left_out:
            continue
        code = normal_form(kernel_resources.ptx(file, arch).ptx, kernel).text
        if not any(is_same_but_for_target(code, one) for one, _ in codes):
            codes.append((code, arch))
    return [arch for _, arch in codes[1:]]


@pytest.mark.slow
@every_operation
def test_the_code_for_every_architecture_gives_the_same(operation, dtype):
    steps = operation.prepare(FreshArrays(), dtype, operation.small[-1]).steps
    for arch in dict.fromkeys(arch for step in steps for arch in with_code_of_its_own(step.file, step.kernel)):
        check(operation, dtype, operation.small[-1], arch)


def launch(file, kernel, args, grid=1, block=32, arch=ARCH):
    """Whole numbers are sizes."""
    args = [np.int64(argument) if type(argument) is int else argument for argument in args]
    execution = execute(shipped(file, arch), kernel, (grid,), block if isinstance(block, tuple) else (block,), args)
    assert not faults([execution])
    return execution


@pytest.mark.parametrize("suffix", ["f32", "f32x4", "f16", "f16x8", "f64"])
def test_read_does_read_for_it_stores_a_sum_that_it_was_told_to_expect(suffix):
    dtype = {"f32": "float32", "f16": "float16", "f64": "float64"}[suffix.split("x")[0]]
    arithmetic = "float32" if dtype == "float16" else dtype
    # Small whole numbers, so that any order of adding gives the same.
    source = np.arange(37, dtype=dtype)
    for never, stored in ((source.sum(), True), (source.sum() + 1, False)):
        sink = np.full(1, -1, arithmetic)
        launch("stream.cu", f"read_{suffix}", (sink, source, np.dtype(arithmetic).type(never), 37), block=1)
        assert sink[0] == (source.sum() if stored else -1)


def test_wide_kernels_take_views_that_are_not_aligned():
    offset = 1
    source, out = np.arange(100, dtype="float32"), np.full(100, np.nan, "float32")
    launch("stream.cu", "copy_f32x4", (out[offset:], source[offset:], 100 - offset))
    np.testing.assert_array_equal(out[offset:], source[offset:])
    assert np.isnan(out[:offset]).all()


@pytest.mark.parametrize("offset", [0, 1])
def test_rows_in_registers_are_views_that_begin_anywhere_in_blocks_of_any_size(offset):
    # Longer than the block holds, and not: 600 columns of 2 KiB and 400 bytes.
    source, expected = np.random.default_rng(1).normal(size=(5, 600)).astype("float32"), None
    for block in (32, 64, 1024):
        given, out = np.zeros(3000 + offset, "float32"), np.full(3000 + offset, np.nan, "float32")
        given[offset:] = source.ravel()
        args = (out[offset:], given[offset:], 5, 600)
        launch("softmax.cu", "softmax_registers_f32", args, grid=2, block=block)
        expected = references.softmax(source).ravel() if expected is None else expected
        np.testing.assert_allclose(out[offset:], expected, rtol=2e-6)
        assert np.isnan(out[:offset]).all()


PAST_32_BITS = 2**31 + 5


def test_strides_and_indices_past_two_to_the_31_elements():
    # Address space only: memory is taken by the pages that are touched.
    source, out = np.empty(PAST_32_BITS + 1, "float16"), np.full(2, np.nan, "float16")
    source[[0, PAST_32_BITS]] = 1, 2
    launch("access.cu", "strided_read_f16", (out, source, PAST_32_BITS, 2))
    np.testing.assert_array_equal(out, [1, 2])
    index = np.array([PAST_32_BITS, 0], np.int64)
    launch("access.cu", "gather_f16_i64", (out, source, index, source.size, 2))
    np.testing.assert_array_equal(out, [2, 1])
    source[[0, PAST_32_BITS]] = 0
    launch("access.cu", "strided_write_f16", (source, out, PAST_32_BITS, 2))
    assert (source[0], source[PAST_32_BITS]) == (2, 1)


@pytest.mark.parametrize("index", [-1, 3, -(2**31)])
def test_gather_gives_zero_for_an_index_outside_of_the_array(index):
    out = np.full(2, np.nan, "float32")
    indices = np.array([1, index], np.int32)
    launch("access.cu", "gather_f32_i32", (out, np.arange(3, dtype="float32"), indices, 3, 2))
    np.testing.assert_array_equal(out, [1, 0])


@pytest.mark.parametrize("cols", [4, 5])
@pytest.mark.parametrize("kernel", ["embedding_f32", "embedding_f32x4"])
def test_an_embedding_gives_zeros_for_a_row_that_the_table_lacks(kernel, cols):
    table, out = np.ones((3, cols), "float32"), np.full((5, cols), np.nan, "float32")
    launch("access.cu", kernel, (out, table, np.array([2, -1, 0, 3, -(2**31)], np.int32), 3, 5, cols))
    np.testing.assert_array_equal(out, np.array([1, 0, 1, 0, 0])[:, None] + np.zeros(cols))


@pytest.mark.parametrize("cols", [8, 9])  # whole packs of 16 bytes, and rows that are none
@pytest.mark.parametrize("kernel", ["topk_f32", "topk_f32x4"])
def test_the_largest_of_hard_rows(kernel, cols):
    rows = np.full((4, cols), -np.inf, "float32")
    rows[:3, :8] = [7] * 8, [np.nan, 1, np.nan, 1, 3, -np.inf, np.inf, 2], [np.nan] * 8
    values, columns = np.full((4, 6), np.nan, "float32"), np.full((4, 6), -9, "int32")
    launch("topk.cu", kernel, (values, columns, rows, 4, cols, 6), grid=2, block=64)
    np.testing.assert_array_equal(values[:2], [[7] * 6, [np.inf, 3, 2, 1, 1, -np.inf]])
    np.testing.assert_array_equal(columns[:2], [range(6), [6, 4, 7, 1, 3, 5]])
    expected = references.topk(rows, 6)
    np.testing.assert_array_equal(values, expected[0])
    np.testing.assert_array_equal(columns, expected[1])
    # More than a warp's lanes hold.
    values, columns = np.zeros((1, 33), "float32"), np.zeros((1, 33), "int32")
    launch("topk.cu", kernel, (values, columns, rows, 1, cols, 33))
    assert np.isnan(values).all()
    assert (columns == -1).all()


@pytest.mark.parametrize("more", [0, 1])  # whole packs of 16 bytes, and rows that are none
@pytest.mark.parametrize("version", ["naive", "online", "staged", "registers"])
def test_softmax_of_extreme_rows(version, more):
    rows = np.full((5, 4 + more), -np.inf, "float32")
    rows[:, :3] = [1e38, -1e38, 3e38], [-np.inf, 0, 0], [-np.inf] * 3, [np.nan, 0, 0], [np.inf, 0, 0]
    out = np.full(rows.shape, 7, "float32")
    launch("softmax.cu", f"softmax_{version}_f32", (out, rows, 5, 4 + more))
    np.testing.assert_array_equal(out[0, :4], [0, 0, 1, 0])
    np.testing.assert_allclose(out[1, :4], [0, 0.5, 0.5, 0])
    assert np.isnan(out[2:]).any(axis=1).all()


@pytest.mark.parametrize("version", ["fused", "registers"])
def test_logsumexp_does_not_overflow(version):
    rows = np.array([[1000] * 4, [-1000] * 4, [-np.inf] * 4], "float32")
    out = np.full(3, np.nan, "float32")
    launch("logsumexp.cu", f"logsumexp_{version}_f32", (out, rows, 3, 4))
    np.testing.assert_allclose(out, [1000 + np.log(4), -1000 + np.log(4), -np.inf], rtol=1e-6)


@pytest.mark.parametrize("version", ["staged", "registers"])
def test_layer_norm_survives_a_mean_far_from_zero(version):
    row = (4096 + np.array([[-1, 0, 1, 0]])).astype("float32")
    out, ones, zeros = np.full(row.shape, np.nan, "float32"), np.ones(4, "float32"), np.zeros(4, "float32")
    args = (out, row, ones, zeros, np.float32(0), 1, 4)
    launch("layernorm.cu", f"layer_norm_{version}_f32", args)
    np.testing.assert_allclose(out, [[-np.sqrt(2), 0, np.sqrt(2), 0]], rtol=1e-5, atol=1e-6)


HARD_ROWS = (
    [0] * 8,
    [np.nan, 1, -2, 3, -np.nan, 5, -6, 7],
    [np.inf, 1, -2, 3, 0, 5, -6, 7],
    [1e-40, -3e-40, 2e-41, 0, 1e-45, 0, 0, 0],  # 448 ÷ their largest is no float
    [3.4e38, -1e38, 1, -0.0, 0, 0, 0, 0],
    [448, 2**-10, 1.5 * 2**-9, -(2**-6) * 0.999, 17, 19, -21, 25],  # on the middle between two codes
    [127, 0.5, 1.5, -2.5, 126.5, -126.5, 1, 0],
)


@pytest.mark.parametrize("arch", ["sm_80", ARCH])  # by integers, and by an instruction
@pytest.mark.parametrize("version", ["plain", "registers"])
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_hard_rows_in_8_bits(kind, version, arch):
    rows = np.array(HARD_ROWS, "float32")
    codes, scales = np.full(rows.shape, 99, kind.replace("fp", "uint")), np.full(len(rows), np.nan, "float32")
    args = (codes, scales, rows, len(rows), 8)
    launch("quantize.cu", f"quantize_{kind}_{version}_f32", args, grid=2, block=64, arch=arch)
    for found, expected in zip((codes, scales), references.quantize_rows(rows, kind), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("arch", ["sm_80", ARCH])
@pytest.mark.parametrize("version", ["plain", "registers"])
def test_hard_blocks_in_mxfp8(version, arch):
    blocks = np.array([row * 4 for row in HARD_ROWS], "float32")
    codes, scales = np.full(blocks.shape, 99, "uint8"), np.full((len(blocks), 1), 99, "uint8")
    args = (codes, scales, blocks, len(blocks))
    launch("quantize.cu", f"quantize_mxfp8_{version}_f32", args, arch=arch)
    for found, expected in zip((codes, scales), references.quantize_mxfp8(blocks), strict=True):
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("options", [(), ("-ftz=true",)])  # as CuPy compiles
@pytest.mark.parametrize("suffix", ["f32x4", "f16x8"])
@pytest.mark.parametrize("kind", ["int8", "fp8"])
def test_every_code_of_8_bits_is_its_number(kind, suffix, options):
    codes, scales = np.arange(256, dtype=np.uint8).reshape(2, 128), np.array([1, 0.5], "float32")
    codes, out = codes.view(kind.replace("fp", "uint")), np.zeros((2, 128), f"float{suffix[1:3]}")
    text = (CUDA_SRC / "quantize.cu").read_text(encoding="utf-8")
    compiled = Program(compile_ptx(text, arch=ARCH, options=options, filename="quantize.cu"))
    args = (out, codes, scales, np.int64(2), np.int64(128))
    assert not faults([execute(compiled, f"dequantize_{kind}_{suffix}", (1,), (32,), args)])
    np.testing.assert_array_equal(out, references.dequantize_rows(codes, scales))


@pytest.mark.parametrize(
    ("kernel", "d"), [("attention_flash", 129), ("attention_flash2_64", 65), ("attention_flash2_128", 129)]
)
@pytest.mark.parametrize("suffix", ["f32", "f16"])
def test_queries_too_wide_give_nan_and_not_a_wrong_result(kernel, d, suffix):
    dtype = {"f32": "float32", "f16": "float16"}[suffix]
    q, out = np.ones((1, 1, d), dtype), np.zeros((1, 1, d), dtype)
    block = (32, 2 if "flash2" in kernel and suffix == "f32" else 8)
    launch("attention.cu", f"{kernel}_{suffix}", (out, q, q, q, np.float32(1), 1, 1, d), block=block)
    assert np.isnan(out).all()


@pytest.mark.parametrize("suffix", ["f32", "f16"])
def test_heads_too_wide_give_nan_and_not_a_wrong_result(suffix):
    dtype, d = {"f32": "float32", "f16": "float16"}[suffix], 129
    q = np.ones((1, 1, d), dtype)
    out = np.zeros((1, 1, d), dtype)
    cache = np.ones((1, 1, 2, d), dtype)
    extents = (1, 1, 1, d, 2, 2)
    launch("kvcache.cu", f"kv_decode_{suffix}", (out, q, cache, cache, np.float32(1), *extents), block=128)
    assert np.isnan(out).all()
    partials = [np.zeros(shape, "float32") for shape in ((1, 1, d), (1, 1), (1, 1))]
    args = (*partials, q, cache, cache, np.float32(1), *extents, 1)
    launch("kvcache.cu", f"kv_decode_grouped_{suffix}", args, block=128)
    assert np.isnan(partials[1:]).all()


@pytest.mark.parametrize("kernel", ["kv_append_f32", "kv_append_f32x4"])
def test_append_past_the_capacity_leaves_the_cache_alone(kernel):
    cache = [np.full((1, 1, 3, 4), np.nan, "float32") for _ in range(2)]
    new = np.ones((1, 1, 2, 4), "float32")
    launch("kvcache.cu", kernel, (*cache, new, new, 2, 1, 1, 2, 4, 3))
    for half in cache:
        np.testing.assert_array_equal(half[0, 0, 2], 1)
        assert np.isnan(half[0, 0, :2]).all()


@pytest.mark.parametrize("d", [8, 9])  # whole packs of 16 bytes, and rows that are none
@pytest.mark.parametrize("kernel", ["kv_append_fp8_f32", "kv_append_fp8_f32x4"])
def test_append_in_8_bits_keeps_nan_and_zeros_and_the_capacity(kernel, d):
    codes, scales = (
        [np.full((1, 4, *more), fill, dtype) for _ in range(2)]
        for more, fill, dtype in (((d,), 99, "uint8"), ((), -1, "float32"))
    )
    new = np.zeros((1, 4, d), "float32")
    new[0, 1] = [-448, 1, *[0] * (d - 2)]
    new[0, 2, 0] = np.nan
    launch("kvcache.cu", kernel, (*codes, *scales, new, new, 1, 1, 1, 4, d, 4))
    for of_codes, of_scales in zip(codes, scales, strict=True):
        np.testing.assert_array_equal(of_scales, [[-1, 0, 1, np.nan]])  # the fourth token has no room
        assert (of_codes[0, 0] == 99).all()
        assert (of_codes[0, 1] == 0).all()
        np.testing.assert_array_equal(references.e4m3_values(of_codes[0, 2]), new[0, 1])


@pytest.mark.parametrize("block", [(16, 16), (48, 2)])  # a row of 128 floats has 32 threads
def test_append_in_8_bits_stores_whole_rows_by_blocks_of_any_width(block):
    new = np.random.default_rng(1).standard_normal((1, 3, 4, 128), "float32")
    codes, scales = [np.zeros(new.shape, "uint8") for _ in range(2)], [np.zeros(new.shape[:3], "float32") for _ in "kv"]
    args = (*codes, *scales, new, -new, 0, 1, 3, 4, 128, 4)
    launch("kvcache.cu", "kv_append_fp8_f32x4", args, block=block)
    for of_codes, of_scales, given in zip(codes, scales, (new, -new), strict=True):
        expected = references.quantize_rows(given.reshape(-1, 128), "fp8")
        np.testing.assert_array_equal(of_codes.reshape(-1, 128), expected[0])
        np.testing.assert_array_equal(of_scales.reshape(-1), expected[1])


@pytest.mark.parametrize("where", ["query", "keys", "values"])
@pytest.mark.parametrize("version", ["", "split_", "grouped_"])
def test_a_nan_that_decoding_meets_is_in_its_result(version, where):
    arrays = {
        "query": np.ones((1, 1, 8), "float32"),
        **{n: np.ones((1, 1, 5, 8), "float32") for n in ("keys", "values")},
    }
    arrays[where][..., 2] = np.nan
    out, given = np.zeros((1, 1, 8), "float32"), (*arrays.values(), np.float32(1), 1, 1, 1, 8, 5, 5)
    if version:
        partials = [np.zeros((1, 1, 2, *more), "float32") for more in ((8,), (), ())]
        launch("kvcache.cu", f"kv_decode_{version}f32", (*partials, *given, 2), grid=2, block=128)
        launch("kvcache.cu", "kv_decode_combine_f32", (out, *partials, 1, 8, 2))
    else:
        launch("kvcache.cu", "kv_decode_f32", (out, *given), block=128)
    np.testing.assert_array_equal(np.isnan(out[0, 0]), np.arange(8) == 2 if where == "values" else True)


@pytest.mark.parametrize("version", ["", "grouped_"])
@pytest.mark.parametrize("suffix", ["f32", "f16"])
def test_a_cache_of_one_token_gives_the_number_of_every_code(suffix, version):
    dtype = {"f32": "float32", "f16": "float16"}[suffix]
    codes = np.setdiff1d(np.arange(256, dtype=np.uint8), [127, 255]).reshape(1, 2, 1, 127)
    q, out = np.ones((1, 2, 127), dtype), np.full((1, 2, 127), np.nan, dtype)
    scales = np.full((1, 2, 1), 0.5, "float32")
    given = (q, codes, codes, scales, scales, np.float32(1), 1, 2, 2, 127, 1, 1)
    if version:
        partials = [np.zeros((1, 2, 1, *more), "float32") for more in ((127,), (), ())]
        launch("kvcache.cu", f"kv_decode_fp8_grouped_{suffix}", (*partials, *given, 1), block=128)
        launch("kvcache.cu", f"kv_decode_combine_{suffix}", (out, *partials, 2, 127, 1))
    else:
        launch("kvcache.cu", f"kv_decode_fp8_{suffix}", (out, *given), block=128)
    np.testing.assert_array_equal(out, references.e4m3_values(codes)[:, :, 0] / 2)


# ---- these tests see a broken kernel --------------------------------------------------------------------------------

COPY_LOOP = "i < n; i += thread_count()) out[i] = in[i];"
LAST_BARRIER = "        __syncthreads();  // before the next tile overwrites this one\n"
GEMM_BARRIER = "                __syncthreads();\n                if (k0 + F32_DEPTH < end)"
VALUES = "        __syncthreads();  // before the values overwrite the keys\n"
FLASH2 = {"batch": 1, "heads": 1, "n": 67, "d": 100}
GROUPED = {"batch": 1, "query_heads": 10, "kv_heads": 2, "d": 128, "tokens": 150, "splits": 2}
BREAKAGES = [
    ("stream.cu", "copy-plain", {"n": 7}, COPY_LOOP, COPY_LOOP.replace("<", "<="), "out-of-bounds"),
    ("transpose.cu", "transpose-tiled", {"rows": 64, "cols": 96}, LAST_BARRIER, "", "race"),
    ("q4_0.cu", "q4_0_gemv-fused", {"m": 1, "n": 3, "k": 32}, "byte >> 4 & 15) - 8", "byte >> 4 & 15) - 7", "wrong"),
    ("gemm.cu", "gemm-pipelined", {"m": 129, "n": 136, "k": 72}, GEMM_BARRIER, GEMM_BARRIER.lstrip()[16:], "race"),
    ("gemm.cu", "gemm-split-k", {"m": 1, "n": 8, "k": 129}, "load(begin, 0)", "load(0, 0)", "wrong"),
    ("attention.cu", "attention-flash2", FLASH2, VALUES, "", "race"),
    ("kvcache.cu", "kv_decode-grouped", GROUPED, "sum[h] *= shrink;", "", "wrong"),
    ("q4_0.cu", "q4_0_gemm-planar", {"m": 8, "n": 9, "k": 512}, "thread / 128 * (STEP / 2)", "0", "wrong"),
]


ANY_KERNEL = re.compile(
    r'^extern "C" __global__ void (?:__launch_bounds__\([^)]*\)\s*)?(\w+)\([^{]*\{(?:.*\}\n|\n(?s:.*?)^\}\n)',
    re.MULTILINE,
)


def broken(text, kernels):
    """The text's program with these kernels alone: NVRTC takes its time for each."""
    alone = ANY_KERNEL.sub(lambda one: one[0] if one[1] in kernels else "", text)
    return Program(compile_ptx(alone, arch=ARCH))


@pytest.mark.parametrize(("file", "title", "sizes", "found", "replaced", "seen_as"), BREAKAGES)
def test_a_broken_kernel_is_seen(file, title, sizes, found, replaced, seen_as, monkeypatch):
    text = (interpreted.CUDA_SRC / file).read_text(encoding="utf-8")
    assert found in text, f"{file} no longer has the text that this test breaks"
    operation = next(o for o in EXECUTABLE if o.title == title)
    arrays = FreshArrays()
    case = operation.prepare(arrays, "float32", sizes)
    program = broken(text.replace(found, replaced), {step.kernel for step in case.steps})
    monkeypatch.setattr(interpreted, "shipped", lambda *_: program)
    poison(case)
    codes = {fault.code for execution in run(case, arrays, ARCH, one_block=True) for fault in execution.faults}
    if seen_as == "wrong":
        assert wrong_results(case)
    else:
        assert seen_as in codes
