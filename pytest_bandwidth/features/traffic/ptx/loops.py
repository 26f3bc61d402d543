"""Loop over lanes, compiled by Numba, for computations that need many passes in NumPy.

Arrays over lanes have shape (blocks, threads), threads padded to whole warps of 32. Arrays that do not differ between
blocks, or between threads, have one row or one column, and the caller broadcasts them.
`mask` has the lanes that take part. Places in memory are byte `offset`s; `shift` converts them to numbers of elements
or granules of 2^shift bytes.

Functions are compiled with exactly the required signatures, at the first call, and cached on disk.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from numba import njit, types

WARP = 32
_TUPLE: Any = types.Tuple  # Numba has few type hints
U8, I32, I64, U64, BOOL = types.uint8, types.int32, types.int64, types.uint64, types.boolean


# Planes over lanes; `given` is read-only, as NumPy's broadcasts are. `memory`, which users own, may be aligned only for
# their elements; `seen` is such memory, but read-only.
plane: Any = functools.partial(types.Array, ndim=2, layout="A")
given = functools.partial(plane, readonly=True)
memory = functools.partial(plane, aligned=False)
seen = functools.partial(memory, readonly=True)


def row(kind: Any) -> Any:
    return types.Array(kind, 1, "C")


def four(kind: Any) -> Any:
    return _TUPLE((kind, kind, kind, kind))


def compiled(*signatures: Any, by: Any = njit, **options: Any) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Compile a function with exactly these signatures at its first call, and cache it on disk if a folder is writable.

    by: Numba's decorator.
    """

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.cache
        def ready() -> Any:
            try:
                return by(list(signatures), cache=True, **options)(function)
            except RuntimeError as error:
                if "cannot cache" not in str(error):
                    raise
                return by(list(signatures), **options)(function)

        @functools.wraps(function)
        def call(*arguments: Any) -> Any:
            return ready()(*arguments)

        return call

    return wrap


loop = functools.partial(compiled, error_model="numpy")


# ---- addresses, bytes and flags --------------------------------------------------------------------------------------


@loop(four(U64)(given(U64), given(BOOL)))
def span(address: Any, mask: Any) -> Any:
    """Return the lowest and highest address of the lanes that take part, the OR of all, and the number of lanes."""
    low, high, together, lanes = np.uint64(0xFFFFFFFFFFFFFFFF), np.uint64(0), np.uint64(0), 0
    for b in range(address.shape[0]):
        for t in range(address.shape[1]):
            if mask[b, t]:
                value = address[b, t]
                low, high = min(low, value), max(high, value)
                together |= value
                lanes += 1
    return low, high, together, np.uint64(lanes)


_UNSIGNED = (types.uint8, types.uint16, types.uint32, types.uint64)


@loop(*(types.void(seen(k), I64, I64, given(I64), I64, given(BOOL), I64, plane(k)) for k in _UNSIGNED))
def gather(
    data: Any, block_step: Any, thread_step: Any, offset: Any, shift: Any, mask: Any, plus: Any, out: Any
) -> None:
    """Set out[b, t] = data[b·block_step + t·thread_step, (offset >> shift) + plus]; 0 where a lane takes no part."""
    for b in range(out.shape[0]):
        for t in range(out.shape[1]):
            # As two statements: in one, Numba would unify uint64 and the literal's int64 to float64.
            if mask[b, t]:
                out[b, t] = data[b * block_step + t * thread_step, (offset[b, t] >> shift) + plus]
            else:
                out[b, t] = 0


@loop(*(types.void(memory(k), I64, I64, given(I64), I64, given(BOOL), I64, given(k)) for k in _UNSIGNED))
def scatter(
    data: Any, block_step: Any, thread_step: Any, offset: Any, shift: Any, mask: Any, plus: Any, values: Any
) -> None:
    """Set data[…] = values; of several lanes that store to one place the last one wins."""
    for b in range(offset.shape[0]):
        for t in range(offset.shape[1]):
            if mask[b, t]:
                data[b * block_step + t * thread_step, (offset[b, t] >> shift) + plus] = values[b, t]


