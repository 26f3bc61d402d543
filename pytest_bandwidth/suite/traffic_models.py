"""Give each operation's bytes through device memory and its FLOP, as formulas of its sizes.

- s is the bytes of an element, i those of an index. The names of sizes are those of the operation.
- "Moved" is the algorithmic minimum: for each launch every distinct byte read once plus every distinct byte written
  once, summed over the operation's launches. Caches may do worse, never better, unless they hold data from one launch
  to the next.
- "Requested" is the sum of all loads, given for kernels that may load a byte more than once.

copy, scale, add and triad are STREAM's four (McCalpin, https://www.cs.virginia.edu/stream/ref.html). In a copy between
memories, each end moves n·s bytes of its own. The peak of copies to and from the host and of the peer copy is the
link's, not the memory's.

The FLOP of q4_0 are the multiplication's, so that fused and separate compare. Those of attention are the two products';
the softmax's are left out, as is usual (FlashAttention, Dao et al., https://arxiv.org/abs/2205.14135, section 2.2).

A block of Q4_0, weights of four bits in blocks of 32 with one float16 scale, is 18 bytes: the scale, then 16 bytes of
nibbles. Byte j holds element j in its low and element j + 16 in its high nibble; value = (nibble − 8)·scale.
(llama.cpp, ggml-common.h, block_q4_0.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, tiles


@dataclass(frozen=True, slots=True)
class Formula:
    """Hold what one run reads and writes, and its FLOP, each a sum of products: ``2·n·s + n·i``.

    Factors are integers, sizes of the operation, s and i, any of them squared; 18/32 is the bytes of a block for each
    32 of the other factors' product, rounded up. besides: further, small terms, which the operation adds.
    requested: the bytes of all loads. It may name more than sizes, which the kernel of a version decides.
    """

    read: str
    written: str
    flop: str = "0"
    requested: str = ""
    besides: str = ""

    def at(self, sizes: Mapping[str, int], dtype: Any, requested: Mapping[str, int] | None = None) -> Traffic:
        """Compute the traffic at these sizes, without `besides`.

        requested: what else that formula names; without it, the requested bytes are unknown.
        """
        names = {**sizes, "s": bytes_per_element(dtype)}
        read, written, flop = (_sum_of_products(text, names) for text in (self.read, self.written, self.flop))
        if requested is None:
            return Traffic(read, written, flop)
        return Traffic(read, written, flop, _sum_of_products(self.requested, {**names, **requested}), written)


def _sum_of_products(text: str, names: Mapping[str, int]) -> int:
    """Compute a formula's text. Raises KeyError for a name that has no value."""
    found = 0
    for term in text.split(" + "):
        product, of_block = 1, None
        for factor in term.split("·"):
            name = factor.removesuffix("²").removesuffix("/32")
            value = int(name) if name.isdigit() else names[name]
            if factor.endswith("/32"):
                of_block = value
            else:
                product *= value**2 if factor.endswith("²") else value
        found += product if of_block is None else tiles(product, 32) * of_block
    return found


_PARTIALS, _PAGES = "partial results", "page numbers"
_COPY, _OF_MATRIX, _OF_IMAGES = (Formula(moved, moved) for moved in ("n·s", "rows·cols·s", "batch·channels·pixels·s"))
_IN, _OUT = Formula("n·s", "0"), Formula("0", "n·s")
_CHAIN_OF_THREE, _CHAIN_OF_TWO = Formula("n·s", "n·s", "3·n"), Formula("n·s", "n·s", "2·n")
_FUSED_SUM = Formula("rows·cols·s", "rows·s", "3·rows·cols")
_IN_8_BITS = Formula("rows·cols·s", "rows·cols + 4·rows", "3·rows·cols", "loads·rows·cols·s")
_FROM_8_BITS = Formula("rows·cols + 4·rows", "rows·cols·s", "rows·cols")
_ATTENTION_FLOP = "4·batch·heads·n²·d"
_FLASH = Formula(
    *("3·batch·heads·n·d·s", "batch·heads·n·d·s", _ATTENTION_FLOP),
    "batch·heads·n·d·s + 2·passes·batch·heads·n·d·s",
)
_RESULT, _DECODE_FLOP = "batch·query_heads·d·s", "4·batch·tokens·query_heads·d"
_CACHE = f"2·batch·tokens·kv_heads·d·s + {_RESULT}"
_FP8_CACHE = f"2·batch·tokens·kv_heads·d + 8·batch·tokens·kv_heads + {_RESULT}"
_TOKENS = "2·batch·tokens·kv_heads·d"
# Each element of A is asked for once per column of tiles, each of B once per row of them.
_GEMM = Formula("m·k·s + k·n·s", "m·n·s", "2·m·n·k", "m·k·columns·s + k·n·rows·s")
_FUSED = Formula("k·n·18/32 + m·k·s", "m·n·s", "2·m·n·k", "k·n·passes·asked/32 + m·k·readings·s")
_SEPARATE = Formula(
    *("k·n·18/32 + m·k·s + k·n·s", "k·n·s + m·n·s", "2·m·n·k"), "k·n·asked/32 + m·k·readings·s + k·n·passes·s"
)

