"""Integer arithmetic. Signed overflow wraps, which gcc is told."""

from __future__ import annotations

from collections.abc import Mapping

from emulated_card.kernels.code.types import C_TYPES, Rule, unsigned, wider

Choice = Mapping[str, str]


def _operator(sign: str) -> Rule:
    return lambda choice, x: f"({C_TYPES[choice['itype']]})({x[0]} {sign} {x[1]})"


def _saturating(sign: str) -> Rule:
    return lambda _, x: f"clamp_s32((int64_t){x[0]} {sign} (int64_t){x[1]})"


def _function(name: str, key: str = "itype") -> Rule:
    return lambda choice, x: f"{name}_{choice[key]}({', '.join(x)})"


def _add_with_carry(kind: str, a: str, b: str, carry: str | None) -> tuple[str, str]:
    """Return the sum, and the carry out of its top bit."""
    word, own = unsigned(kind), C_TYPES[kind]
    total = f"({word})(({word})({a}) + ({word})({b}))"
    overflow = f"{total} < ({word})({a})"
    if carry is None:
        return f"({own}){total}", f"(uint32_t)({overflow})"
    with_carry = f"({word})({total} + ({word})({carry}))"
    return f"({own}){with_carry}", f"(uint32_t)({overflow} || {with_carry} < {total})"


def _add_carry(choice: Choice, x: list[str]) -> tuple[str, ...]:
    return _add_with_carry(choice["i3264"], x[0], x[1], x[2] if len(x) > 2 else None)


def _subtract_carry(choice: Choice, x: list[str]) -> tuple[str, ...]:
    return _add_with_carry(choice["i3264"], x[0], f"~{x[1]}", x[2] if len(x) > 2 else "1")


def _multiply_add_carry(choice: Choice, x: list[str]) -> tuple[str, ...]:
    kind = choice["i3264"]
    product = _product(choice["lohi"], kind, x)
    return _add_with_carry(kind, product, x[2], x[3] if len(x) > 3 else None)


def _product(half: str, kind: str, x: list[str]) -> str:
    if half == "hi":
        return f"mul_hi_{kind}({x[0]}, {x[1]})"
    return f"({C_TYPES[kind]})(({unsigned(kind)}){x[0]} * ({unsigned(kind)}){x[1]})"


def _wide_product(kind: str, x: list[str]) -> str:
    wide = C_TYPES[wider(kind)]
    return f"({wide})(({wide}){x[0]} * ({wide}){x[1]})"


def _multiply_wide_add(choice: Choice, x: list[str]) -> str:
    kind = choice["halfwide"]
    return f"({C_TYPES[wider(kind)]})({_wide_product(kind, x)} + {x[2]})"


def _multiply(choice: Choice, x: list[str]) -> str:
    return _product(choice.get("lohi", "lo"), choice["itype"], x)


def _multiply_high(choice: Choice, x: list[str]) -> str:
    return _product("hi", choice["itype"], x)


def _multiply_add(choice: Choice, x: list[str]) -> str:
    return f"({C_TYPES[choice['itype']]})({_multiply(choice, x)} + {x[2]})"


def _multiply24(choice: Choice, x: list[str]) -> str:
    kind = choice["i32"]
    product = f"low24_{kind[0]}({x[0]}) * low24_{kind[0]}({x[1]})"
    shifted = f"({product}) >> 16" if choice["lohi"] == "hi" else product
    total = f"({C_TYPES[kind]})({shifted})"
    return total if len(x) == 2 else f"({C_TYPES[kind]})({total} + {x[2]})"


def _absolute(choice: Choice, x: list[str]) -> str:
    return f"({C_TYPES[choice['stype']]})({x[0]} < 0 ? -{x[0]} : {x[0]})"


def _negative(choice: Choice, x: list[str]) -> str:
    return f"({C_TYPES[choice['stype']]})(-{x[0]})"


def _floored(name: str) -> Rule:
    return lambda _, x: f"max_s32({name}_s32({x[0]}, {x[1]}), 0)"


def _pairs(name: str, relu: int = 0) -> Rule:
    return lambda choice, x: f"{name}_{choice.get('pairtype', 's16x2')}({x[0]}, {x[1]}, {relu})"


def _byte_differences(choice: Choice, x: list[str]) -> str:
    return f"byte_difference_sum({', '.join(x)})" if "add" in choice else f"byte_differences({x[0]}, {x[1]})"


def _dot(choice: Choice, x: list[str]) -> str:
    bits, first = (16, 2 if choice["lohi"] == "hi" else 0) if "lohi" in choice else (8, 0)
    signed = (int(choice["atype"][0] == "s"), int(choice["btype4"][0] == "s"))
    words = ", ".join(f"(uint32_t){item}" for item in x)
    return f"({C_TYPES[choice['atype']]})dot({words}, {bits}, {first}, {signed[0]}, {signed[1]})"


RULES: Mapping[str, Rule] = {
    "add.itype": _operator("+"),
    "add.sat.s32": _saturating("+"),
    "sub.itype": _operator("-"),
    "sub.sat.s32": _saturating("-"),
    "add.cc.i3264": _add_carry,
    "addc.cc.i3264": _add_carry,
    "addc.i3264": _add_carry,
    "sub.cc.i3264": _subtract_carry,
    "subc.cc.i3264": _subtract_carry,
    "subc.i3264": _subtract_carry,
    "mad.lohi.cc.i3264": _multiply_add_carry,
    "madc.lohi.cc.i3264": _multiply_add_carry,
    "madc.lohi.i3264": _multiply_add_carry,
    "mul.wide.halfwide": lambda choice, x: _wide_product(choice["halfwide"], x),
    "mul.lo.itype": _multiply,
    "mul.hi.itype": _multiply_high,
    "mad.wide.halfwide": _multiply_wide_add,
    "mad.lohi.itype": _multiply_add,
    "mul24.lohi.i32": _multiply24,
    "mad24.lohi.i32": _multiply24,
    "sad.itype": _function("sad"),
    "div.itype": _function("div"),
    "rem.itype": _function("rem"),
    "abs.stype": _absolute,
    "neg.stype": _negative,
    "min.itype": _function("min"),
    "max.itype": _function("max"),
    "min.relu.s32": _floored("min"),
    "max.relu.s32": _floored("max"),
    "min.s32.relu": _floored("min"),
    "max.s32.relu": _floored("max"),
    "add.pairtype": _pairs("add"),
    "min.pairtype": _pairs("min"),
    "max.pairtype": _pairs("max"),
    "min.relu.s16x2": _pairs("min", 1),
    "max.relu.s16x2": _pairs("max", 1),
    "min.s16x2.relu": _pairs("min", 1),
    "max.s16x2.relu": _pairs("max", 1),
    "vabsdiff4.u32.u32.u32[.add]": _byte_differences,
    "dp2a.lohi.atype.btype4": _dot,
    "dp4a.atype.btype4": _dot,
}
