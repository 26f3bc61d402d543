"""Comparisons with predicates or words as their result, and selections."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from emulated_card.kernels.code.halves import half_kind, is_pair, on_halves, widened
from emulated_card.kernels.code.types import C_TYPES, Rule

Choice = Mapping[str, str]
Test = Callable[[Choice, str, str], str]

_SIGNS = {
    "eq": "==",
    "ne": "!=",
    "lt": "<",
    "le": "<=",
    "gt": ">",
    "ge": ">=",
    "lo": "<",
    "ls": "<=",
    "hi": ">",
    "hs": ">=",
}
_COMBINE = {"and": "&", "or": "|", "xor": "^"}


def _of_integers(choice: Choice, a: str, b: str) -> str:
    return f"({a} {_SIGNS[next(choice[key] for key in ('cmp', 'ucmp', 'same') if key in choice)]} {b})"


def _of_floats(choice: Choice, a: str, b: str) -> str:
    if "ftz" in choice:
        a, b = f"flush_{choice['float']}({a})", f"flush_{choice['float']}({b})"
    return f"({choice['fcmp']}_float({a}, {b}))"


def _of_halves(choice: Choice, a: str, b: str) -> str:
    return f"({choice['fcmp']}_float({widened(choice, a)}, {widened(choice, b)}))"


def _setp(test: Test) -> Rule:
    """The translator adds ``pair`` to the choice where the second predicate is asked for."""

    def rule(choice: Choice, x: list[str]) -> tuple[str, ...]:
        truth = f"(uint32_t){test(choice, x[0], x[1])}"
        both = (truth, f"({truth} ^ 1u)") if "pair" in choice else (truth,)
        return tuple(f"({t} {_COMBINE[choice['bool']]} {x[2]})" for t in both) if "bool" in choice else both

    return rule


def _setp_of_pairs(choice: Choice, x: list[str]) -> tuple[str, ...]:
    return tuple(
        f"(uint32_t){_of_halves(choice, *(f'(uint16_t)({item} >> {shift})' for item in x))}" for shift in (0, 16)
    )


def _set(test: Test) -> Rule:
    def rule(choice: Choice, x: list[str]) -> str:
        kind = choice["settype"]
        true, false = ("1.0f", "0.0f") if kind == "f32" else (f"({C_TYPES[kind]})-1", f"({C_TYPES[kind]})0")
        return f"({test(choice, x[0], x[1])} ? {true} : {false})"

    return rule


def _set_of_halves(choice: Choice, x: list[str]) -> str:
    result = choice.get("word") or choice.get("i32") or half_kind(choice)
    if result in ("f16", "bf16"):
        true = "0x3F80" if result == "bf16" else "0x3C00"
    else:
        true = "0xFFFF" if is_pair(choice) or result.endswith("16") else "0xFFFFFFFFu"
    truth = on_halves(choice, x, lambda y: f"({_of_halves(choice, y[0], y[1])} ? {true} : 0)")
    return f"({C_TYPES[result]})({truth})" if result[0] in "us" else truth


def _select_by_sign(choice: Choice, x: list[str]) -> str:
    sign = f"flush_f32({x[2]})" if "ftz" in choice else x[2]
    return f"({sign} >= 0 ? {x[0]} : {x[1]})"


RULES: Mapping[str, Rule] = {
    **{
        f"setp.{test}{combined}.{kind}": _setp(_of_integers)
        for test, kind in (("cmp", "itype"), ("same", "btype"), ("ucmp", "utype"))
        for combined in ("", ".bool")
    },
    "setp.fcmp[.ftz].float": _setp(_of_floats),
    "setp.fcmp.bool[.ftz].float": _setp(_of_floats),
    "setp.fcmp[.ftz].f16": _setp(_of_halves),
    "setp.fcmp.bool[.ftz].f16": _setp(_of_halves),
    "setp.fcmp.bf16": _setp(_of_halves),
    "setp.fcmp[.ftz].f16x2": _setp_of_pairs,
    "setp.fcmp.bf16x2": _setp_of_pairs,
    **{
        f"set.fcmp{ftz}.{result}.{kind}": _set_of_halves
        for kind, ftz in (("f16", "[.ftz]"), ("bf16", ""))
        for result in (kind, "word")
    },
    **{
        f"set.fcmp{ftz}.{result}.{kind}": _set_of_halves
        for kind, ftz in (("f16x2", "[.ftz]"), ("bf16x2", ""))
        for result in (kind, "i32")
    },
    "set.cmp.settype.itype": _set(_of_integers),
    "set.same.settype.btype": _set(_of_integers),
    "set.ucmp.settype.utype": _set(_of_integers),
    "set.fcmp[.ftz].settype.float": _set(_of_floats),
    "selp.xtype": lambda _, x: f"({x[2]} ? {x[0]} : {x[1]})",
    "slct.xtype.s32": _select_by_sign,
    "slct[.ftz].xtype.f32": _select_by_sign,
}
