"""Compute the opcodes of tensor cores: the elements of a matrix are distributed over the registers of a warp.

Element places are those of the PTX ISA, "Matrix fragments for mma" and "ldmatrix". In an array of shape (…, 32) the
last axis numbers a warp's lanes: `group` = lane ÷ 4 is a row, and the four lanes of a group hold a row's columns.
"""

from __future__ import annotations

import re

import numpy as np

from pytest_bandwidth.features.traffic.ptx.lanes import Array
from pytest_bandwidth.features.traffic.ptx.opcodes import halves
from pytest_bandwidth.features.traffic.ptx.opcodes.conversions import fp8_values

COLUMNS, IN_GROUP = 8, 4
BITS = {"f16": 16, "bf16": 16, "tf32": 32, "s8": 8, "u8": 8, "e4m3": 8, "e5m2": 8}
# The depths that exist, by the bits of an element.
DEPTHS = {32: (4, 8), 16: (8, 16), 8: (16, 32)}
WHOLE = ("s8", "u8")


def sizes(shape: str) -> tuple[int, int, int]:
    """Return rows, columns and depth (products per element): 16, 8, 16 for ``m16n8k16``."""
    rows, columns, depth = (int(part) for part in re.split("[mnk]", shape)[1:])
    return rows, columns, depth


def exists(depth: int, left: str, right: str, result: str, accumulated: str) -> bool:
    """Return whether the ISA has a product of these types."""
    alike = left == right or {left, right} <= set(WHOLE) or {left, right} <= {"e4m3", "e5m2"}
    results = ("s32",) if left in WHOLE else ("f32", "f16") if left == "f16" else ("f32",)
    return alike and depth in DEPTHS[BITS[left]] and result == accumulated and result in results


def register_type(kind: str) -> str:
    """Return the PTX type of registers that hold elements of a result."""
    return kind if kind in ("f32", "s32") else "b32"


def product(depth: int, left: str, right: str, result: str, _active: Array, *words: Array) -> tuple[Array, ...]:
    """Multiply and add: D = A·B + C, A of 16 rows, B of 8 columns, with the types of A, of B, and of C and D.

    words: registers of A, then B, then C, each (…, 32).
    """
    blocks = depth * BITS[left] // 128
    a, b, c = words[: 2 * blocks], words[2 * blocks : 3 * blocks], words[3 * blocks :]
    columns = np.concatenate([_rows(word, right) for word in b], axis=-1)
    return added(eights(a, left, 2), columns, c, result)


def product_of_eight_rows(
    depth: int, left: str, right: str, result: str, active: Array, a: Array, b: Array, *c: Array
) -> tuple[Array, ...]:
    """Multiply and add 8 rows of A, with a depth of 16: the first half of the rows of `product`."""
    none = np.zeros_like(a)
    return product(depth, left, right, result, active, a, none, b, *c, none, none)[:2]


def eights(words: tuple[Array, ...], kind: str, count: int) -> Array:
    """Return a matrix of `count` times eight rows, (…, rows, depth); its registers go along the rows first."""
    parts = [
        np.concatenate([_rows(w, kind) for w in words[n : n + count]], axis=-2) for n in range(0, len(words), count)
    ]
    return np.concatenate(parts, axis=-1)


def _rows(words: Array, kind: str) -> Array:
    """Return the eight rows of elements that one register of each lane holds: (…, 8, columns)."""
    return elements(words[..., None], kind).reshape(*words.shape[:-1], COLUMNS, -1)


def elements(words: Array, kind: str) -> Array:
    """Return the numbers in words, along the last axis, as floats or integers that represent them exactly."""
    bits = np.ascontiguousarray(words)
    if kind == "tf32":  # its lowest 13 bits are ignored
        return (bits & np.uint32(0xFFFFE000)).view(np.float32)
    if kind == "f16":
        return bits.view(np.float16)
    if kind == "bf16":
        return halves.widen_bf16(bits.view(np.uint16))
    return bits.view({"s8": np.int8, "u8": np.uint8}[kind]) if kind in WHOLE else fp8_values(kind)[bits.view(np.uint8)]


