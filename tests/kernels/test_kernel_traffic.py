"""What the kernels ask of memory, counted, against figures worked out by hand."""

import importlib.util

import pytest

from pytest_bandwidth.suite.operations import OPERATIONS
from pytest_bandwidth.suite.traffic_models import warp_sectors

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("executing kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

from interpreted import FreshArrays, run

ARCH = "sm_90"


def counts(title, dtype, **sizes):
    operation = next(o for o in OPERATIONS if o.title == title and dtype in o.dtypes)
    arrays = FreshArrays()
    return [execution.counts for execution in run(operation.prepare(arrays, dtype, sizes), arrays, ARCH)]


@pytest.mark.parametrize(("dtype", "sectors"), [("float32", 4), ("float16", 2), ("float64", 8)])
def test_plain_streams_are_coalesced(dtype, sectors):
    (triad,) = counts("triad-plain", dtype, n=4096)
    assert triad.loads.sectors_per_request == triad.stores.sectors_per_request == sectors
    assert triad.loads.requests == 2 * 4096 / 32
    assert triad.stores.requests == 4096 / 32
    assert triad.loads.coalescing == 1


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_wide_streams_ask_for_512_bytes_a_request(dtype):
    (copy,) = counts("copy-wide", dtype, n=4096)
    assert copy.loads.sectors_per_request == copy.stores.sectors_per_request == 16
    assert copy.loads.requests == 4096 * (4 if dtype == "float32" else 2) / 512


@pytest.mark.parametrize("title", ["softmax-registers", "layer_norm-registers", "rms_norm_residual-registers"])
def test_rows_of_whole_packs_ask_for_512_bytes_a_request_and_a_column_more_for_single_elements(title):
    (whole,) = counts(title, "float32", rows=4, cols=1024)
    assert whole.loads.sectors_per_request == whole.stores.sectors_per_request == 16
    (uneven,) = counts(title, "float32", rows=4, cols=1025)
    assert uneven.loads.sectors_per_request < 5
    assert uneven.loads.requests > 4 * whole.loads.requests


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("stride", [2, 32])
def test_strides_ask_for_the_sectors_of_the_formula(dtype, stride):
    sectors, coalesced = warp_sectors(dtype, stride=stride), warp_sectors(dtype)
    (read,) = counts("strided_read-plain", dtype, n=1024, stride=stride)
    assert read.loads.sectors_per_request == sectors
    assert read.stores.sectors_per_request == coalesced
    (write,) = counts("strided_write-plain", dtype, n=1024, stride=stride)
    assert write.loads.sectors_per_request == coalesced
    assert write.stores.sectors_per_request == sectors


@pytest.mark.parametrize(("dtype", "offset", "sectors"), [("float32", 1, 5), ("float32", 8, 4), ("float16", 1, 3)])
def test_an_offset_costs_a_sector_unless_it_is_a_whole_one(dtype, offset, sectors):
    (copy,) = counts("misaligned-plain", dtype, n=1024, offset=offset)
    assert copy.loads.sectors_per_request == sectors == warp_sectors(dtype, offset=offset)


def test_a_broadcast_asks_for_one_sector():
    (copy,) = counts("broadcast-plain", "float32", n=1024)
    assert copy.loads.sectors_per_request == 1
    assert copy.loads.pattern == "broadcast"


def test_a_gather_asks_for_nearly_a_sector_per_thread():
    (copy,) = counts("gather-int32", "float32", n=1 << 16)
    indices, elements = (1 << 16) / 32 * 4, copy.loads.sectors - (1 << 16) / 32 * 4
    assert indices < elements
    # 32 random sectors of 8192 are all different but for 32·31/2/8192 = 6 % of a pair.
    assert elements / ((1 << 16) / 32) == pytest.approx(32, rel=0.01)


@pytest.mark.parametrize("cols", [64, 128, 256])  # rows of 128 to 512 bytes
def test_an_embedding_asks_for_512_bytes_a_request_however_short_its_rows(cols):
    (wide,) = counts("embedding-wide", "float16", rows=1024, cols=cols)
    (plain,) = counts("embedding-plain", "float16", rows=1024, cols=cols)
    row_requests = 1024 * cols * 2 / 512
    assert wide.stores.requests == row_requests
    assert wide.stores.sectors_per_request == 16
    assert wide.loads.requests == 2 * row_requests  # one for the numbers of the rows that a warp has at once
    assert plain.loads.requests == 2 * 1024 * cols / 32


@pytest.mark.parametrize(
    ("title", "sizes"),
    [
        *((f"gemm-{version}", {"m": 64, "n": 64, "k": 64}) for version in ("tiled", "blocked")),
        ("attention-flash", {"batch": 1, "heads": 2, "n": 64, "d": 32}),
    ],
)
def test_shared_memory_is_read_without_conflicts(title, sizes):
    (found,) = counts(title, "float32", **sizes)
    assert found.shared_loads.bank_conflicts == 0
    assert title.startswith("gemm") or found.bank_conflicts == 0


def test_the_naive_transpose_writes_32_sectors_and_the_tiled_one_4():
    (naive,) = counts("transpose-naive", "float32", rows=96, cols=64)
    assert (naive.loads.sectors_per_request, naive.stores.sectors_per_request) == (4, 32)
    (tiled,) = counts("transpose-tiled", "float32", rows=96, cols=64)
    assert (tiled.loads.sectors_per_request, tiled.stores.sectors_per_request) == (4, 4)
    assert tiled.bank_conflicts == 0


# What users copy, at sizes of whole tiles.
BEST = [
    ("gemm-pipelined", ("float32", "float16", "bfloat16"), {"m": 128, "n": 128, "k": 64}),
    ("attention-flash2", ("float32", "float16", "bfloat16"), {"batch": 1, "heads": 1, "n": 128, "d": 64}),
    ("attention-flash2", ("float32", "float16", "bfloat16"), {"batch": 1, "heads": 1, "n": 128, "d": 128}),
    ("transpose-wide", ("float32", "float16"), {"rows": 128, "cols": 128}),
    ("nchw_to_nhwc-wide", ("float32", "float16"), {"batch": 2, "channels": 128, "pixels": 256}),
    ("kv_append-wide", ("float32", "float16"), {"batch": 1, "kv_heads": 2, "tokens": 64, "d": 128, "position": 16}),
    ("intensity_fma-wide", ("float32", "float16"), {"n": 16384, "repeats": 4}),
    ("gemm_int8-pipelined", ("float16",), {"m": 128, "n": 256, "k": 256}),
]
# The first copies A by elements, to lie transposed, the second its scales.
WITH_SMALL_LOADS = {("gemm-pipelined", "float32"), ("gemm_int8-pipelined", "float16")}


@pytest.mark.parametrize(
    ("title", "dtype", "sizes"), [(title, dtype, sizes) for title, dtypes, sizes in BEST for dtype in dtypes]
)
def test_the_best_version_wastes_no_sector_and_no_bank(title, dtype, sizes):
    (found,) = counts(title, dtype, **sizes)
    assert found.loads.coalescing == found.stores.coalescing == 1
    assert found.stores.sectors_per_request == 16
    assert found.bank_conflicts == 0
    if (title, dtype) not in WITH_SMALL_LOADS:
        assert found.loads.sectors_per_request == 16


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_vector_is_multiplied_by_16_bytes_of_each_row_a_lane(dtype):
    (found,) = counts("gemv-wide", dtype, n=16, k=4096)
    assert found.loads.coalescing == 1
    assert found.loads.sectors_per_request == 16


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_the_sums_of_a_split_product_are_whole_sectors_that_are_read_16_bytes_a_lane(dtype):
    product, combine = counts("gemm-split-k", dtype, m=128, n=128, k=128)
    for found in (product, combine):
        assert found.loads.coalescing == found.stores.coalescing == 1
        assert found.bank_conflicts == 0
    assert product.stores.bytes_requested == combine.loads.bytes_requested == 2 * 128 * 128 * 4  # of two parts
    assert combine.loads.sectors_per_request == 16


@pytest.mark.parametrize("title", ["kv_decode-grouped", "kv_decode_paged-grouped"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_query_heads_that_share_keys_and_values_ask_for_them_once(dtype, title):
    sizes = {"batch": 1, "query_heads": 4, "kv_heads": 1, "d": 128, "tokens": 256, "splits": 1}
    grouped, _ = counts(title, dtype, **sizes)
    split, _ = counts("kv_decode-split", dtype, **sizes)
    cache = 2 * 256 * 128 * (4 if dtype == "float32" else 2)
    assert grouped.loads.bytes_requested == pytest.approx(cache, rel=0.1)
    assert split.loads.bytes_requested > 3.9 * cache


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_a_cache_in_8_bits_is_asked_for_once_whole_sectors_at_a_time(dtype):
    sizes = {"batch": 1, "query_heads": 4, "kv_heads": 1, "d": 128, "tokens": 256, "splits": 1}
    grouped, _ = counts("kv_decode_fp8-grouped", dtype, **sizes)
    query = 4 * 8 * 128 * (4 if dtype == "float32" else 2)  # each token of a block's eight asks for it
    assert grouped.loads.bytes_requested == 2 * 256 * (128 + 4) + query
    (append,) = counts("kv_append_fp8-wide", dtype, batch=1, kv_heads=2, tokens=64, d=128, position=16)
    assert append.loads.sectors_per_request == 16
    assert append.loads.coalescing == 1


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_packed_weights_are_asked_for_16_bytes_a_lane(dtype):
    (found,) = counts("q4_0_gemv-planar", dtype, m=1, n=32, k=4096)
    # Of nibbles 16 B a lane, of scales 2, and X once.
    requests = 32 * 4096 / 32 / 32 * 2 + 4096 / 4 / 32
    assert found.loads.requests == requests
    assert found.bank_conflicts == 0
    (found,) = counts("q4_0_gemm-planar", dtype, m=32, n=64, k=4096)
    assert found.loads.requests == 64 * 4096 / 32 / 32 * 2 + 32 * 4096 / 4 / 32
    assert found.shared_loads.bank_conflicts == 0
