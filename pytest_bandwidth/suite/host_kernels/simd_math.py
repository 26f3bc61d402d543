"""Compute on cache lines in Numba code: comparisons, and exp and cos that LLVM keeps in vectors.

A library's exp takes one number at a time, and kernels that wait for it never come near the memory's bandwidth.
Everything here takes a float32 as well as a line of them, so that one formula serves whole lines and the ends.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from llvmlite import ir
from numba import types

from pytest_bandwidth.devices.cpu.simd import (
    INT32,
    SimdVector,
    across,
    inlined,
    repeated,
    typed_intrinsic,
)

_INT64 = ir.IntType(64)


def in_place(function: Callable[..., Any]) -> Any:
    """Compile a helper in the place of its call, so that it may take functions and share a loop over `prange`.

    Such a caller is kept on disk as any other. One that was made around a function would be compiled by each process.
    For an edit of the helper alone see `parallel`.
    """
    return numba.njit(function, inline="always")


def _filled(shape: ir.Type, element: ir.Type, value: float) -> ir.Constant:
    """Return a constant of an element type, as often as the value that `shape` is the type of has lanes."""
    if isinstance(shape, ir.VectorType):
        return ir.Constant(ir.VectorType(element, shape.count), [value] * shape.count)
    return ir.Constant(element, value)


def _shaped(shape: ir.Type, element: ir.Type) -> ir.Type:
    return ir.VectorType(element, shape.count) if isinstance(shape, ir.VectorType) else element


largest = across(
    lambda builder, x, y: builder.select(builder.fcmp_ordered(">", x, y), x, y),
    lambda builder, x, y: builder.select(builder.icmp_signed(">", x, y), x, y),
)


@typed_intrinsic
def where_above(_typing_context: Any, x: Any, _limit: Any, _then: Any, _otherwise: Any) -> Any:
    """Return where_above(x, limit, then, otherwise): `then` where x > limit, else `otherwise` (also where x is NaN)."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return x(x, x, x, x), generate


@inlined
def larger(left: Any, right: Any) -> Any:
    """Return left where it is the larger, else right; so a NaN on the left does not count."""
    return where_above(left, right, left, right)


@typed_intrinsic
def like(_typing_context: Any, x: Any, scalar: Any) -> Any:
    """Return like(x, scalar): the scalar in the type of x, as often as that has lanes."""
    element = x.element if isinstance(x, SimdVector) else x

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        number = context.cast(builder, args[1], signature.args[1], element)
        if not isinstance(signature.return_type, SimdVector):
            return number
        return repeated(builder, number, context.get_value_type(signature.return_type))

    return x(x, scalar), generate


@typed_intrinsic
def _nearest(_typing_context: Any, x: Any) -> Any:
    """Return the nearest whole number, as a float; |x| < 2²²."""

    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        # Adding 1.5·2²³ leaves no bits behind the point. Plain additions become vector ones on every processor.
        shift = _filled(args[0].type, ir.FloatType(), 12582912.0)
        return builder.fsub(builder.fadd(args[0], shift), shift)

    return x(x), generate


def _with_bits(shift: int, join: str) -> Any:
    """Return an intrinsic that joins x's bits with those of a whole number, given as float32, shifted to the left."""

    @typed_intrinsic
    def joined(_typing_context: Any, x: Any, _number: Any) -> Any:
        def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
            whole = _shaped(args[0].type, INT32)
            bits = builder.shl(builder.fptosi(args[1], whole), _filled(whole, INT32, shift))
            return builder.bitcast(getattr(builder, join)(builder.bitcast(args[0], whole), bits), args[0].type)

        return x(x, x), generate

    return joined


# x · 2ⁿ, where neither x nor the result is subnormal or infinite; and −x where n is odd.
_times_power_of_two, _negated_if_odd = _with_bits(23, "add"), _with_bits(31, "xor")