@loop(types.void(plane(U8), I64, I64, given(I64), I64, given(BOOL), I64, U8, U8, U8))
def mark(
    flags: Any,
    block_step: Any,
    thread_step: Any,
    offset: Any,
    shift: Any,
    mask: Any,
    count: Any,
    bits: Any,
    first_bits: Any,
    unless: Any,
) -> None:
    """Set `bits` in `count` flags from each lane's granule on, and `first_bits` where no bit of `unless` is set yet."""
    for b in range(offset.shape[0]):
        for t in range(offset.shape[1]):
            if mask[b, t]:
                row, first = b * block_step + t * thread_step, offset[b, t] >> shift
                for place in range(count):
                    if flags[row, first + place] & unless == 0:
                        flags[row, first + place] |= first_bits
                    flags[row, first + place] |= bits


@loop(I64(plane(U8), I64, I64, given(I64), I64, given(BOOL), I64, plane(BOOL)))
def find_unmarked(
    flags: Any, block_step: Any, thread_step: Any, offset: Any, shift: Any, mask: Any, count: Any, hit: Any
) -> int:
    """Count the lanes that touch a granule whose flag is not set, and set `hit` for them."""
    found = 0
    for b in range(offset.shape[0]):
        for t in range(offset.shape[1]):
            hit[b, t] = False
            if mask[b, t]:
                row, first = b * block_step + t * thread_step, offset[b, t] >> shift
                for place in range(count):
                    if flags[row, first + place] == 0:
                        hit[b, t] = True
                if hit[b, t]:
                    found += 1
    return found


@loop(row(I64)(row(U8)))
def histogram(values: Any) -> Any:
    """Count how often each of the values 1 to 255 occurs."""
    # Four counts for each value: neighbours are often equal, and an addition to a count waits for the previous one.
    counts = np.zeros((4, 256), np.int64)
    for place in range(values.shape[0]):
        counts[place & 3, values[place]] += 1
    counts[:, 0] = 0
    return counts.sum(axis=0)


# ---- atomics, one lane after the other -------------------------------------------------------------------------------

_ATOMIC_TYPES = (types.uint32, types.int32, types.uint64, types.int64, types.float32, types.float64)
AND, OR, XOR, EXCHANGE, ADD, INCREMENT, DECREMENT, MINIMUM, MAXIMUM, COMPARE_AND_SWAP = range(10)
ATOMIC_CODES = dict(zip(("and", "or", "xor", "exch", "add", "inc", "dec", "min", "max", "cas"), range(10), strict=True))


def _signature(kind: Any, *operands: Any) -> Any:
    return types.void(memory(kind), I64, I64, given(I64), given(BOOL), *operands, plane(kind))


@loop(*(_signature(kind, I64, given(kind), given(kind)) for kind in _ATOMIC_TYPES[:4]))
def atomic_integer(
    data: Any, block_step: Any, thread_step: Any, index: Any, mask: Any, code: Any, value: Any, other: Any, old: Any
) -> None:
    """Read, modify and write lane after lane, blocks and threads in order; `old` gets the previous values."""
    one, zero = data.dtype.type(1), data.dtype.type(0)  # literals would turn uint64 into float64
    for b in range(index.shape[0]):
        for t in range(index.shape[1]):
            if not mask[b, t]:
                continue
            row, place = b * block_step + t * thread_step, index[b, t]
            was, x = data[row, place], value[b, t]
            new = x
            if code == AND:
                new = was & x
            elif code == OR:
                new = was | x
            elif code == XOR:
                new = was ^ x
            elif code == ADD:
                new = was + x
            elif code == INCREMENT:
                new = was + one if was < x else zero
            elif code == DECREMENT:
                new = x if was == zero or was > x else was - one
            elif code == MINIMUM:
                new = min(was, x)
            elif code == MAXIMUM:
                new = max(was, x)
            elif code == COMPARE_AND_SWAP:
                new = other[b, t] if was == x else was
            old[b, t] = was
            data[row, place] = new


