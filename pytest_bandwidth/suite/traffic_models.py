"""Model each operation's bytes through device memory and its FLOP, as pure functions of its shape.

Conventions of every function here:

- s is the bytes per element of `dtype`: a name such as ``"float32"``, or anything with an ``itemsize``.
- "Moved" is the algorithmic minimum: for each launch every distinct byte read once plus every distinct byte written
  once, summed over the operation's launches. Caches may do worse, never better, unless they hold data from one launch
  to the next.
- "Requested" (`requested_read`, `requested_written`) is the sum of all loads and stores; it is set where a kernel of
  that kind requests a byte more than once.
- Sizes are whole numbers of elements, at least 0; anything else raises UsageError.

copy, scale, add and triad are STREAM's four (McCalpin, https://www.cs.virginia.edu/stream/ref.html). A launch that
reads and writes each element once is a `copy`, in any order: strided, misaligned, transposed. `warp_sectors` returns
its fetches. In a copy between memories, each end moves n·s bytes of its own: `read` there, `write` here. The peak of
copies to and from the host and of the peer copy is the link's, not the memory's.

A block of Q4_0, weights of four bits in blocks of 32 with one float16 scale, is 18 bytes: the scale, then 16 bytes of
nibbles. Byte j holds element j in its low and element j + 16 in its high nibble; value = (nibble − 8)·scale.
(llama.cpp, ggml-common.h, block_q4_0.)

Letters of attention: B batch, H heads (Hq of the queries, Hkv of keys and values), N positions, D elements of a head, S
tokens.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

from pytest_bandwidth.domain.errors import UsageError
from pytest_bandwidth.domain.traffic import Traffic, bytes_per_element, count, tiles


def _elementwise(n: int, dtype: Any, arrays_read: int, arrays_written: int, flop_per_element: int) -> Traffic:
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(arrays_read * n * s, arrays_written * n * s, flop_per_element * n)


def read(n: int, dtype: Any) -> Traffic:
    """Read n elements: n·s bytes read. The ceiling of a kernel that only reads."""
    return _elementwise(n, dtype, 1, 0, 0)


def write(n: int, dtype: Any) -> Traffic:
    """Write n elements: n·s bytes written. The ceiling of a kernel that only writes."""
    return _elementwise(n, dtype, 0, 1, 0)


def copy(n: int, dtype: Any) -> Traffic:
    """Model b = a: 2n·s bytes."""
    return _elementwise(n, dtype, 1, 1, 0)


def scale(n: int, dtype: Any) -> Traffic:
    """Model b = scalar·a: 2n·s bytes, n FLOP (STREAM scale, BabelStream mul)."""
    return _elementwise(n, dtype, 1, 1, 1)


def add(n: int, dtype: Any) -> Traffic:
    """Model c = a + b: 3n·s bytes, n FLOP."""
    return _elementwise(n, dtype, 2, 1, 1)


def triad(n: int, dtype: Any) -> Traffic:
    """Model a = b + scalar·c: 3n·s bytes, 2n FLOP."""
    return _elementwise(n, dtype, 2, 1, 2)


def reduce_sum(n: int, dtype: Any, *, partials: int = 0, partial_dtype: Any = "float32") -> Traffic:
    """Model Σ a: n·s bytes read, n FLOP. The one result is not counted, as in STREAM.

    partials: partial sums that the launch leaves in memory, of `partial_dtype` (one a block, say), where they count.
    """
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(n * s, count("partials", partials) * bytes_per_element(partial_dtype), n)


def dot(n: int, dtype: Any, *, partials: int = 0, partial_dtype: Any = "float32") -> Traffic:
    """Model Σ a·b: 2n·s bytes read, 2n FLOP. For `partials` see `reduce_sum`."""
    once = reduce_sum(n, dtype, partials=partials, partial_dtype=partial_dtype)
    return Traffic(2 * once.bytes_read, once.bytes_written, 2 * once.flop)


def pointwise_chain(n: int, operations: int, dtype: Any, *, fused: bool) -> Traffic:
    """Return a chain of element-wise operations on n elements, one FLOP an element each.

    Unfused, each operation is a launch that reads and writes every element: 2n·s·operations bytes. Fused, the values
    stay in registers between the first read and the last write: 2n·s bytes.
    """
    operations = count("operations", operations, least=1)
    once = _elementwise(n, dtype, 1, 1, operations)
    launches = 1 if fused else operations
    return Traffic(launches * once.bytes_read, launches * once.bytes_written, once.flop)


def swiglu(n: int, dtype: Any) -> Traffic:
    """Model gate ÷ (1 + exp(−gate))·up: 3n·s bytes, ~5 FLOP an element (negate, exp, add, divide, multiply)."""
    return _elementwise(n, dtype, 2, 1, 5)


def rope(tokens: int, heads: int, d: int, dtype: Any, *, angle_loads: int | None = None) -> Traffic:
    """Model pairs of each head turned by the token's angles: 2·tokens·heads·d·s + 4·tokens·d bytes, 3 FLOP an element.

    The second term is the cosines and sines of d/2 angles a token, float32. angle_loads: how often each of them is
    asked for, by default once for every head. Raises UsageError unless d is even.
    """
    tokens, heads, d, s = count("tokens", tokens), count("heads", heads), count("d", d), bytes_per_element(dtype)
    if d % 2:
        raise UsageError(f"d is {d}, expected an even number: elements are turned in pairs")
    n = tokens * heads * d
    angles = 4 * tokens * d if heads else 0
    requested = n * s + angles * (heads if angle_loads is None else count("angle_loads", angle_loads))
    return Traffic(n * s + angles, n * s, 3 * n, requested, n * s)


def intensity_sweep(n: int, repeats: int, dtype: Any, *, fma: bool = True) -> Traffic:
    """Model one read and one write of n elements with `repeats` FMAs (2 FLOP each) or adds (1 FLOP) between.

    2n·s bytes; 2·repeats·n FLOP with fma, repeats·n without.
    """
    return _elementwise(n, dtype, 1, 1, count("repeats", repeats) * (2 if fma else 1))


# The unit in which NVIDIA GPUs since Pascal fetch from L2 and DRAM (CUDA C++ Best Practices Guide, "Coalesced
# Access to Global Memory"), and the threads that issue one request together.
SECTOR_BYTES = 32
WARP_LANES = 32


def gather(n: int, dtype: Any, index_dtype: Any = "int32") -> Traffic:
    """Model out[i] = in[index[i]] of n different elements: 2n·s useful bytes plus n indices."""
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(n * s + n * bytes_per_element(index_dtype), n * s)


def embedding(rows: int, cols: int, dtype: Any) -> Traffic:
    """Model out[i] = table[index[i]] of different rows: 2·rows·cols·s useful bytes plus 4 a row."""
    rows, n, s = count("rows", rows), count("rows", rows) * count("cols", cols), bytes_per_element(dtype)
    return Traffic(n * s + 4 * rows, n * s)


def broadcast(n: int, dtype: Any) -> Traffic:
    """Model out[i] = in[0]: s bytes read, n·s written; n·s are asked for by the threads, one sector a warp."""
    n, s = count("n", n), bytes_per_element(dtype)
    return Traffic(min(n, 1) * s, n * s, 0, n * s, n * s)


def warp_sectors(dtype: Any, *, stride: int = 1, offset: int = 0) -> int:
    """Return the 32-byte sectors that one warp request touches when lane l accesses element offset + l·stride.

    stride, offset: elements, against an array that begins on a sector boundary. Coalesced float32: 4; with any odd
    offset: 5; stride 2: 8; stride ≥ 8: 32; stride 0 (broadcast): 1.
    """
    s, stride, offset = bytes_per_element(dtype), count("stride", stride), count("offset", offset)
    touched: set[int] = set()
    for lane in range(WARP_LANES):
        first_byte = (offset + lane * stride) * s
        touched.update(range(first_byte // SECTOR_BYTES, (first_byte + s - 1) // SECTOR_BYTES + 1))
    return len(touched)


def softmax(rows: int, cols: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model softmax of each row: 2·rows·cols·s bytes, ~5 FLOP an element (max, subtract, exp, add, divide).

    row_reads: times a kernel loads each element: 3 where maximum, sum and result are three passes, 2 with the online
    normaliser (Milakov and Gimelshein, https://arxiv.org/abs/1805.02867), 1 where the row stays on chip. It changes
    what is requested; a row is short enough that later passes find it in a cache.
    """
    n, s = count("rows", rows) * count("cols", cols), bytes_per_element(dtype)
    return Traffic(n * s, n * s, 5 * n, count("row_reads", row_reads, least=1) * n * s, n * s)


