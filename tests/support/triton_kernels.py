"""Kernels in the shape of Triton's tutorials, for tests with and without Triton."""

import triton
import triton.language as tl


@triton.jit
def add(x, y, out, n, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    inside = at < n
    total = tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, total, mask=inside)


@triton.jit
def softmax(out, x, stride, columns, block: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, block)
    values = tl.load(x + row * stride + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, axis=0))
    tl.store(out + row * stride + at, powers / tl.sum(powers, axis=0), mask=at < columns)


@triton.jit
def dropout(out, x, n, p, seed, block: tl.constexpr):
    at = tl.program_id(0) * block + tl.arange(0, block)
    values = tl.load(x + at, mask=at < n)
    kept = tl.rand(seed, at) > p
    tl.store(out + at, tl.where(kept, values / (1 - p), 0.0), mask=at < n)


@triton.jit
def layer_norm(out, x, weight, bias, mean_out, rstd_out, stride, columns, eps, block: tl.constexpr):
    row = tl.program_id(0)
    x += row * stride
    out += row * stride
    total = tl.zeros([block], dtype=tl.float32)
    for begin in range(0, columns, block):
        at = begin + tl.arange(0, block)
        total += tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
    mean = tl.sum(total, axis=0) / columns
    squares = tl.zeros([block], dtype=tl.float32)
    for begin in range(0, columns, block):
        at = begin + tl.arange(0, block)
        values = tl.load(x + at, mask=at < columns, other=0.0).to(tl.float32)
        difference = tl.where(at < columns, values - mean, 0.0)
        squares += difference * difference
    rstd = 1 / tl.sqrt(tl.sum(squares, axis=0) / columns + eps)
    tl.store(mean_out + row, mean)
    tl.store(rstd_out + row, rstd)
    for begin in range(0, columns, block):
        at = begin + tl.arange(0, block)
        inside = at < columns
        values = tl.load(x + at, mask=inside, other=0.0).to(tl.float32)
        scaled = (values - mean) * rstd * tl.load(weight + at, mask=inside) + tl.load(bias + at, mask=inside)
        tl.store(out + at, scaled, mask=inside)


@triton.jit
def matmul(
    a,
    b,
    c,
    m,
    n,
    k,
    rows_of_tile: tl.constexpr,
    columns_of_tile: tl.constexpr,
    step: tl.constexpr,
    together: tl.constexpr,
):
    tile = tl.program_id(0)
    rows, columns = tl.cdiv(m, rows_of_tile), tl.cdiv(n, columns_of_tile)
    group = tile // (together * columns)
    size = min(rows - group * together, together)
    row = group * together + (tile % (together * columns)) % size
    column = (tile % (together * columns)) // size
    at_m = (row * rows_of_tile + tl.arange(0, rows_of_tile)) % m
    at_n = (column * columns_of_tile + tl.arange(0, columns_of_tile)) % n
    at_k = tl.arange(0, step)
    total = tl.zeros((rows_of_tile, columns_of_tile), dtype=tl.float32)
    for begin in range(tl.cdiv(k, step)):
        left = k - begin * step
        x = tl.load(a + at_m[:, None] * k + (begin * step + at_k)[None, :], mask=at_k[None, :] < left, other=0.0)
        y = tl.load(b + (begin * step + at_k)[:, None] * n + at_n[None, :], mask=at_k[:, None] < left, other=0.0)
        total = tl.dot(x, y, total)
    at_m = row * rows_of_tile + tl.arange(0, rows_of_tile)
    at_n = column * columns_of_tile + tl.arange(0, columns_of_tile)
    inside = (at_m[:, None] < m) & (at_n[None, :] < n)
    tl.store(c + at_m[:, None] * n + at_n[None, :], total.to(tl.float16), mask=inside)


@triton.jit
def attention(
    q, k, v, out, scale, tokens, width: tl.constexpr, rows_of_tile: tl.constexpr, columns_of_tile: tl.constexpr
):
    head = tl.program_id(1) * tokens * width
    at_m = tl.program_id(0) * rows_of_tile + tl.arange(0, rows_of_tile)
    at_d = tl.arange(0, width)
    query = tl.load(q + head + at_m[:, None] * width + at_d[None, :])
    highest = tl.full([rows_of_tile], -float("inf"), tl.float32)
    denominator = tl.zeros([rows_of_tile], tl.float32)
    total = tl.zeros([rows_of_tile, width], tl.float32)
    for begin in range(0, tokens, columns_of_tile):
        at_n = begin + tl.arange(0, columns_of_tile)
        keys = tl.load(k + head + at_n[None, :] * width + at_d[:, None])
        scores = tl.dot(query, keys) * scale
        new = tl.maximum(highest, tl.max(scores, 1))
        powers = tl.exp(scores - new[:, None])
        factor = tl.exp(highest - new)
        denominator = denominator * factor + tl.sum(powers, 1)
        values = tl.load(v + head + at_n[:, None] * width + at_d[None, :])
        total = tl.dot(powers.to(values.dtype), values, total * factor[:, None])
        highest = new
    tl.store(out + head + at_m[:, None] * width + at_d[None, :], (total / denominator[:, None]).to(tl.float16))


