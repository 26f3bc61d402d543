"""binary32 and binary64 arithmetic, with .ftz and .sat; what is more than a line of C is a function of c/floats.h."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulated_card.kernels.code.types import MODES, Rule

Choice = Mapping[str, str]


def kind_of(choice: Choice) -> str:
    """Return f32 or f64, whichever the opcode computes in."""
    return "f64" if "f64" in choice.values() else "f32"


def _modified(choice: Choice, x: list[str], compute: Callable[[list[str]], str]) -> str:
    """Apply .ftz to operands and result, .sat to the result."""
    kind = kind_of(choice)
    ftz = "ftz" in choice and kind == "f32"
    result = compute([f"flush_f32({item})" for item in x] if ftz else x)
    result = f"flush_f32({result})" if ftz else result
    return f"sat_{kind}({result})" if "sat" in choice else result


def _arithmetic(name: str, nearest: str) -> Rule:
    """nearest: the expression to the nearest, of {0}, {1} and {s}, which is f where binary32's function is named so."""

    def rule(choice: Choice, x: list[str]) -> str:
        kind, mode = kind_of(choice), choice.get("rnd", "rn")

        def compute(items: list[str]) -> str:
            if mode != "rn":
                return f"{name}_directed_{kind}({', '.join(items)}, {MODES[mode]})"
            return f"({nearest.format(*items, s='f' if kind == 'f32' else '')})"

        return _modified(choice, x, compute)

    return rule


def _on_pairs(rule: Rule) -> Rule:
    """Apply a rule of binary32 to both halves of 64-bit words."""

    def pairs(choice: Choice, x: list[str]) -> str:
        low, high = (rule(choice, [f"f32_of((uint32_t)({item} >> {shift}))" for item in x]) for shift in (0, 32))
        return f"((uint64_t)bits32({low}) | (uint64_t)bits32({high}) << 32)"

    return pairs


def _reciprocal(choice: Choice, x: list[str]) -> str:
    one = "1.0f" if kind_of(choice) == "f32" else "1.0"
    return _arithmetic("div", "{0} / {1}")(choice, [one, *x])  # type: ignore[return-value]


def _function(name: str) -> Rule:
    return lambda choice, x: _modified(choice, x, lambda items: f"{name}({', '.join(items)})")


def _sign(name: str) -> Rule:
    return lambda choice, x: _modified(choice, x, lambda items: f"{name}_{kind_of(choice)}({items[0]})")


def _upper_word(function: str) -> Rule:
    return lambda _, x: f"upper_word(flush_f64({function.format(f'flush_f64(upper_word({x[0]}))')}))"


def smaller_or_larger(name: str, kind: str, choice: Choice, x: list[str]) -> str:
    """Write min or max of two or three operands."""

    def two(a: str, b: str) -> str:
        sizes = [f"abs_{kind}({item})" for item in (a, b)] if "abs" in choice else [a, b]
        result = f"{name}_{kind}({sizes[0]}, {sizes[1]}, {int('NaN' in choice)})"
        return f"xorsign_{kind}({result}, {a}, {b})" if "xorsign" in choice else result

    return two(x[0], x[1]) if len(x) == 2 else two(two(x[0], x[1]), x[2])


def _minmax(name: str) -> Rule:
    return lambda choice, x: _modified(choice, x, lambda y: smaller_or_larger(name, kind_of(choice), choice, y))


_ADD, _SUB = _arithmetic("add", "{0} + {1}"), _arithmetic("sub", "{0} - {1}")
_MUL, _DIV = _arithmetic("mul", "{0} * {1}"), _arithmetic("div", "{0} / {1}")
_FMA, _SQRT = _arithmetic("fma", "fma{s}({0}, {1}, {2})"), _arithmetic("sqrt", "sqrt{s}({0})")

RULES: Mapping[str, Rule] = {
    "add[.rnd][.ftz][.sat].f32": _ADD,
    "sub[.rnd][.ftz][.sat].f32": _SUB,
    "mul[.rnd][.ftz][.sat].f32": _MUL,
    "add[.rnd][.ftz].f32x2": _on_pairs(_ADD),
    "sub[.rnd][.ftz].f32x2": _on_pairs(_SUB),
    "mul[.rnd][.ftz].f32x2": _on_pairs(_MUL),
    "fma.rnd[.ftz].f32x2": _on_pairs(_FMA),
    "add[.rnd].f64": _ADD,
    "sub[.rnd].f64": _SUB,
    "mul[.rnd].f64": _MUL,
    "fma.rnd[.ftz][.sat].f32": _FMA,
    "fma.rnd.f64": _FMA,
    "mad.rnd[.ftz][.sat].f32": _FMA,
    "mad.rnd.f64": _FMA,
    "div.approx[.ftz].f32": _DIV,
    "div.full[.ftz].f32": _DIV,
    "div.rnd[.ftz].f32": _DIV,
    "div.rnd.f64": _DIV,
    "rcp.approx[.ftz].f32": _reciprocal,
    "rcp.rnd[.ftz].f32": _reciprocal,
    "rcp.rnd.f64": _reciprocal,
    "rcp.approx.ftz.f64": _upper_word("(1.0 / {})"),
    "sqrt.approx[.ftz].f32": _SQRT,
    "sqrt.rnd[.ftz].f32": _SQRT,
    "sqrt.rnd.f64": _SQRT,
    "rsqrt.approx[.ftz].f32": _function("rsqrt_approx_f32"),
    "rsqrt.approx.f64": lambda _, x: f"(1.0 / sqrt({x[0]}))",
    "rsqrt.approx.ftz.f64": _upper_word("(1.0 / sqrt({}))"),
    "sin.approx[.ftz].f32": _function("sin_approx_f32"),
    "cos.approx[.ftz].f32": _function("cos_approx_f32"),
    "tanh.approx.f32": _function("tanh_approx_f32"),
    "lg2.approx[.ftz].f32": _function("lg2_approx_f32"),
    "ex2.approx[.ftz].f32": _function("exp2f"),
    "abs[.ftz].f32": _sign("abs"),
    "abs.f64": _sign("abs"),
    "neg[.ftz].f32": _sign("neg"),
    "neg.f64": _sign("neg"),
    "min[.ftz][.NaN].xorsign.abs.f32": _minmax("min"),
    "min[.ftz][.NaN][.abs].f32": _minmax("min"),
    "max[.ftz][.NaN].xorsign.abs.f32": _minmax("max"),
    "max[.ftz][.NaN][.abs].f32": _minmax("max"),
    "min.f64": _minmax("min"),
    "max.f64": _minmax("max"),
    "copysign.float": lambda choice, x: f"copysign_{choice['float']}({x[1]}, {x[0]})",
    "testp.property.f32": lambda choice, x: f"{choice['property']}_f32({x[0]})",
    "testp.property.f64": lambda choice, x: f"{choice['property']}_f64({x[0]})",
}