def added(a: Array, b: Array, c: tuple[Array, ...], result: str) -> tuple[Array, ...]:
    """Return the registers of A·Bᵀ + C. a: (…, rows, depth), b: (…, columns, depth); c: (…, 32) each, of 16 rows and 8
    columns, one block of columns after the other. result: ``saturated`` for s32 that does not wrap.
    """
    whole_numbers = result in ("s32", "saturated")
    wide = np.int64 if whole_numbers else np.float64
    sums = a.astype(wide) @ np.swapaxes(b, -1, -2).astype(wide)
    rows, columns = sums.shape[-2:]
    # The new axes: the block of 8 columns, the half of 16 rows, the pair's element; then warps, groups, lanes.
    whole = sums.reshape(*sums.shape[:-2], rows // 16, 2, COLUMNS, columns // COLUMNS, IN_GROUP, 2)
    whole = np.moveaxis(whole, (-3, -5, -1), (0, 1, 2))
    lanes = whole.reshape(*whole.shape[:3], *sums.shape[:-2], rows // 16, 32)
    registers: list[Array] = []
    for block in range(columns // COLUMNS):
        for half in (0, 1):
            if result == "f16":
                place = 2 * block + half
                pair = np.moveaxis(lanes[block, half], 0, -1)
                held = elements(c[place][..., None], "f16").reshape(pair.shape)
                registers.append(halves.pack((pair + held).astype(np.float16)).reshape(c[place].shape))
                continue
            for element in (0, 1):
                word = c[4 * block + 2 * half + element]
                total = lanes[block, half, element].reshape(word.shape) + word
                if result == "saturated":
                    total = np.clip(total, -(2**31), 2**31 - 1)
                registers.append(total.astype(np.int32 if whole_numbers else np.float32).view(np.uint32))
    return tuple(registers)


def distributed(count: int, transposed: bool, _active: Array, *rows: Array) -> tuple[Array, ...]:
    """Return the registers of ldmatrix for so many matrices. rows: of eight halves, four words, as lanes read them.

    Lane i of the eight lanes of each matrix has read its row i.
    """
    whole = np.stack(rows, axis=-1)  # (…, 32, 4 words)
    results = []
    for matrix in range(count):
        words = whole[..., 8 * matrix : 8 * matrix + 8, :]
        if transposed:
            elements = np.ascontiguousarray(words).view(np.uint16)  # (…, 8, 8)
            words = np.ascontiguousarray(np.swapaxes(elements, -1, -2)).view(np.uint32)
        results.append(words.reshape(*words.shape[:-2], 32))
    return tuple(results)


def collected(transposed: bool, _active: Array, *words: Array) -> tuple[Array, ...]:
    """Return the four words of a row that each lane stores by stmatrix: the inverse of `distributed`."""
    matrices = []
    for word in words:
        rows = np.ascontiguousarray(word).reshape(*word.shape[:-1], 8, 4)
        if transposed:
            rows = np.ascontiguousarray(np.swapaxes(rows.view(np.uint16), -1, -2)).view(np.uint32)
        matrices.append(rows)
    whole = np.concatenate(matrices, axis=-2)
    missing = 32 - whole.shape[-2]
    if missing:
        whole = np.concatenate([whole, np.zeros((*whole.shape[:-2], missing, 4), np.uint32)], axis=-2)
    return tuple(np.ascontiguousarray(whole[..., word]) for word in range(4))


# ---- warp groups (PTX ISA, "Asynchronous warpgroup level matrix instructions") ---------------------------------------

GROUP_LANES, GROUP_ROWS = 128, 64
CHUNK = 16
# Contiguous bytes of a row, by the descriptor's two highest bits. Chunks of 16 bytes are permuted inside them by the
# number of the row.
SWIZZLED = (0, 128, 64, 32)


def chunk_addresses(descriptor: Array, extent: int, depth_bytes: int, transposed: bool) -> Array:
    """Return the addresses of a matrix in shared memory, one for each chunk of 16 bytes: (…, chunks).

    descriptor: uint64. extent: rows of A, or columns of B. Chunks go along the depth first, and in a transposed matrix,
    which holds 16-bit elements, along the extent first.
    """
    bits = descriptor.astype(np.int64)[..., None]
    start, leading, stride = ((bits >> shift & 0x3FFF) << 4 for shift in (0, 16, 32))
    span = np.array(SWIZZLED)[bits >> 62 & 3]
    plain = span == 0
    if transposed:
        deep, chunk = np.divmod(np.arange(depth_bytes // 2 * extent // 8), extent // 8)
        across = np.maximum(span // CHUNK, 1)
        swizzled = chunk % across * CHUNK + chunk // across * leading + deep % 8 * span + deep // 8 * stride
        place = np.where(plain, chunk * stride + deep % 8 * CHUNK + deep // 8 * leading, swizzled)
    else:
        row, chunk = np.divmod(np.arange(extent * depth_bytes // CHUNK), depth_bytes // CHUNK)
        place = row // 8 * stride + np.where(plain, row % 8 * CHUNK + chunk * leading, row % 8 * span + chunk * CHUNK)
    address = start + place
    return address ^ ((address >> 7 & np.maximum(span // CHUNK - 1, 0)) << 4)


def from_chunks(words: Array, kind: str, extent: int, transposed: bool) -> Array:
    """Return a matrix, (…, extent, depth), from the words of its chunks, (…, chunks, 4)."""
    found = elements(words, kind)
    if not transposed:
        return found.reshape(*found.shape[:-2], extent, -1)
    return np.swapaxes(found.reshape(*found.shape[:-2], -1, extent), -1, -2)