@triton.jit
def layer_norm_backward(
    dx, dy, sums_w, sums_b, x, w, mean, rstd, lock, columns, groups: tl.constexpr, block: tl.constexpr
):
    """Add each row's share of the gradients to one of `groups` sums, under a lock."""
    row = tl.program_id(0)
    at = tl.arange(0, block)
    inside = at < columns
    given = tl.load(x + row * columns + at, mask=inside, other=0)
    slope = tl.load(dy + row * columns + at, mask=inside, other=0)
    scale = tl.load(rstd + row)
    hat = tl.where(inside, (given - tl.load(mean + row)) * scale, 0.0)
    weighted = tl.load(w + at, mask=inside, other=0) * slope
    c1, c2 = tl.sum(hat * weighted, axis=0) / columns, tl.sum(weighted, axis=0) / columns
    tl.store(dx + row * columns + at, (weighted - (hat * c1 + c2)) * scale, mask=inside)
    group = row % groups
    count = lock + groups + group
    lock += group
    while tl.atomic_cas(lock, 0, 1) == 1:
        pass
    share_w, share_b = slope * hat, slope
    if tl.load(count) == 0:
        tl.atomic_xchg(count, 1)
    else:
        share_w += tl.load(sums_w + group * columns + at, mask=inside)
        share_b += tl.load(sums_b + group * columns + at, mask=inside)
    tl.store(sums_w + group * columns + at, share_w, mask=inside)
    tl.store(sums_b + group * columns + at, share_b, mask=inside)
    tl.debug_barrier()
    tl.atomic_xchg(lock, 0)


@triton.jit
def copy(x, block: tl.constexpr, out, n):
    at = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(out + at, tl.load(x + at, mask=at < n), mask=at < n)


@triton.jit
def layer_norm_sums(sums_w, sums_b, dw, db, groups, columns, rows_of_tile: tl.constexpr, columns_of_tile: tl.constexpr):
    """Add what `layer_norm_backward` left of each group."""
    at_n = tl.program_id(0) * columns_of_tile + tl.arange(0, columns_of_tile)
    total_w = tl.zeros((rows_of_tile, columns_of_tile), tl.float32)
    total_b = tl.zeros((rows_of_tile, columns_of_tile), tl.float32)
    for begin in range(0, groups, rows_of_tile):
        at_m = begin + tl.arange(0, rows_of_tile)
        inside = (at_m[:, None] < groups) & (at_n[None, :] < columns)
        at = at_m[:, None] * columns + at_n[None, :]
        total_w += tl.load(sums_w + at, mask=inside, other=0.0)
        total_b += tl.load(sums_b + at, mask=inside, other=0.0)
    tl.store(dw + at_n, tl.sum(total_w, axis=0), mask=at_n < columns)
    tl.store(db + at_n, tl.sum(total_b, axis=0), mask=at_n < columns)


@triton.jit
def grouped_matmul(a, b, c, problems, count, programs: tl.constexpr, tile: tl.constexpr):
    """Take every `programs`-th tile of several products, whose m, n, k and places in a, b, c are in `problems`.

    Triton's tutorial has addresses there. The traffic device gives arrays addresses that no test knows before.
    """
    taken = tl.program_id(0)
    before = 0
    for number in range(count):
        problem = problems + number * 6
        m, n, k = tl.load(problem), tl.load(problem + 1), tl.load(problem + 2)
        columns = tl.cdiv(n, tile)
        after = before + tl.cdiv(m, tile) * columns
        while taken >= before and taken < after:
            at_m = (taken - before) // columns * tile + tl.arange(0, tile)
            at_n = (taken - before) % columns * tile + tl.arange(0, tile)
            at_k = tl.arange(0, tile)
            x = a + tl.load(problem + 3) + at_m[:, None] * k + at_k[None, :]
            y = b + tl.load(problem + 4) + at_k[:, None] * n + at_n[None, :]
            z = c + tl.load(problem + 5) + at_m[:, None] * n + at_n[None, :]
            total = tl.zeros((tile, tile), tl.float32)
            for _ in range(tl.cdiv(k, tile)):
                total = tl.dot(tl.load(tl.multiple_of(x, [16, 16])), tl.load(tl.multiple_of(y, [16, 16])), total)
                x += tile
                y += tile * n
            tl.store(tl.multiple_of(z, [16, 16]), total.to(tl.float16))
            taken += programs
        before = after


@triton.jit
def copy_from_table(table, out, block: tl.constexpr):
    at = tl.arange(0, block)
    x = tl.load(table).to(tl.pointer_type(tl.float32))
    tl.store(out + at, tl.load(x + at))


@triton.jit
def sum_of_squares(out, x, block: tl.constexpr):
    values = tl.load(x + tl.program_id(0) * block + tl.arange(0, block))
    tl.store(out + tl.program_id(0), tl.sum(values * values))