# By name, or by title where the versions of a name differ.
FORMULAS: dict[str, Formula] = {
    **dict.fromkeys(("read", "device_to_host", "peer_to_peer"), _IN),
    **dict.fromkeys(("write", "host_to_device"), _OUT),
    **dict.fromkeys(("copy", "strided_read", "strided_write", "misaligned", "device_to_device"), _COPY),
    "scale": Formula("n·s", "n·s", "n"),
    "add": Formula("2·n·s", "n·s", "n"),
    "triad": Formula("2·n·s", "n·s", "2·n"),
    "sum": Formula("n·s", "0", "n", besides=_PARTIALS),
    "dot": Formula("2·n·s", "0", "2·n", besides=_PARTIALS),
    "bias_relu_dropout-unfused": Formula("3·n·s", "3·n·s", "3·n"),
    **dict.fromkeys(("bias_relu_dropout-fused", "bias_relu_dropout-wide"), _CHAIN_OF_THREE),
    "cos_cos-unfused": Formula("2·n·s", "2·n·s", "2·n"),
    **dict.fromkeys(("cos_cos-fused", "cos_cos-wide"), _CHAIN_OF_TWO),
    "swiglu": Formula("2·n·s", "n·s", "5·n"),
    "intensity_fma": Formula("n·s", "n·s", "2·repeats·n"),
    "intensity_add": Formula("n·s", "n·s", "repeats·n"),
    "broadcast": Formula("s", "n·s", requested="n·s"),
    "gather": Formula("n·s + n·i", "n·s"),
    "embedding": Formula("rows·cols·s + 4·rows", "rows·cols·s"),
    "transpose": _OF_MATRIX,
    **dict.fromkeys(("nchw_to_nhwc", "nhwc_to_nchw"), _OF_IMAGES),
    "softmax": Formula("rows·cols·s", "rows·cols·s", "5·rows·cols", "loads·rows·cols·s"),
    "layer_norm": Formula(
        *("rows·cols·s + 2·cols·s", "rows·cols·s", "10·rows·cols"), "loads·rows·cols·s + 2·rows·cols·s"
    ),
    "rms_norm_residual": Formula(
        *("2·rows·cols·s + cols·s", "2·rows·cols·s", "5·rows·cols"), "2·loads·rows·cols·s + rows·cols·s"
    ),
    **dict.fromkeys(("logsumexp-fused", "logsumexp-registers"), _FUSED_SUM),
    "logsumexp-unfused": Formula("3·rows·cols·s + 2·rows·s", "rows·cols·s + 2·rows·s", "3·rows·cols"),
    "topk": Formula("rows·cols·s", "rows·k·s + 4·rows·k", "rows·cols", "loads·rows·cols·s"),
    "rope": Formula(
        *("tokens·heads·d·s + 4·tokens·d", "tokens·heads·d·s", "3·tokens·heads·d"),
        "tokens·heads·d·s + 4·loads·tokens·d",
    ),
    **dict.fromkeys(("quantize_int8", "quantize_fp8"), _IN_8_BITS),
    "quantize_mxfp8": Formula(*("32·rows·blocks·s", "33·rows·blocks", "96·rows·blocks"), "32·loads·rows·blocks·s"),
    **dict.fromkeys(("dequantize_int8", "dequantize_fp8"), _FROM_8_BITS),
    "gemm": _GEMM,
    "gemv": Formula("n·k·s + k·s", "n·s", "2·n·k", "2·n·k·s"),
    "gemm_int8": Formula(
        *("m·k + k·n + 4·m + 4·n", "m·n·s", "2·m·n·k"), "m·k·columns + k·n·rows + 4·m·columns + 4·n·rows"
    ),
    "attention-standard": Formula(
        *("3·batch·heads·n·d·s + 2·batch·heads·n²·s", "batch·heads·n·d·s + 2·batch·heads·n²·s", _ATTENTION_FLOP),
        "3·batch·heads·n·d·rows·s + 2·batch·heads·n²·s + batch·heads·n²·columns·s",
    ),
    **dict.fromkeys(("attention-flash", "attention-flash2"), _FLASH),
    "kv_append": Formula(f"{_TOKENS}·s", f"{_TOKENS}·s"),
    "kv_append_fp8": Formula(
        *(f"{_TOKENS}·s", f"{_TOKENS} + 8·batch·tokens·kv_heads", "6·batch·tokens·kv_heads·d"),
        f"loads·{_TOKENS}·s",
    ),
    "kv_decode-plain": Formula(*(_CACHE, _RESULT, _DECODE_FLOP), f"2·batch·tokens·query_heads·d·s + loads·{_RESULT}"),
    **dict.fromkeys(
        ("kv_decode-split", "kv_decode-grouped"), Formula(_CACHE, _RESULT, _DECODE_FLOP, besides=_PARTIALS)
    ),
    "kv_decode_fp8-plain": Formula(_FP8_CACHE, _RESULT, _DECODE_FLOP),
    "kv_decode_fp8-grouped": Formula(_FP8_CACHE, _RESULT, _DECODE_FLOP, besides=_PARTIALS),
    "kv_decode_paged-plain": Formula(_CACHE, _RESULT, _DECODE_FLOP, besides=_PAGES),
    "kv_decode_paged-grouped": Formula(_CACHE, _RESULT, _DECODE_FLOP, besides=f"{_PARTIALS} and {_PAGES}"),
    "q4_0_dequantize": Formula("n·18/32", "n·s", "n", "n·asked/32"),
    **dict.fromkeys((f"q4_0_{shape}-{v}" for shape in ("gemv", "gemm") for v in ("planar", "fused")), _FUSED),
    **dict.fromkeys(("q4_0_gemv-separate", "q4_0_gemm-separate"), _SEPARATE),
}


