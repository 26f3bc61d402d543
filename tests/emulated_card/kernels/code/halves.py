"""f16 and bf16, single or in pairs: computed in a wider format that rounds once more without harm."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulated_card.kernels.code.floats import smaller_or_larger
from emulated_card.kernels.code.types import Rule

Choice = Mapping[str, str]


def half_kind(choice: Choice) -> str:
    """Return f16 or bf16."""
    return next(v for v in choice.values() if v in ("f16", "f16x2", "bf16", "bf16x2")).removesuffix("x2")


def is_pair(choice: Choice) -> bool:
    return any(value in ("f16x2", "bf16x2") for value in choice.values())


def on_halves(choice: Choice, x: list[str], compute: Callable[[list[str]], str]) -> str:
    """Apply `compute`, on single halves, to both halves of packed words where the type is packed."""
    if not is_pair(choice):
        return compute(x)
    low = compute([f"(uint16_t)({item})" for item in x])
    high = compute([f"(uint16_t)(({item}) >> 16)" for item in x])
    return f"((uint32_t)(uint16_t)({low}) | (uint32_t)(uint16_t)({high}) << 16)"


def flushed(choice: Choice, half: str) -> str:
    """Apply .ftz, which the ISA defines for f16 only."""
    return f"flush_f16({half})" if "ftz" in choice and half_kind(choice) == "f16" else half


def widened(choice: Choice, half: str) -> str:
    return f"f32_of_{half_kind(choice)}({flushed(choice, half)})"


def _finished(choice: Choice, value: str, wide: str) -> str:
    if "sat" in choice:
        value = f"sat_{wide}({value})"
    elif "relu" in choice:
        value = f"floored_{wide}({value})"
    return flushed(choice, f"{half_kind(choice)}_of_{wide}({value})")


def _arithmetic(expression: str) -> Rule:
    def rule(choice: Choice, x: list[str]) -> str:
        def compute(items: list[str]) -> str:
            return _finished(choice, expression.format(*(widened(choice, item) for item in items)), "f32")

        return on_halves(choice, x, compute)

    return rule


def _fused(choice: Choice, x: list[str]) -> str:
    def compute(items: list[str]) -> str:
        a, b, c = (f"(double){widened(choice, item)}" for item in items)
        return _finished(choice, f"odd_sum({a} * {b}, {c})", "f64")

    return on_halves(choice, x, compute)


def _sign(change: str) -> Rule:
    return lambda choice, x: on_halves(choice, x, lambda y: f"(uint16_t)({flushed(choice, y[0])} {change})")


def _minmax(name: str) -> Rule:
    def rule(choice: Choice, x: list[str]) -> str:
        def compute(items: list[str]) -> str:
            wide = smaller_or_larger(name, "f32", choice, [widened(choice, item) for item in items])
            return f"{half_kind(choice)}_of_f32({wide})"

        return on_halves(choice, x, compute)

    return rule


_ADD, _SUB, _MUL = (_arithmetic(f"({{0}} {sign} {{1}})") for sign in "+-*")

RULES: Mapping[str, Rule] = {
    "add[.rn][.ftz][.sat].half": _ADD,
    "sub[.rn][.ftz][.sat].half": _SUB,
    "mul[.rn][.ftz][.sat].half": _MUL,
    "add[.rn].brain": _ADD,
    "sub[.rn].brain": _SUB,
    "mul[.rn].brain": _MUL,
    "fma.rn[.ftz][.sat].half": _fused,
    "fma.rn[.ftz].relu.half": _fused,
    "fma.rn[.relu].brain": _fused,
    "neg[.ftz].half": _sign("^ 0x8000"),
    "abs[.ftz].half": _sign("& 0x7FFF"),
    "neg.brain": _sign("^ 0x8000"),
    "abs.brain": _sign("& 0x7FFF"),
    **{
        f"{name}{modifiers}.{kind}": _minmax(name)
        for name in ("min", "max")
        for kind, modifiers in (
            ("half", "[.ftz][.NaN]"),
            ("half", "[.ftz][.NaN].xorsign.abs"),
            ("brain", "[.NaN]"),
            ("brain", "[.NaN].xorsign.abs"),
        )
    },
    "ex2.approx.half": _arithmetic("exp2f({0})"),
    "ex2.approx.ftz.brain": _arithmetic("exp2f({0})"),
    "tanh.approx.half": _arithmetic("tanhf({0})"),
    "tanh.approx.brain": _arithmetic("tanhf({0})"),
}