@loop(*(_signature(kind, given(kind)) for kind in _ATOMIC_TYPES[4:]))
def atomic_float(data: Any, block_step: Any, thread_step: Any, index: Any, mask: Any, value: Any, old: Any) -> None:
    """Add to floats, as `atomic_integer` does to integers; floats have no other atomic operation."""
    for b in range(index.shape[0]):
        for t in range(index.shape[1]):
            if mask[b, t]:
                row, place = b * block_step + t * thread_step, index[b, t]
                was = data[row, place]
                old[b, t] = was
                data[row, place] = was + value[b, t]


# ---- mbarriers -------------------------------------------------------------------------------------------------------

# The 64 bits of an mbarrier object, whose layout PTX does not define; a phase's token is such a word. From bit 0:
# pending arrivals, 20 bits; arrivals of a phase, 20; expected bytes (signed), 22; the phase's number, 2.
MOST_ARRIVALS = (1 << 20) - 1
EXPECTED_AT, BYTES_AT, PHASE_AT = 20, 40, 62
BYTES_BITS = PHASE_AT - BYTES_AT


def pending_arrivals(word: Any) -> Any:
    """Return the arrivals that a phase still lacks."""
    return (word & word.dtype.type(MOST_ARRIVALS)).astype(np.uint32)


def phase_of(word: Any) -> Any:
    return word >> word.dtype.type(PHASE_AT) & word.dtype.type(3)


def lacking_of(word: int) -> tuple[int, int]:
    """Return the arrivals and the bytes that a phase still lacks."""
    half = 1 << BYTES_BITS - 1
    return word & MOST_ARRIVALS, ((word >> BYTES_AT) + half) % (2 * half) - half


@loop(types.void(memory(I64), I64, I64, given(BOOL), given(I64), given(I64), BOOL, plane(I64), plane(BOOL)))
def arrive(
    data: Any, block_step: Any, place: Any, mask: Any, arrivals: Any, expected: Any, drops: Any, old: Any, over: Any
) -> None:
    """Update the mbarrier at one place of each block, lane after lane; `over` flags lanes that arrive once too often.

    A phase that lacks neither arrivals nor bytes ends, and the next begins.
    """
    half = 1 << (BYTES_BITS - 1)
    for b in range(mask.shape[0]):
        for t in range(mask.shape[1]):
            if not mask[b, t]:
                continue
            word = data[b * block_step, place]
            old[b, t] = word
            pending, of_phase = word & MOST_ARRIVALS, word >> EXPECTED_AT & MOST_ARRIVALS
            lacking = ((word >> BYTES_AT) + half) % (2 * half) - half + expected[b, t]
            phase = word >> PHASE_AT & 3
            over[b, t] = arrivals[b, t] > pending
            pending = max(0, pending - arrivals[b, t])
            if drops:
                of_phase = max(0, of_phase - arrivals[b, t])
            if pending == 0 and lacking == 0:
                pending, phase = of_phase, (phase + 1) & 3
            data[b * block_step, place] = (
                pending | of_phase << EXPECTED_AT | (lacking % (2 * half)) << BYTES_AT | phase << PHASE_AT
            )


# ---- sectors and patterns of global memory, passes over the banks of shared memory -----------------------------------

# Indexes into the vector that `count_sectors` fills.
REQUESTS, SECTORS, IDEAL_SECTORS, LANES = 0, 1, 2, 3
COALESCED, MISALIGNED, STRIDED, RANDOM, BROADCAST = 4, 5, 6, 7, 8
STRIDE, STRIDE_VOTES = 9, 10
BYTES = 11
COUNTS = 12