def formula_of(name: str, version: str) -> Formula:
    """Return the formula of one version of an operation. Raises KeyError for an operation that has none."""
    title = f"{name}-{version}"
    return FORMULAS[title] if title in FORMULAS else FORMULAS[name]


def gemm(m: int, n: int, k: int, dtype: Any, *, tile: int | tuple[int, int]) -> Traffic:
    """Model C (m×n) = A (m×k) · B (k×n): (mk + kn + mn)·s bytes, 2mnk FLOP.

    tile: rows and columns of C that one block computes together (one number: both). A tile of 1 is the naive kernel,
    which requests 2mnk·s bytes.
    """
    return _GEMM.at({"m": m, "n": n, "k": k}, dtype, tiles_of(m, n, tile))


def tiles_of(m: int, n: int, tile: int | tuple[int, int]) -> dict[str, int]:
    """Return how many rows and columns of tiles a product has."""
    tile_rows, tile_columns = (tile, tile) if isinstance(tile, int) else tile
    return {"rows": tiles(m, tile_rows), "columns": tiles(n, tile_columns)}


# The unit in which NVIDIA GPUs since Pascal fetch from L2 and DRAM (CUDA C++ Best Practices Guide, "Coalesced
# Access to Global Memory"), and the threads that issue one request together.
SECTOR_BYTES = 32
WARP_LANES = 32


def warp_sectors(dtype: Any, *, stride: int = 1, offset: int = 0) -> int:
    """Return the 32-byte sectors that one warp request touches when lane l accesses element offset + l·stride.

    stride, offset: elements, against an array that begins on a sector boundary. Coalesced float32: 4; with any odd
    offset: 5; stride 2: 8; stride ≥ 8: 32; stride 0 (broadcast): 1.
    """
    s = bytes_per_element(dtype)
    firsts = ((offset + lane * stride) * s for lane in range(WARP_LANES))
    return len({sector for at in firsts for sector in range(at // SECTOR_BYTES, (at + s - 1) // SECTOR_BYTES + 1)})