@inlined
def exponential(x: Any) -> Any:
    """Return eˣ within 2 units in the last place; below −87 it is 0, above 88 infinite.

    eˣ = 2ⁿ·eʳ with n the nearest whole number to x ÷ ln 2. ln 2 is subtracted in two parts; the first has so few
    bits that n·part is exact (Cody and Waite). The polynomial is a weighted least-squares fit with equal
    ripples, made for this module; its relative error is 3e-9.
    """
    inside = where_above(x, like(x, 88.0), like(x, 88.0), x)
    inside = where_above(like(x, -87.0), inside, like(x, -87.0), inside)
    n = _nearest(inside * like(x, 1.4426950408889634))
    r = inside - n * like(x, 0.693359375)
    r = r - n * like(x, -0.00021219444170128554)
    p = like(x, 0.001381459878757596)
    p = p * r + like(x, 0.008368716575205326)
    p = p * r + like(x, 0.04166838899254799)
    p = p * r + like(x, 0.1666652113199234)
    p = p * r + like(x, 0.4999999403953552)
    power = _times_power_of_two(p * r * r + r + like(x, 1.0), n)
    power = where_above(x, like(x, 88.0), like(x, float("inf")), power)
    return where_above(like(x, -87.0), x, like(x, 0.0), power)


@inlined
def cosine(x: Any) -> Any:
    """Compute cos x within 2e-7 for |x| ≤ 1000.

    Like the hardware function of a GPU, it is not meant for large arguments.

    cos x = ±cos r, with r the distance of x to the nearest multiple of π, subtracted in three parts. The polynomial in
    r² was fitted for this module as the one of `exponential`; its error is 3e-10.
    """
    n = _nearest(x * like(x, 0.3183098861837907))
    r = x - n * like(x, 3.140625)
    r = r - n * like(x, 0.0009675025939941406)
    r = r - n * like(x, 1.5099580252808664e-07)
    t = r * r
    p = like(x, -2.607681608424173e-07)
    p = p * t + like(x, 2.476187000866048e-05)
    p = p * t + like(x, -0.00138884037733078)
    p = p * t + like(x, 0.04166664183139801)
    p = p * t + like(x, -0.5)
    return _negated_if_odd(p * t + like(x, 1.0), n)


def _uniform(of_four: bool) -> Any:
    def generate(_context: Any, builder: Any, _signature: Any, args: Any) -> Any:
        shape = args[0].type
        wide, narrow = _shaped(shape, _INT64), _shaped(shape, INT32)

        def constant(value: int) -> ir.Constant:
            return _filled(shape, INT32, value)

        i, seed = args[2], args[1]
        if isinstance(shape, ir.VectorType):
            i = builder.add(repeated(builder, i, wide), ir.Constant(wide, list(range(wide.count))))
            seed = repeated(builder, seed, narrow)
        neighbour = builder.and_(builder.trunc(i, narrow), constant(3))
        if of_four:
            i = builder.ashr(i, _filled(shape, _INT64, 2))
        high = builder.trunc(builder.ashr(i, _filled(shape, _INT64, 32)), narrow)
        h = builder.xor(builder.trunc(i, narrow), seed)
        h = builder.xor(h, builder.mul(high, constant(0x9E3779B9)))
        h = builder.mul(builder.xor(h, builder.lshr(h, constant(16))), constant(0x85EBCA6B))
        h = builder.mul(builder.xor(h, builder.lshr(h, constant(13))), constant(0xC2B2AE35))
        h = builder.xor(h, builder.lshr(h, constant(16)))
        if of_four:
            multiplier = constant(1)
            for which, value in ((1, 0x9E3779B1), (2, 0x85EBCA77), (3, 0xC2B2AE3D)):
                is_this = builder.icmp_unsigned("==", neighbour, constant(which))
                multiplier = builder.select(is_this, constant(value), multiplier)
            h = builder.mul(h, multiplier)
        # 24 bits fit a signed conversion, which every processor has in vectors.
        number = builder.sitofp(builder.lshr(h, constant(8)), shape)
        return builder.fmul(number, _filled(shape, ir.FloatType(), 2.0**-24))

    return generate


@typed_intrinsic
def uniform(_typing_context: Any, x: Any, _seed: Any, _index: Any) -> Any:
    """Draw uniform(x, seed, index), a number in [0, 1) that depends on (seed, index) only.

    Where x is a line, lane l holds that of index + l. The same bits as `uniform` in cuda_src/pointwise.cu.
    """
    return x(x, types.uint32, types.int64), _uniform(of_four=False)


@typed_intrinsic
def uniform_of_four(_typing_context: Any, x: Any, _seed: Any, _index: Any) -> Any:
    """Draw a number as `uniform` does, but by one hash for four neighbours, as the wide kernels there."""
    return x(x, types.uint32, types.int64), _uniform(of_four=True)