@loop(types.void(given(I64), given(BOOL), I64, I64, row(I64)))
def count_sectors(offset: Any, mask: Any, width: Any, repeat: Any, counts: Any) -> None:
    """Add up, over every warp that takes part, its request's sectors and its access pattern.

    offset: byte offset from a 32-byte boundary. width: bytes per lane. repeat: how many blocks each row represents.
    A sector is 32 bytes of memory, aligned; the ideal number is that of the distinct bytes asked for, packed.
    """
    lanes = np.empty(WARP, np.int64)
    for b in range(offset.shape[0]):
        for first_lane in range(0, offset.shape[1], WARP):
            n = 0
            for t in range(first_lane, first_lane + WARP):
                if mask[b, t]:
                    lanes[n] = offset[b, t]
                    n += 1
            if n == 0:
                continue
            unit, same, rising = True, True, True
            for i in range(1, n):
                delta = lanes[i] - lanes[i - 1]
                unit &= delta == width
                same &= delta == 0
                rising &= delta >= 0
            # The most common step between neighbouring lanes (Boyer and Moore's majority vote), before sorting.
            step, votes = 0, 0
            if not unit and not same:
                for i in range(1, n):
                    delta = lanes[i] - lanes[i - 1]
                    if delta != 0:
                        if votes == 0:
                            step, votes = delta, 1
                        elif delta == step:
                            votes += 1
                        else:
                            votes -= 1
                agreeing, moving = 0, 0
                for i in range(1, n):
                    delta = lanes[i] - lanes[i - 1]
                    moving += delta != 0
                    agreeing += delta == step
                if agreeing * 4 < moving * 3:
                    step = 0
            if not rising:
                for i in range(1, n):
                    value, j = lanes[i], i
                    while j > 0 and lanes[j - 1] > value:
                        lanes[j] = lanes[j - 1]
                        j -= 1
                    lanes[j] = value
            sectors, distinct, last_sector, last_byte = 0, 0, np.int64(-1), lanes[0]
            for i in range(n):
                first, last = lanes[i] >> 5, (lanes[i] + width - 1) >> 5
                if i == 0:
                    last_sector = first - 1
                sectors += max(0, last - max(first - 1, last_sector))
                last_sector = max(last_sector, last)
                end = lanes[i] + width
                distinct += max(0, end - max(lanes[i], last_byte))
                last_byte = max(last_byte, end)
            ideal = (distinct + 31) >> 5
            if same and n > 1:
                kind = BROADCAST
            elif sectors == ideal:
                kind = COALESCED
            elif unit or step == width:
                kind = MISALIGNED
            elif step != 0:
                kind = STRIDED
                if counts[STRIDE_VOTES] == 0:
                    counts[STRIDE], counts[STRIDE_VOTES] = step, 1
                elif counts[STRIDE] == step:
                    counts[STRIDE_VOTES] += 1
                else:
                    counts[STRIDE_VOTES] -= 1
            else:
                kind = RANDOM
            counts[kind] += repeat
            counts[REQUESTS] += repeat
            counts[SECTORS] += sectors * repeat
            counts[IDEAL_SECTORS] += ideal * repeat
            counts[LANES] += n * repeat
            counts[BYTES] += n * width * repeat


@loop(four(I64)(given(I64), given(BOOL), I64, I64))
def count_bank_passes(offset: Any, mask: Any, width: Any, repeat: Any) -> Any:
    """Count requests, passes over the 32 four-byte banks of shared memory, passes without any conflict, and lanes.

    A bank serves one 4-byte word a pass, to any number of lanes. 8-byte accesses go by half warps, 16-byte ones by
    quarters (CUDA C++ Programming Guide, compute capability 5.x and later).
    """
    requests, passes, least, lanes = 0, 0, 0, 0
    group = WARP if width <= 4 else WARP * 4 // width
    words = np.empty(WARP * 4, np.int64)
    depth = np.zeros(WARP, np.int64)
    for b in range(offset.shape[0]):
        for first_warp_lane in range(0, offset.shape[1], WARP):
            active = False
            for first_lane in range(first_warp_lane, first_warp_lane + WARP, group):
                n = 0
                for t in range(first_lane, first_lane + group):
                    if mask[b, t]:
                        lanes += repeat
                        for word in range(offset[b, t] >> 2, (offset[b, t] + width + 3) >> 2):
                            known = False
                            for i in range(n - 1, -1, -1):
                                if words[i] == word:
                                    known = True
                                    break
                            if not known:
                                words[n] = word
                                n += 1
                if n == 0:
                    continue
                active = True
                depth[:] = 0
                for i in range(n):
                    depth[words[i] & 31] += 1
                passes += depth.max() * repeat
                least += repeat
            requests += repeat * active
    return requests, passes, least, lanes


