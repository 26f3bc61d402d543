"""Write a computing step as expressions of C: by a rule for each row of the opcode table, or as a move.

There are rules for what NVRTC makes of the kernels that run on the card; signed overflow wraps, which gcc is told.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from emulated_card.kernels.registers import is_copy, match_of, not_translated
from pytest_bandwidth.features.traffic.ptx.memory import (
    LOCAL_REGION,
    PARAM_REGION,
    REGION_SHIFT,
    SHARED_REGION,
    region_base,
)
from pytest_bandwidth.features.traffic.ptx.program import Compute, Kernel

Choice = Mapping[str, str]
# Takes the opcode's chosen modifiers and its operands as C expressions without side effects, each of its own C type;
# gives an expression for each result, or None for modifiers that are not translated.
Rule = Callable[[Choice, list[str]], "str | tuple[str, ...] | None"]

C_TYPES: Mapping[str, str] = {
    **{f"{letter}{bits}": f"uint{bits}_t" for letter in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f16x2": "uint32_t",
    "f32": "float",
    "f64": "double",
    "pred": "uint32_t",
}
_MODES = {"rz": "ZERO", "rm": "DOWN", "rp": "UP"}


# Integers and bits


def _operator(sign: str, key: str = "itype") -> Rule:
    return lambda choice, x: f"({C_TYPES[choice[key]]})({x[0]} {sign} {x[1]})"


def _function(name: str, key: str = "itype") -> Rule:
    return lambda choice, x: f"{name}_{choice[key]}({', '.join(x)})"


def _invert(choice: Choice, x: list[str]) -> str:
    return f"({x[0]} ^ 1)" if choice["bptype"] == "pred" else f"({C_TYPES[choice['bptype']]})(~{x[0]})"


def _multiply(choice: Choice, x: list[str]) -> str:
    kind = choice["itype"]
    if choice.get("lohi") == "hi":
        return f"mul_hi_{kind}({x[0]}, {x[1]})"
    unsigned = f"uint{kind[1:]}_t"
    return f"({C_TYPES[kind]})(({unsigned}){x[0]} * ({unsigned}){x[1]})"


def _multiply_add(choice: Choice, x: list[str]) -> str:
    return f"({C_TYPES[choice['itype']]})({_multiply(choice, x)} + {x[2]})"


def _multiply_wide(choice: Choice, x: list[str]) -> str:
    kind = choice["halfwide"]
    wide = C_TYPES[f"{kind[0]}{int(kind[1:]) * 2}"]
    product = f"({wide}){x[0]} * ({wide}){x[1]}"
    return f"({wide})({' + '.join([product, *x[2:]])})"


def _dot_product(choice: Choice, x: list[str]) -> str | None:
    return f"dp4a({', '.join(x)})" if choice["atype"] == choice["btype4"] == "s32" else None


# Floats


def _kind(choice: Choice) -> str:
    """Return f32 or f64, whichever the opcode computes in."""
    return "f64" if "f64" in choice.values() else "f32"


def _modified(choice: Choice, x: list[str], compute: Callable[[list[str]], str]) -> str:
    """Apply .ftz to operands and result, .sat to the result."""
    kind = _kind(choice)
    ftz = "ftz" in choice and kind == "f32"
    result = compute([f"flush_f32({item})" for item in x] if ftz else x)
    result = f"flush_f32({result})" if ftz else result
    return f"sat_{kind}({result})" if "sat" in choice else result


def _arithmetic(nearest: str, directed: str = "") -> Rule:
    """nearest: the expression to the nearest, of {0}, {1} and {s}, which is f where binary32's function is named so.
    directed: binary32's function with a rounding mode.
    """

    def rule(choice: Choice, x: list[str]) -> str | None:
        kind, mode = _kind(choice), choice.get("rnd", "rn")
        if mode == "rn":
            return _modified(choice, x, lambda y: f"({nearest.format(*y, s='f' if kind == 'f32' else '')})")
        if not directed or kind == "f64":
            return None
        return _modified(choice, x, lambda y: f"{directed}({', '.join(y)}, {_MODES[mode]})")

    return rule


def _called(name: str) -> Rule:
    return lambda choice, x: _modified(choice, x, lambda y: f"{name.format(_kind(choice))}({', '.join(y)})")


def _minmax(name: str) -> Rule:
    def rule(choice: Choice, x: list[str]) -> str | None:
        if "abs" in choice or len(x) > 2:
            return None
        return _modified(choice, x, lambda y: f"{name}_{_kind(choice)}({y[0]}, {y[1]}, {int('NaN' in choice)})")

    return rule


def _of_halves(expression: str, wide: str) -> Rule:
    """Compute f16, single or in pairs, in a wider format that rounds once more without harm."""

    def rule(choice: Choice, x: list[str]) -> str | None:
        if not {"ftz", "sat"}.isdisjoint(choice):
            return None

        def compute(shift: int) -> str:
            items = [f"({C_TYPES[wide]})f32_of_f16((uint16_t)({item} >> {shift}))" for item in x]
            return f"f16_of_{wide}({expression.format(*items)})"

        if "f16x2" in choice.values():
            return f"((uint32_t){compute(0)} | (uint32_t){compute(16)} << 16)"
        return compute(0)

    return rule


# Comparisons

_SIGNS = {
    "eq": "==",
    "ne": "!=",
    **dict.fromkeys(("lt", "lo"), "<"),
    **dict.fromkeys(("le", "ls"), "<="),
    **dict.fromkeys(("gt", "hi"), ">"),
    **dict.fromkeys(("ge", "hs"), ">="),
}
_COMBINE = {"and": "&", "or": "|", "xor": "^"}


def _of_integers(choice: Choice, a: str, b: str) -> str:
    return f"({a} {_SIGNS[next(choice[key] for key in ('cmp', 'ucmp', 'same') if key in choice)]} {b})"


def _of_floats(choice: Choice, a: str, b: str) -> str:
    if "ftz" in choice:
        a, b = f"flush_{choice['float']}({a})", f"flush_{choice['float']}({b})"
    return f"({choice['fcmp']}_float({a}, {b}))"


def _setp(test: Callable[[Choice, str, str], str]) -> Rule:
    """The translator adds ``pair`` to the choice where the second predicate is asked for."""

    def rule(choice: Choice, x: list[str]) -> tuple[str, ...]:
        truth = f"(uint32_t){test(choice, x[0], x[1])}"
        both = (truth, f"({truth} ^ 1u)") if "pair" in choice else (truth,)
        return tuple(f"({t} {_COMBINE[choice['bool']]} {x[2]})" for t in both) if "bool" in choice else both

    return rule


# Conversions

_INTEGRAL = {"rni": "rint", "rzi": "trunc", "rmi": "floor", "rpi": "ceil"}
_HALVES = ("bf16", "f16")
_FLOATS = ("bf16", "f16", "f32", "f64")


def _convert(choice: Choice, x: list[str]) -> str | None:
    to, of, a = choice["dst"], choice["src"], x[0]
    known = to in C_TYPES and of in C_TYPES and choice.get("rnd", "rn") == "rn"
    if not known or ("sat" in choice and to not in ("f32", "f64")):
        return None
    if of in _FLOATS:
        a = f"flush_f32({a})" if "ftz" in choice and of == "f32" else f"f32_of_{of}({a})" if of in _HALVES else a
        if to not in _FLOATS:
            sign_on_nan = int(of == "f64" or to.endswith("64"))
            return f"{to}_of_f64({_INTEGRAL[choice.get('irnd', 'rzi')]}((double){a}), {sign_on_nan})"
        if "irnd" in choice:
            a = f"{_INTEGRAL[choice['irnd']]}{'' if of == 'f64' else 'f'}({a})"
    elif to not in _FLOATS:
        return f"({C_TYPES[to]}){a}"
    if to in _HALVES:
        return f"{to}_of_f32({a})" if of in (*_HALVES, "f32") else f"{to}_of_f64((double){a})"
    a = f"({C_TYPES[to]}){a}"
    a = f"sat_{to}({a})" if "sat" in choice else a
    return f"flush_f32({a})" if "ftz" in choice and to == "f32" else a


def _convert_pair(choice: Choice, x: list[str]) -> str | None:
    kind = choice["packed"].removesuffix("x2")
    if choice["nearzero"] != "rn" or "relu" in choice or kind not in ("f16", "bf16"):
        return None
    return f"((uint32_t){kind}_of_f32({x[1]}) | (uint32_t){kind}_of_f32({x[0]}) << 16)"


def _find_leading(choice: Choice, x: list[str]) -> str | None:
    if "shiftamt" not in choice or choice["i3264"] != "u32":
        return None
    return f"({x[0]} ? clz_b32({x[0]}) : 0xFFFFFFFFu)"


def _convert_to_fp8(choice: Choice, x: list[str]) -> str | None:
    if "relu" in choice or choice["small"] != "e4m3x2":
        return None
    return f"(uint16_t)(e4m3_of_f32({x[1]}) | e4m3_of_f32({x[0]}) << 8)"


_ADD, _SUB, _MUL = _arithmetic("{0} + {1}"), _arithmetic("{0} - {1}"), _arithmetic("{0} * {1}")
_FMA = _arithmetic("fma{s}({0}, {1}, {2})", "fma_directed_f32")
_DIV, _SQRT = _arithmetic("{0} / {1}"), _arithmetic("sqrt{s}({0})")
_RECIPROCAL = _arithmetic("1 / {0}")

RULES: Mapping[str, Rule] = {
    "add.itype": _operator("+"),
    "sub.itype": _operator("-"),
    "mul.lo.itype": _multiply,
    "mul.hi.itype": lambda choice, x: _multiply({**choice, "lohi": "hi"}, x),
    "mul.wide.halfwide": _multiply_wide,
    "mad.wide.halfwide": _multiply_wide,
    "mad.lohi.itype": _multiply_add,
    "div.itype": _function("div"),
    "rem.itype": _function("rem"),
    "abs.stype": lambda choice, x: f"({C_TYPES[choice['stype']]})({x[0]} < 0 ? -{x[0]} : {x[0]})",
    "neg.stype": lambda choice, x: f"({C_TYPES[choice['stype']]})(-{x[0]})",
    "min.itype": _function("min"),
    "max.itype": _function("max"),
    "and.bptype": _operator("&", "bptype"),
    "or.bptype": _operator("|", "bptype"),
    "xor.bptype": _operator("^", "bptype"),
    "not.bptype": _invert,
    "lop3.b32": lambda _, x: f"lop3({', '.join(x)})",
    "shl.btype": _function("shl", "btype"),
    "shr.ctype": _function("shr", "ctype"),
    "popc.b3264": _function("popc", "b3264"),
    "clz.b3264": _function("clz", "b3264"),
    "brev.b3264": _function("brev", "b3264"),
    "bfind[.shiftamt].i3264": _find_leading,
    "bfe.i3264": _function("bfe", "i3264"),
    "bfi.b3264": _function("bfi", "b3264"),
    "dp4a.atype.btype4": _dot_product,
    "prmt.b32[.pmode]": lambda choice, x: None if "pmode" in choice else f"prmt({', '.join(x)})",
    **{f"{name}[.rnd][.ftz][.sat].f32": rule for name, rule in (("add", _ADD), ("sub", _SUB), ("mul", _MUL))},
    **{f"{name}[.rnd].f64": rule for name, rule in (("add", _ADD), ("sub", _SUB), ("mul", _MUL))},
    "fma.rnd[.ftz][.sat].f32": _FMA,
    "fma.rnd.f64": _FMA,
    **{f"div.{how}[.ftz].f32": _DIV for how in ("approx", "full", "rnd")},
    "div.rnd.f64": _DIV,
    **{f"rcp.{how}[.ftz].f32": _RECIPROCAL for how in ("approx", "rnd")},
    "rcp.rnd.f64": _RECIPROCAL,
    **{f"sqrt.{how}[.ftz].f32": _SQRT for how in ("approx", "rnd")},
    "sqrt.rnd.f64": _SQRT,
    **{f"{name}.approx[.ftz].f32": _called(f"{name}_approx_f32") for name in ("rsqrt", "sin", "cos", "lg2")},
    "ex2.approx[.ftz].f32": _called("exp2f"),
    "abs[.ftz].f32": _called("abs_{}"),
    "abs.f64": _called("abs_{}"),
    "neg[.ftz].f32": _called("neg_{}"),
    "neg.f64": _called("neg_{}"),
    **{f"{name}[.ftz][.NaN][.abs].f32": _minmax(name) for name in ("min", "max")},
    **{f"{name}.f64": _minmax(name) for name in ("min", "max")},
    "add[.rn][.ftz][.sat].half": _of_halves("({0} + {1})", "f32"),
    "fma.rn[.ftz][.sat].half": _of_halves("odd_sum({0} * {1}, {2})", "f64"),
    **{
        f"setp.{test}{combined}.{kind}": _setp(_of_integers)
        for test, kind in (("cmp", "itype"), ("same", "btype"), ("ucmp", "utype"))
        for combined in ("", ".bool")
    },
    "setp.fcmp[.ftz].float": _setp(_of_floats),
    "setp.fcmp.bool[.ftz].float": _setp(_of_floats),
    "selp.xtype": lambda _, x: f"({x[2]} ? {x[0]} : {x[1]})",
    "cvt[.irnd][.rnd][.ftz][.sat].dst.src": _convert,
    "cvt.nearzero[.relu].packed.f32": _convert_pair,
    "cvt.rn.satfinite[.relu].small.f32": _convert_to_fp8,
}


# Steps

_REGIONS = {"shared": SHARED_REGION, "shared::cta": SHARED_REGION, "local": LOCAL_REGION}


def expressions_of(kernel: Kernel, step: Compute, x: list[str]) -> Sequence[str]:
    """Return an expression for each target, from the operands' expressions. Raises NotSupported."""
    match = match_of(kernel, step)
    base, choice = match.form.base, match.choice
    if is_copy(match, step):
        return (x[0],)
    if base == "mov":
        return _moved(step, x)
    if base == "cvta":
        space = choice["holding"]
        base_of_space = region_base(_REGIONS[space]) if space in _REGIONS else 0
        return (f"({x[0]} {'-' if 'to' in choice else '+'} {base_of_space:#x}ull)",)
    if base == "isspacep":
        region, space = f"({x[0]} >> {REGION_SHIFT})", choice["window"]
        return (f"({region} == {_REGIONS[space]})" if space in _REGIONS else f"({region} > {PARAM_REGION})",)
    rule = RULES.get(match.form.syntax, lambda *_: None)
    pair = {"pair": "q"} if base == "setp" and len(step.targets) == 2 else {}
    found = rule({**choice, **pair}, x)
    if found is None:
        raise not_translated(kernel, step)
    return (found,) if isinstance(found, str) else found


def _moved(step: Compute, x: list[str]) -> tuple[str, ...]:
    """Pack parts into a word, the first lowest, or unpack one."""
    bits = step.sources[0].dtype.itemsize * 8
    if len(step.sources) > 1:
        word = f"uint{bits * len(x)}_t"
        return (" | ".join(f"({word})({word})(uint{bits}_t){part} << {bits * n}" for n, part in enumerate(x)),)
    raw = f"bits{bits}({x[0]})" if step.sources[0].dtype.kind == "f" else f"(uint{bits}_t){x[0]}"
    part = bits // len(step.targets)
    return tuple(f"(uint{part}_t)({raw} >> {part * n})" for n in range(len(step.targets)))
