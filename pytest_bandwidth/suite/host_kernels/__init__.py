"""List the host twins of the shipped CUDA kernels by name, with their arguments and the least sizes of their arrays."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from math import prod
from typing import Any

from pytest_bandwidth.devices.cpu.kernels import HostKernel
from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.suite.host_kernels import access, attention, matmul, rows, stream

# Suffix of a name, element type, type that it is computed in. Wide versions load 16 bytes at a time, as a vectorised
# host kernel does in any case.
FLOATS = (("f32", "f32", "f32"), ("f16", "f16", "f32"))
ALL = (*FLOATS, ("f64", "f64", "f64"))
WIDE_FLOATS = (("f32x4", "f32", "f32"), ("f16x8", "f16", "f32"))
MOST, WIDE = (*FLOATS, *WIDE_FLOATS), (*ALL, *WIDE_FLOATS)
INDEXED = [(index, tuple((f"{suffix}_{index}", *types) for suffix, *types in FLOATS)) for index in ("i32", "i64")]


def _family(
    names: str,
    function: Callable[..., Any],
    signature: str,
    extents: str | Callable[..., Sequence[int]],
    versions: Sequence[Sequence[str]] = FLOATS,
    **options: Any,
) -> Iterator[HostKernel]:
    """Yield a kernel for each version. In the signature T is the element type and W the type that it is computed in.

    names: of the CUDA kernels that the function replaces, separated by blanks.
    extents: as text, for each array a product of sizes, such as ``rows·cols``.
    """
    needed = _products(extents) if isinstance(extents, str) else extents
    for name, (suffix, element, arithmetic) in product(names.split(), versions):
        typed = signature.replace(":T", f":{element}").replace(":W", f":{arithmetic}")
        yield HostKernel(f"{name}_{suffix}", function, typed, needed, **options)


def _products(text: str) -> Callable[..., Sequence[int]]:
    """Read extents, of factors such as ``rows``, ``18`` and ``k/32``, which is rounded up."""

    def factor(text: str, sizes: Mapping[str, int]) -> int:
        name, _, divisor = text.partition("/")
        return int(name) if name.isdigit() else -(-sizes[name] // int(divisor or 1))

    def extents(**sizes: int) -> list[int]:
        query_heads, kv_heads = sizes.get("query_heads", 0), sizes.get("kv_heads", 1)
        if sizes.get("batch") and query_heads and (kv_heads == 0 or query_heads % kv_heads):
            raise UsageError(f"query_heads is {query_heads}, expected a multiple of kv_heads, which is {kv_heads}")
        return [prod(factor(one, sizes) for one in factors.split("·")) for factors in text.split()]

    return extents


def _reach(stride: int, n: int) -> int:
    """Return the number of elements up to the last one that n steps of a stride touch."""
    return (n - 1) * stride + 1 if n else 0


_ONE_TO_ONE, _MATRIX = "out:T* in:T* n:i64", "out:T* in:T* rows:i64 cols:i64"
_BATCH, _OF_BATCH = "out:T* in:T* batch:i64 rows:i64 cols:i64", "batch·rows·cols batch·rows·cols"
_FUSED = "out:T* in:T* bias:f32 probability:f32 seed:u32 n:i64"
_STRIDED, _OFFSET = "out:T* in:T* stride:i64 n:i64", "out:T* in:T* offset:i64 n:i64"
_GATHER = "out:T* in:T* index:{}* length:i64 n:i64"
_EMBEDDING = "out:T* table:T* index:i32* length:i64 rows:i64 cols:i64"
_NORM = "out:T* in:T* gamma:T* beta:T* epsilon:f32 rows:i64 cols:i64"
_RMS_NORM = "out:T* sum:T* in:T* residual:T* gamma:T* epsilon:f32 rows:i64 cols:i64"
_OF_RMS_NORM = "rows·cols rows·cols rows·cols rows·cols cols"
_ROPE = "out:T* in:T* cosines:f32* sines:f32* tokens:i64 heads:i64 d:i64"
_OF_ROPE = "tokens·heads·d tokens·heads·d tokens·d/2 tokens·d/2"
_GEMM, _LINEAR = "c:T* a:T* b:T* m:i64 n:i64 k:i64", "y:T* x:T* w:T* m:i64 n:i64 k:i64"
_PACKED = "y:T* x:T* blocks:u8* m:i64 n:i64 k:i64"
_PLANAR = "y:T* x:T* nibbles:u8* scales:u8* m:i64 n:i64 k:i64"
_SCORES = "s:T* q:T* k:T* scale:f32 heads:i64 n:i64 d:i64"
_OUTPUT = "o:T* p:T* v:T* heads:i64 n:i64 d:i64"
_FLASH, _OF_FLASH = "o:T* q:T* k:T* v:T* scale:f32 heads:i64 n:i64 d:i64", "heads·n·d heads·n·d heads·n·d heads·n·d"
_CACHE = "q:T* k_cache:T* v_cache:T* scale:f32 batch:i64 query_heads:i64 kv_heads:i64 d:i64 tokens:i64 capacity:i64"
_NEW = "k_cache:T* v_cache:T* k_new:T* v_new:T* position:i64 batch:i64 kv_heads:i64 tokens:i64 d:i64 capacity:i64"
# Extents of keys and of values.
_OF_CACHES = "batch·kv_heads·capacity·d batch·kv_heads·capacity·d"
_OF_NEW = "batch·kv_heads·tokens·d batch·kv_heads·tokens·d"
# Extents for decoding: the query, which is as large as the result, and the cache.
_OF_QUERY = "batch·query_heads·d"
_OF_CACHE = f"{_OF_QUERY} {_OF_CACHES}"

_FAMILIES: tuple[Iterator[HostKernel], ...] = (
    _family("read", stream.read, "sink:W* in:T* never:W n:i64", "1 n", WIDE),
    _family("write", stream.write, "out:T* value:W n:i64", "n", WIDE),
    _family("copy", stream.copy, _ONE_TO_ONE, "n n", WIDE, bits=True),
    _family("scale", stream.scale, "out:T* in:T* scalar:W n:i64", "n n", WIDE),
    _family("add", stream.add, "out:T* a:T* b:T* n:i64", "n n n", WIDE),
    _family("triad", stream.triad, "a:T* b:T* c:T* scalar:W n:i64", "n n n", WIDE),
    _family("sum", stream.sum_all, "partials:W* in:T* n:i64", "blocks n", WIDE, takes_blocks=True),
    _family("dot", stream.dot, "partials:W* a:T* b:T* n:i64", "blocks n n", WIDE, takes_blocks=True),
    _family("bias", stream.bias, "out:T* in:T* bias:f32 n:i64", "n n"),
    _family("relu", stream.relu, _ONE_TO_ONE, "n n"),
    _family("dropout", stream.dropout, "out:T* in:T* probability:f32 seed:u32 n:i64", "n n"),
    _family("bias_relu_dropout", stream.bias_relu_dropout, _FUSED, "n n"),
    _family("bias_relu_dropout", stream.bias_relu_dropout_of_four, _FUSED, "n n", WIDE_FLOATS),
    _family("cos", stream.cos, _ONE_TO_ONE, "n n"),
    _family("cos_cos", stream.cos_cos, _ONE_TO_ONE, "n n", MOST),
    _family("swiglu", stream.swiglu, "out:T* gate:T* up:T* n:i64", "n n n", MOST),
    _family("intensity_fma", stream.intensity_fma, "out:T* in:T* factor:W addend:W repeats:i32 n:i64", "n n", WIDE),
    _family("intensity_add", stream.intensity_add, "out:T* in:T* addend:W repeats:i32 n:i64", "n n", ALL),
    _family("strided_read", access.strided_read, _STRIDED, lambda stride, n: (n, _reach(stride, n)), bits=True),
    _family("strided_write", access.strided_write, _STRIDED, lambda stride, n: (_reach(stride, n), n), bits=True),
    _family("misaligned", access.misaligned, _OFFSET, lambda offset, n: (n, n + offset if n else 0), bits=True),
    *(_family("gather", access.gather, _GATHER.format(i), "n length n", types, bits=True) for i, types in INDEXED),
    _family("embedding", access.embedding, _EMBEDDING, "rows·cols length·cols rows", MOST, bits=True),
    _family("transpose_naive", access.transpose_naive, _MATRIX, "rows·cols rows·cols", bits=True),
    _family("transpose_tiled transpose_wide", access.transpose_tiled, _MATRIX, "rows·cols rows·cols", bits=True),
    _family("transpose_batch_naive", access.transpose_batch_naive, _BATCH, _OF_BATCH, bits=True),
    _family("transpose_batch_wide", access.transpose_batch_tiled, _BATCH, _OF_BATCH, bits=True),
    _family("softmax_naive", rows.softmax_naive, _MATRIX, "rows·cols rows·cols"),
    _family("softmax_online", rows.softmax_online, _MATRIX, "rows·cols rows·cols"),
    _family("softmax_staged softmax_registers", rows.softmax_staged, _MATRIX, "rows·cols rows·cols"),
    _family("layer_norm_naive", rows.layer_norm_naive, _NORM, "rows·cols rows·cols cols cols"),
    _family("layer_norm_staged layer_norm_registers", rows.layer_norm_staged, _NORM, "rows·cols rows·cols cols cols"),
    _family("rms_norm_residual_naive rms_norm_residual_registers", rows.rms_norm_residual, _RMS_NORM, _OF_RMS_NORM),
    _family("logsumexp_registers logsumexp_fused", rows.logsumexp_fused, _MATRIX, "rows rows·cols"),
    _family("row_max", rows.row_max, "max:T* in:T* rows:i64 cols:i64", "rows rows·cols"),
    _family("exp_shifted", rows.exp_shifted, "out:T* in:T* max:T* rows:i64 cols:i64", "rows·cols rows·cols rows"),
    _family("row_log_sum", rows.row_log_sum, "out:T* exps:T* max:T* rows:i64 cols:i64", "rows rows·cols rows"),
    _family("rope", rows.rope, _ROPE, _OF_ROPE, MOST),
    _family("gemm_naive", matmul.gemm_naive, _GEMM, "m·n m·k k·n"),
    _family("gemm_tiled gemm_blocked gemm_pipelined", matmul.gemm_blocked, _GEMM, "m·n m·k k·n"),
    _family("gemv", matmul.gemv, "y:T* w:T* x:T* n:i64 k:i64", "n n·k k", MOST),
    _family("linear_gemv linear_gemm", matmul.linear, _LINEAR, "m·n m·k k·n"),
    _family("q4_0_gemv q4_0_gemm", matmul.q4_0_product, _PACKED, "m·n m·k n·k/32·18"),
    _family("q4_0_gemv_planar q4_0_gemm_planar", matmul.q4_0_planar, _PLANAR, "m·n m·k n·k/32·16 n·k/32·2"),
    _family("q4_0_dequantize", matmul.q4_0_dequantize, "out:T* blocks:u8* n:i64", "n n/32·18", MOST),
    _family("attention_scores", attention.attention_scores, _SCORES, "heads·n·n heads·n·d heads·n·d"),
    _family("attention_output", attention.attention_output, _OUTPUT, "heads·n·d heads·n·n heads·n·d"),
    _family("attention_flash attention_flash2_64 attention_flash2_128", attention.attention_flash, _FLASH, _OF_FLASH),
    _family("kv_append", attention.kv_append, _NEW, f"{_OF_CACHES} {_OF_NEW}", MOST, bits=True),
    _family("kv_decode", attention.kv_decode, f"out:T* {_CACHE}", f"{_OF_QUERY} {_OF_CACHE}"),
)
HOST_KERNELS: dict[str, HostKernel] = {kernel.name: kernel for family in _FAMILIES for kernel in family}