# ---- shadow memory to find unordered accesses ------------------------------------------------------------------------

# The code of several readers in a shadow: −(number of the warp's first lane + 1 + one of these).
ONE_WARP, SEVERAL_WARPS, SEVERAL_BLOCKS = 0, 1, 2


def _find_races_of(when: Any) -> Any:
    who, time = types.Array(I32, 2, "C"), types.Array(when, 2, "C")
    places = (given(I64), I64, given(BOOL))
    return I64(who, who, time, time, I64, *places, I64, BOOL, I64, *[given(I64)] * 3, *[I64] * 3, plane(I64))


@loop(
    I64(
        *[types.Array(kind, dimensions, "C") for kind, dimensions in ((I32, 2), (I64, 2), (I32, 3), (I32, 2))],
        *(given(I64), I64, given(BOOL), I64, BOOL, I64, types.Array(I32, 3, "C"), types.Array(I32, 2, "C"), plane(I64)),
    )
)
def find_unordered(
    writers: Any,
    written: Any,
    reads: Any,
    read_at: Any,
    offset: Any,
    shift: Any,
    mask: Any,
    count: Any,
    stores: Any,
    site: Any,
    known: Any,
    time: Any,
    hit: Any,
) -> int:
    """Find races like `find_races`, by vector clocks, in shared memory where mbarriers order threads as well.

    Per block and place: `writers` is the last writer's lane + 1, `written` its warp's time from bit 14 on and its site;
    `reads` per warp the time + 1 from bit 6 on, and the lane in the warp, or 32 for several; `read_at` the last site.
    known[b, t, w]: up to this time of warp w all its accesses come before the current access of lane t. time: of warps.
    """
    found = 0
    for b in range(offset.shape[0]):
        for t in range(offset.shape[1]):
            if not mask[b, t]:
                continue
            conflict, warp, lane, start = np.int64(0), t >> 5, t & 31, offset[b, t] >> shift
            for g in range(start, start + count):
                writer = np.int64(writers[b, g])
                if writer != 0 and writer != t + 1 and known[b, t, (writer - 1) >> 5] < written[b, g] >> 14:
                    conflict = ((written[b, g] & 0x3FFF) << 32) | writer
                if stores:
                    for other in range(reads.shape[2]):
                        read = np.int64(reads[b, g, other])
                        if read == 0:
                            continue
                        reads[b, g, other] = 0
                        if (read >> 6) - 1 > known[b, t, other] and (other != warp or read & 63 != lane):
                            who = (other << 5) + (read & 63) + 1 if read & 63 < 32 else -1 - (other << 5)
                            conflict = (np.int64(read_at[b, g]) << 32) | (who & 0xFFFFFFFF)
                    writers[b, g] = t + 1
                    written[b, g] = np.int64(time[b, warp]) << 14 | site
                    continue
                read, code = np.int64(reads[b, g, warp]), lane
                if read != 0 and read & 63 != lane and (read >> 6) - 1 > known[b, t, warp]:
                    code = 32
                reads[b, g, warp] = (np.int64(time[b, warp]) + 1) << 6 | code
                read_at[b, g] = site
            if conflict != 0:
                hit[b, t] = conflict
                found += 1
    return found


