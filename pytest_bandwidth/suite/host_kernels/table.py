"""List the host twins of the shipped CUDA kernels by name, with what each takes and how large its arrays have to be."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pytest_bandwidth.devices.cpu.kernels import HostKernel
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.suite.host_kernels import access, attention, matmul, norms, pointwise, stream

# Suffix of a name, element type, type that it is computed in. Wide versions ask for 16 bytes at a time, which is what
# a vectorised host kernel does anyway.
FLOATS = (("f32", "f32", "f32"), ("f16", "f16", "f32"))
ALL = (*FLOATS, ("f64", "f64", "f64"))
WIDE = (*ALL, ("f32x4", "f32", "f32"), ("f16x8", "f16", "f32"))
Q4_ELEMENTS, Q4_BYTES = matmul.Q4_ELEMENTS, matmul.Q4_BYTES


def _family(
    name: str,
    function: Callable[..., Any],
    signature: str,
    extents: Callable[..., Sequence[int]],
    versions: Sequence[tuple[str, str, str]] = FLOATS,
    **options: Any,
) -> Iterator[HostKernel]:
    """Yield a kernel for each version. In the signature T is the element type and W the type that it is computed in."""
    for suffix, element, arithmetic in versions:
        typed = signature.replace(":T", f":{element}").replace(":W", f":{arithmetic}")
        yield HostKernel(f"{name}_{suffix}", function, typed, extents, **options)


def _stream() -> Iterator[HostKernel]:
    yield from _family("read", stream.read, "sink:W* in:T* never:W n:i64", lambda n: (1, n), WIDE)
    yield from _family("write", stream.write, "out:T* value:W n:i64", lambda n: (n,), WIDE)
    yield from _family("copy", stream.copy, "out:T* in:T* n:i64", lambda n: (n, n), WIDE, bits=True)
    yield from _family("scale", stream.scale, "out:T* in:T* scalar:W n:i64", lambda n: (n, n), WIDE)
    yield from _family("add", stream.add, "out:T* a:T* b:T* n:i64", lambda n: (n, n, n), WIDE)
    yield from _family("triad", stream.triad, "a:T* b:T* c:T* scalar:W n:i64", lambda n: (n, n, n), WIDE)


def _reductions() -> Iterator[HostKernel]:
    of_one, of_two = "partials:W* in:T* n:i64", "partials:W* a:T* b:T* n:i64"
    yield from _family("sum", stream.sum_all, of_one, lambda n, blocks: (blocks, n), WIDE, takes_blocks=True)
    yield from _family("dot", stream.dot, of_two, lambda n, blocks: (blocks, n, n), WIDE, takes_blocks=True)


def _pointwise() -> Iterator[HostKernel]:
    fused = "out:T* in:T* bias:f32 probability:f32 seed:u32 n:i64"
    yield from _family("bias", pointwise.bias, "out:T* in:T* bias:f32 n:i64", _map)
    yield from _family("relu", pointwise.relu, "out:T* in:T* n:i64", _map)
    yield from _family("dropout", pointwise.dropout, "out:T* in:T* probability:f32 seed:u32 n:i64", _map)
    yield from _family("bias_relu_dropout", pointwise.bias_relu_dropout, fused, _map)
    yield from _family("cos", pointwise.cos, "out:T* in:T* n:i64", _map)
    yield from _family("cos_cos", pointwise.cos_cos, "out:T* in:T* n:i64", _map)
    fma = "out:T* in:T* factor:W addend:W repeats:i32 n:i64"
    yield from _family("intensity_fma", pointwise.intensity_fma, fma, _map, ALL)
    yield from _family("intensity_add", pointwise.intensity_add, "out:T* in:T* addend:W repeats:i32 n:i64", _map, ALL)


def _map(n: int, repeats: int = 0) -> Sequence[int]:
    del repeats  # a size that no array has
    return n, n


def _access() -> Iterator[HostKernel]:
    strided = "out:T* in:T* stride:i64 n:i64"
    yield from _family(
        "strided_read", access.strided_read, strided, lambda stride, n: (n, _reach(stride, n)), bits=True
    )
    yield from _family(
        "strided_write", access.strided_write, strided, lambda stride, n: (_reach(stride, n), n), bits=True
    )
    offset = "out:T* in:T* offset:i64 n:i64"
    yield from _family(
        "misaligned", access.misaligned, offset, lambda offset, n: (n, n + offset if n else 0), bits=True
    )
    for index in ("i32", "i64"):
        versions = tuple((f"{suffix}_{index}", element, arithmetic) for suffix, element, arithmetic in FLOATS)
        gather = f"out:T* in:T* index:{index}* length:i64 n:i64"
        yield from _family("gather", access.gather, gather, lambda length, n: (n, length, n), versions, bits=True)
    shape = "out:T* in:T* rows:i64 cols:i64"
    yield from _family("transpose_naive", access.transpose_naive, shape, _matrix, bits=True)
    yield from _family("transpose_tiled", access.transpose_tiled, shape, _matrix, bits=True)


def _reach(stride: int, n: int) -> int:
    """Return the number of elements up to the last one that n steps of a stride touch."""
    return (n - 1) * stride + 1 if n else 0


def _matrix(rows: int, cols: int) -> Sequence[int]:
    return rows * cols, rows * cols


def _softmax() -> Iterator[HostKernel]:
    shape = "out:T* in:T* rows:i64 cols:i64"
    yield from _family("softmax_naive", norms.softmax_naive, shape, _matrix)
    yield from _family("softmax_online", norms.softmax_online, shape, _matrix)
    yield from _family("softmax_staged", norms.softmax_staged, shape, _matrix)


def _layer_norm() -> Iterator[HostKernel]:
    norm = "out:T* in:T* gamma:T* beta:T* epsilon:f32 rows:i64 cols:i64"
    yield from _family("layer_norm_naive", norms.layer_norm_naive, norm, _normalised)
    yield from _family("layer_norm_staged", norms.layer_norm_staged, norm, _normalised)


def _normalised(rows: int, cols: int) -> Sequence[int]:
    return rows * cols, rows * cols, cols, cols


def _logsumexp() -> Iterator[HostKernel]:
    fused = "out:T* in:T* rows:i64 cols:i64"
    yield from _family("logsumexp_fused", norms.logsumexp_fused, fused, lambda rows, cols: (rows, rows * cols))
    row_max = "max:T* in:T* rows:i64 cols:i64"
    yield from _family("row_max", norms.row_max, row_max, lambda rows, cols: (rows, rows * cols))
    shifted = "out:T* in:T* max:T* rows:i64 cols:i64"
    yield from _family("exp_shifted", norms.exp_shifted, shifted, lambda rows, cols: (rows * cols, rows * cols, rows))
    log_sum = "out:T* exps:T* max:T* rows:i64 cols:i64"
    yield from _family("row_log_sum", norms.row_log_sum, log_sum, lambda rows, cols: (rows, rows * cols, rows))


def _products() -> Iterator[HostKernel]:
    gemm = "c:T* a:T* b:T* m:i64 n:i64 k:i64"
    yield from _family("gemm_naive", matmul.gemm_naive, gemm, _product)
    yield from _family("gemm_tiled", matmul.gemm_tiled, gemm, _product)
    yield from _family("gemm_blocked", matmul.gemm_blocked, gemm, _product)
    linear = "y:T* x:T* w:T* m:i64 n:i64 k:i64"
    yield from _family("linear_gemv", matmul.linear, linear, _product)
    yield from _family("linear_gemm", matmul.linear, linear, _product)
    packed = "y:T* x:T* blocks:u8* m:i64 n:i64 k:i64"
    yield from _family("q4_0_gemv", matmul.q4_0_product, packed, _q4_product)
    yield from _family("q4_0_gemm", matmul.q4_0_product, packed, _q4_product)
    yield from _family(
        "q4_0_dequantize", matmul.q4_0_dequantize, "out:T* blocks:u8* n:i64", lambda n: (n, _q4_bytes(n))
    )


def _product(m: int, n: int, k: int) -> Sequence[int]:
    return m * n, m * k, k * n


def _q4_product(m: int, n: int, k: int) -> Sequence[int]:
    return m * n, m * k, n * _q4_bytes(k)


def _q4_bytes(elements: int) -> int:
    return -(-elements // Q4_ELEMENTS) * Q4_BYTES


def _attention() -> Iterator[HostKernel]:
    scores = "s:T* q:T* k:T* scale:f32 heads:i64 n:i64 d:i64"
    yield from _family(
        "attention_scores",
        attention.attention_scores,
        scores,
        lambda heads, n, d: (heads * n * n, heads * n * d, heads * n * d),
    )
    output = "o:T* p:T* v:T* heads:i64 n:i64 d:i64"
    yield from _family(
        "attention_output",
        attention.attention_output,
        output,
        lambda heads, n, d: (heads * n * d, heads * n * n, heads * n * d),
    )
    flash = "o:T* q:T* k:T* v:T* scale:f32 heads:i64 n:i64 d:i64"
    yield from _family("attention_flash", attention.attention_flash, flash, lambda heads, n, d: (heads * n * d,) * 4)


def _cache() -> Iterator[HostKernel]:
    append = "k_cache:T* v_cache:T* k_new:T* v_new:T* position:i64 batch:i64 kv_heads:i64 tokens:i64 d:i64 capacity:i64"
    yield from _family("kv_append", attention.kv_append, append, _appended, bits=True)
    sizes = "batch:i64 query_heads:i64 kv_heads:i64 d:i64 tokens:i64 capacity:i64"
    yield from _family(
        "kv_decode", attention.kv_decode, f"out:T* q:T* k_cache:T* v_cache:T* scale:f32 {sizes}", _decoded
    )
    split = "partial_result:f32* partial_max:f32* partial_sum:f32* q:T* k_cache:T* v_cache:T* scale:f32 "
    yield from _family("kv_decode_split", attention.kv_decode_split, f"{split}{sizes} splits:i64", _split)
    combine = "out:T* partial_result:f32* partial_max:f32* partial_sum:f32* heads:i64 d:i64 splits:i64"
    yield from _family("kv_decode_combine", attention.kv_decode_combine, combine, _combined)


def _appended(position: int, batch: int, kv_heads: int, tokens: int, d: int, capacity: int) -> Sequence[int]:
    del position  # a place, not an extent
    cache, new = batch * kv_heads * capacity * d, batch * kv_heads * tokens * d
    return cache, cache, new, new


def _decoded(batch: int, query_heads: int, kv_heads: int, d: int, tokens: int, capacity: int) -> Sequence[int]:
    del tokens  # the caches have room for `capacity` of them, and what is past that is ignored
    if batch and query_heads and (kv_heads == 0 or query_heads % kv_heads):
        raise UsageError(f"query_heads is {query_heads}, expected a multiple of kv_heads, which is {kv_heads}")
    result, cache = batch * query_heads * d, batch * kv_heads * capacity * d
    return result, result, cache, cache


def _split(
    batch: int, query_heads: int, kv_heads: int, d: int, tokens: int, capacity: int, splits: int
) -> Sequence[int]:
    _, query, keys, values = _decoded(batch, query_heads, kv_heads, d, tokens, capacity)
    ranges = batch * query_heads * splits
    return ranges * d, ranges, ranges, query, keys, values


def _combined(heads: int, d: int, splits: int) -> Sequence[int]:
    return heads * d, heads * splits * d, heads * splits, heads * splits


_FAMILIES = (
    _stream,
    _reductions,
    _pointwise,
    _access,
    _softmax,
    _layer_norm,
    _logsumexp,
    _products,
    _attention,
    _cache,
)
HOST_KERNELS: dict[str, HostKernel] = {kernel.name: kernel for family in _FAMILIES for kernel in family()}