def layer_norm(rows: int, cols: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model (x − mean)·rsqrt(variance + ε)·γ + β of each row: 2·rows·cols·s + 2·cols·s bytes, ~10 FLOP an element.

    γ and β (cols elements each) are distinct bytes once, and requested once a row. For `row_reads` see `softmax`.
    Without rows nothing is read.
    """
    rows, cols, s = count("rows", rows), count("cols", cols), bytes_per_element(dtype)
    n = rows * cols
    parameters = 2 * cols * s if rows else 0
    requested = count("row_reads", row_reads, least=1) * n * s + rows * 2 * cols * s
    return Traffic(n * s + parameters, n * s, 10 * n, requested, n * s)


def rms_norm_residual(rows: int, cols: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model sum = x + residual, out = sum·rsqrt(mean of sum² + ε)·γ: 4·rows·cols·s + cols·s bytes, ~5 FLOP an element.

    γ is requested once a row. For `row_reads` see `softmax`. Without rows nothing is read.
    """
    rows, cols, s = count("rows", rows), count("cols", cols), bytes_per_element(dtype)
    n = rows * cols
    requested = count("row_reads", row_reads, least=1) * 2 * n * s + n * s
    return Traffic(2 * n * s + (cols * s if rows else 0), 2 * n * s, 5 * n, requested, 2 * n * s)


def quantize_rows(rows: int, cols: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model rows in codes of a byte with a float32 scale each: n·s + n + 4·rows bytes, 3n FLOP, n = rows·cols.

    The FLOP are maximum, multiplication and rounding. For `row_reads` see `softmax`.
    """
    rows, n, s = count("rows", rows), count("rows", rows) * count("cols", cols), bytes_per_element(dtype)
    written = n + 4 * rows
    return Traffic(n * s, written, 3 * n, count("row_reads", row_reads, least=1) * n * s, written)


MX_ELEMENTS = 32


def quantize_mxfp8(blocks: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model blocks of 32 in codes of a byte with a scale of a byte each: n·s + n + n/32 bytes, 3n FLOP, n = 32·blocks.

    For `row_reads` see `softmax`.
    """
    blocks = count("blocks", blocks)
    n, written = MX_ELEMENTS * blocks, (MX_ELEMENTS + 1) * blocks
    of_input = n * bytes_per_element(dtype)
    return Traffic(of_input, written, 3 * n, count("row_reads", row_reads, least=1) * of_input, written)


def dequantize_rows(rows: int, cols: int, dtype: Any) -> Traffic:
    """Model code·scale of such rows: n + 4·rows + n·s bytes, n FLOP."""
    rows, n = count("rows", rows), count("rows", rows) * count("cols", cols)
    return Traffic(n + 4 * rows, n * bytes_per_element(dtype), n)


def topk(rows: int, cols: int, k: int, dtype: Any, *, row_reads: int = 1) -> Traffic:
    """Model the k largest of each row and their columns (int32): n·s + rows·k·(s + 4) bytes, n FLOP, n = rows·cols.

    For `row_reads` see `softmax`.
    """
    rows, n, s = count("rows", rows), count("rows", rows) * count("cols", cols), bytes_per_element(dtype)
    written = rows * count("k", k) * (s + 4)
    return Traffic(n * s, written, n, count("row_reads", row_reads, least=1) * n * s, written)


def logsumexp(rows: int, cols: int, dtype: Any, *, fused: bool) -> Traffic:
    """Model ln Σ exp(x) of each row: ~3 FLOP an element (max, exp, add).

    Fused: n·s bytes, n = rows·cols, one read with the running maximum and sum in registers. Unfused: the maxima are
    written, exp(x − max) is written and read back to be summed, 4n·s + 3·rows·s bytes. Either way rows·s of results.
    """
    rows, cols, s = count("rows", rows), count("cols", cols), bytes_per_element(dtype)
    n, results = rows * cols, rows * s
    if fused:
        return Traffic(n * s, results, 3 * n)
    return Traffic(3 * n * s + 2 * results, n * s + 2 * results, 3 * n)


def gemm(m: int, n: int, k: int, dtype: Any, *, tile: int | tuple[int, int] | None = None) -> Traffic:
    """Model C (m×n) = A (m×k) · B (k×n): (mk + kn + mn)·s bytes, 2mnk FLOP.

    For square float32 matrices the arithmetic intensity is n/6 FLOP per byte.

    tile: rows and columns of C that one block computes together (one number: both). Each element of A is then asked
    for once per tile column, each of B once per tile row: (mk·⌈n/cols⌉ + kn·⌈m/rows⌉)·s bytes. A tile of 1 is the
    naive kernel, 2mnk·s. Without `tile` no requested count is given.
    """
    m, n, k, s = count("m", m), count("n", n), count("k", k), bytes_per_element(dtype)
    # Without columns no thread reads A, without rows no thread reads B.
    bytes_read = ((m * k if n else 0) + (k * n if m else 0)) * s
    written = m * n * s
    if tile is None:
        return Traffic(bytes_read, written, 2 * m * n * k)
    tile_rows, tile_cols = (tile, tile) if isinstance(tile, int) else tile
    column_tiles = tiles(n, count("tile columns", tile_cols, least=1))
    row_tiles = tiles(m, count("tile rows", tile_rows, least=1))
    requested = (m * k * column_tiles + k * n * row_tiles) * s
    return Traffic(bytes_read, written, 2 * m * n * k, requested, written)


def linear(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1) -> Traffic:
    """Model Y (m×n) = X (m×k) · Wᵀ, W stored n×k: the bytes and FLOP of `gemm`.

    rows_together: rows of X that one pass over a row of W serves; W is asked for ⌈m/rows_together⌉ times, X n times.
    """
    return gemm(m, n, k, dtype, tile=(count("rows_together", rows_together, least=1), 1))


def gemm_int8(m: int, n: int, k: int, dtype: Any, *, tile: int) -> Traffic:
    """Model Y (m×n) = X (m×k) · Wᵀ of int8, W stored n×k, times a float32 scale for each row of X and of W.

    (mk + nk + 4m + 4n + mn·s) bytes, 2mnk operations. A tile (as of `gemm`) asks for its scales once.
    """
    codes, scales = gemm(m, n, k, "int8", tile=tile), gemm(m, n, 1, "float32", tile=tile)
    written = m * n * bytes_per_element(dtype)
    requested = (codes.requested_read or 0) + (scales.requested_read or 0)
    return Traffic(codes.bytes_read + scales.bytes_read, written, codes.flop, requested, written)


BLOCK_ELEMENTS = 32
BLOCK_BYTES = 18
SCALE_BYTES = 2


def q4_0_bytes(n: int) -> int:
    """Return the bytes of n quantised weights: 18 a block of 32; a block begun is stored whole."""
    return tiles(count("n", n), BLOCK_ELEMENTS) * BLOCK_BYTES


def q4_0_dequantize(n: int, dtype: Any, *, scale_loads: int = 1) -> Traffic:
    """Model n weights to dtype: n·18/32 bytes read, n·s written, n FLOP.

    scale_loads: threads that share the unpacking of a block; each asks for its scale.
    """
    n = count("n", n)
    written = n * bytes_per_element(dtype)
    return Traffic(q4_0_bytes(n), written, n, _requested(n, scale_loads), written)


def q4_0_fused(
    m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1, scale_loads: int = 1, columns_together: int = 1
) -> Traffic:
    """Model Y (m×n) = X (m×k) · Wᵀ, W n×k in Q4_0 along k: weights kn·18/32 bytes, X and Y (mk + mn)·s; 2mnk FLOP.

    The FLOP are the multiplication's, so that fused and separate compare; unpacking is not counted. For
    `rows_together` see `linear`, for `scale_loads` `q4_0_dequantize`; columns_together: columns of Y that one reading
    of X serves. Raises UsageError unless k is a multiple of 32, as every row begins a block.
    """
    m, n, k, s = count("m", m), count("n", n), _whole_blocks(k), bytes_per_element(dtype)
    weights = q4_0_bytes(n * k) if m else 0
    activations = m * k * s if n else 0
    weight_passes = tiles(m, count("rows_together", rows_together, least=1))
    readings = tiles(n, count("columns_together", columns_together, least=1))
    requested = _requested(n * k, scale_loads) * weight_passes + m * k * readings * s
    return Traffic(weights + activations, m * n * s, 2 * m * n * k, requested, m * n * s)


def q4_0_separate(m: int, n: int, k: int, dtype: Any, *, rows_together: int = 1, scale_loads: int = 1) -> Traffic:
    """Return the same product in two launches, dequantise to memory and multiply: weights kn·18/32 + 2·kn·s bytes.

    FLOP, `rows_together`, `scale_loads` and errors as for `q4_0_fused`.
    """
    n, k = count("n", n), _whole_blocks(k)
    unpacked = q4_0_dequantize(n * k, dtype, scale_loads=scale_loads)
    multiplied = linear(m, n, k, dtype, rows_together=rows_together)
    return replace(unpacked, flop=0) + multiplied


def _requested(n: int, scale_loads: int) -> int:
    blocks = tiles(n, BLOCK_ELEMENTS)
    return blocks * (BLOCK_BYTES + SCALE_BYTES * (count("scale_loads", scale_loads, least=1) - 1))


def _whole_blocks(k: int) -> int:
    k = count("k", k)
    if k % BLOCK_ELEMENTS:
        raise UsageError(f"k is {k}, expected a multiple of {BLOCK_ELEMENTS}: every row of Q4_0 weights begins a block")
    return k


def attention_standard(
    batch: int, heads: int, n: int, d: int, dtype: Any, *, tile: int | None = None, row_reads: int = 1
) -> Traffic:
    """Model softmax(Q·Kᵀ)·V with the N×N scores in memory: 4·B·H·N·D·s + 4·B·H·N²·s bytes, 4·B·H·N²·D FLOP.

    Three launches: the scores S are written, read and rewritten by the softmax, and read once more to weigh V. The
    FLOP are the two products'; the softmax's ~5·B·H·N² are left out, as is usual. (FlashAttention, Dao et al.,
    https://arxiv.org/abs/2205.14135, section 2.2.)

    tile: as for `gemm`, for both products; row_reads: as for `softmax`. They change what is requested.
    """
    matrices, n, d = count("batch", batch) * count("heads", heads), count("n", n), count("d", d)
    scores = _repeat(gemm(n, n, d, dtype, tile=tile), matrices)
    weighted = _repeat(gemm(n, d, n, dtype, tile=tile), matrices)
    normalised = replace(softmax(matrices * n, n, dtype, row_reads=row_reads), flop=0)
    return scores + normalised + weighted


def attention_flash(batch: int, heads: int, n: int, d: int, dtype: Any, *, query_tile: int | None = None) -> Traffic:
    """Return the same result without N×N scores in memory: 4·B·H·N·D·s bytes, 4·B·H·N²·D FLOP.

    query_tile: queries that one block answers together; K and V are then asked for once per query tile,
    (2 + 2·⌈N/query_tile⌉)·B·H·N·D·s in all, most of it met by caches.
    """
    matrices, n, d = count("batch", batch) * count("heads", heads), count("n", n), count("d", d)
    tensor = matrices * n * d * bytes_per_element(dtype)
    flop = 4 * matrices * n * n * d
    if query_tile is None:
        return Traffic(3 * tensor, tensor, flop)
    passes = tiles(n, count("query_tile", query_tile, least=1))
    return Traffic(3 * tensor, tensor, flop, tensor + 2 * passes * tensor, tensor)


def kv_cache_append(batch: int, tokens: int, kv_heads: int, d: int, dtype: Any) -> Traffic:
    """Model `tokens` new keys and values copied into the cache: 4·B·S·Hkv·D·s bytes, half read, half written."""
    elements = count("batch", batch) * count("tokens", tokens) * count("kv_heads", kv_heads) * count("d", d)
    half = 2 * elements * bytes_per_element(dtype)
    return Traffic(half, half)


PAGE_TOKENS = 16


def page_numbers(batch: int, tokens: int) -> Traffic:
    """Return the page numbers' bytes for a cache in pages of 16 tokens, in addition to `kv_cache_read`: 4·B·⌈S/16⌉."""
    return Traffic(4 * count("batch", batch) * tiles(count("tokens", tokens), PAGE_TOKENS), 0)


def kv_cache_read(
    batch: int,
    tokens: int,
    query_heads: int,
    kv_heads: int,
    d: int,
    dtype: Any,
    *,
    query_loads: int | None = None,
    in_8_bits: bool = False,
) -> Traffic:
    """Model attention of one new token to `tokens` cached ones: 2·B·S·Hkv·D·s + 2·B·Hq·D·s bytes, 4·B·S·Hq·D FLOP.

    The first term is the keys and values, the second the query and its result.

    query_loads: how often a kernel that walks the cache once per query head asks for the query itself; then
    2·B·S·Hq·D·s bytes of the cache are requested. Raises UsageError unless query_heads is a multiple of kv_heads.
    in_8_bits: keys and values are codes of a byte, with a float32 scale for each token and head, 2·B·S·Hkv·(D + 4)
    bytes.
    """
    batch, tokens, d, s = count("batch", batch), count("tokens", tokens), count("d", d), bytes_per_element(dtype)
    query_heads, kv_heads = count("query_heads", query_heads, least=1), count("kv_heads", kv_heads, least=1)
    if query_heads % kv_heads:
        raise UsageError(f"query_heads is {query_heads}, expected a multiple of the {kv_heads} kv_heads")
    cache = 2 * batch * tokens * kv_heads * (d + 4 if in_8_bits else d * s)
    query = batch * query_heads * d * s
    flop = 4 * batch * tokens * query_heads * d
    if query_loads is None:
        return Traffic(cache + query, query, flop)
    requested = cache * (query_heads // kv_heads) + count("query_loads", query_loads, least=1) * query
    return Traffic(cache + query, query, flop, requested, query)


def _repeat(once: Traffic, times: int) -> Traffic:
    return Traffic(**{name: value and times * value for name, value in asdict(once).items()})