@loop(_find_races_of(I32), _find_races_of(I64))
def find_races(
    writers: Any,
    readers: Any,
    written: Any,
    read: Any,
    row_step: Any,
    offset: Any,
    shift: Any,
    mask: Any,
    count: Any,
    stores: Any,
    site: Any,
    first: Any,
    epoch: Any,
    warp_epoch: Any,
    epoch_at: Any,
    warp_at: Any,
    most: Any,
    hit: Any,
) -> int:
    """Update the shadow of shared or global memory and count the lanes whose access is unordered.

    Per place, `writers` and `readers` hold the last lane's number + 1, from `first` of its block on; or, for several
    readers, a code. `written` and `read` hold the time: the site, the warp epoch from bit `warp_at`, the epoch from bit
    `epoch_at`; they are empty until the first barrier. Accesses of two blocks conflict if one of them writes. Two
    of one block conflict if also no block barrier came between, and, for lanes of one warp, no warp barrier either.
    Epochs stop at the largest that fits (`most`); from then on no two accesses conflict.
    `hit`, all 0 before, gets the code of the conflicting access in its low 32 bits, and its time above.
    """
    found = 0
    most_of_warps = (1 << (epoch_at - warp_at)) - 1
    timed = written.shape[1] > 0
    for b in range(offset.shape[0]):
        row, low, now = b * row_step, first[b, 0], min(epoch[b, 0], most)
        for t in range(offset.shape[1]):
            if not mask[b, t]:
                continue
            own, conflict, start = low + t + 1, 0, offset[b, t] >> shift
            if count == 1:  # most places have one thread
                writer, reader = np.int64(writers[row, start]), np.int64(readers[row, start])
                if writer == 0 and reader == -1 - SEVERAL_BLOCKS and not stores:
                    continue
                if (writer == 0 or writer == own) and (reader == 0 or reader == own):
                    if stores:
                        writers[row, start] = own
                        if reader != 0:
                            readers[row, start] = 0
                    elif reader == 0:
                        readers[row, start] = own
                    if timed:
                        when = (now << epoch_at) | (min(warp_epoch[b, t >> 5], most_of_warps) << warp_at) | site
                        if stores:
                            written[row, start] = when
                        else:
                            read[row, start] = when
                    continue
            fresh = count > 1 and not timed
            for g in range(start, start + count):
                fresh &= (writers[row, g] | readers[row, g]) == 0
            if fresh:
                for g in range(start, start + count):
                    if stores:
                        writers[row, g] = own
                    else:
                        readers[row, g] = own
                continue
            warp_now = min(warp_epoch[b, t >> 5], most_of_warps)
            when, warp = (now << epoch_at) | (warp_now << warp_at) | site, (own - 1) >> 5
            for g in range(start, start + count):
                writer, reader = np.int64(writers[row, g]), np.int64(readers[row, g])
                for of_reader in range(2 if stores else 1):
                    who = reader if of_reader else writer
                    if who == 0 or who == own:
                        continue
                    lane = who - 1 if who > 0 else -who - 1
                    then = np.int64(0)
                    if timed:
                        then = np.int64(read[row, g] if of_reader else written[row, g])
                    warp_then = then >> warp_at & most_of_warps
                    if lane < low or lane >= low + offset.shape[1] or (who < 0 and lane & 31 == SEVERAL_BLOCKS):
                        unordered = True
                    elif then >> epoch_at != now or now == most:
                        unordered = False
                    elif lane >> 5 != warp or (who < 0 and lane & 31 == SEVERAL_WARPS):
                        unordered = True
                    else:
                        unordered = warp_then == warp_now and warp_now != most_of_warps
                    if unordered:
                        conflict = (then << 32) | (who & 0xFFFFFFFF)
                if stores:
                    writers[row, g] = own
                    if timed:
                        written[row, g] = when
                    if reader != 0:
                        readers[row, g] = 0  # accesses ordered after this write are also after the readers
                    continue
                new = own
                if reader != 0 and reader != own:
                    lane = reader - 1 if reader > 0 else -reader - 1
                    then = np.int64(read[row, g]) if timed else 0
                    if lane < low or lane >= low + offset.shape[1] or (reader < 0 and lane & 31 == SEVERAL_BLOCKS):
                        new = -1 - SEVERAL_BLOCKS
                    elif then >> epoch_at != now:
                        new = own
                    elif lane >> 5 != warp or (reader < 0 and lane & 31 == SEVERAL_WARPS):
                        new = -1 - low - SEVERAL_WARPS
                    elif then >> warp_at & most_of_warps == warp_now:
                        new = -1 - (warp << 5)
                readers[row, g] = new
                if timed:
                    read[row, g] = when
            if conflict != 0:
                hit[b, t] = conflict
                found += 1
    return found
