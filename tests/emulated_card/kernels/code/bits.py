"""Logic, shifts and bit fields."""

from __future__ import annotations

from collections.abc import Mapping

from emulated_card.kernels.code.types import C_TYPES, Rule

Choice = Mapping[str, str]


def _logic(sign: str) -> Rule:
    return lambda choice, x: f"({C_TYPES[choice['bptype']]})({x[0]} {sign} {x[1]})"


def _invert(choice: Choice, x: list[str]) -> str:
    return f"({x[0]} ^ 1)" if choice["bptype"] == "pred" else f"({C_TYPES[choice['bptype']]})(~{x[0]})"


def _function(name: str, key: str) -> Rule:
    return lambda choice, x: f"{name}_{choice[key]}({', '.join(x)})"


def _bounded(choice: Choice, count: str) -> str:
    """Return a count modulo 32, or at most 32."""
    return f"({count} & 31)" if choice["clampwrap"] == "wrap" else f"min_u32({count}, 32)"


def _sign_extend(choice: Choice, x: list[str]) -> str:
    return f"bfe_{choice['i32']}({x[0]}, 0, {_bounded(choice, f'(uint32_t){x[1]}')})"


def _permute(choice: Choice, x: list[str]) -> str:
    words = ", ".join(x)
    return f"prmt_mode({words}, {choice['pmode'].upper()})" if "pmode" in choice else f"prmt({words})"


RULES: Mapping[str, Rule] = {
    "and.bptype": _logic("&"),
    "or.bptype": _logic("|"),
    "xor.bptype": _logic("^"),
    "not.bptype": _invert,
    "cnot.btype": lambda choice, x: f"({C_TYPES[choice['btype']]})({x[0]} == 0)",
    "lop3.b32": lambda _, x: f"lop3({', '.join(x)})",
    "shl.btype": _function("shl", "btype"),
    "shr.ctype": _function("shr", "ctype"),
    "shf.leftright.clampwrap.b32": lambda choice, x: (
        f"shf_{choice['leftright']}({x[0]}, {x[1]}, {_bounded(choice, x[2])})"
    ),
    "popc.b3264": _function("popc", "b3264"),
    "clz.b3264": _function("clz", "b3264"),
    "brev.b3264": _function("brev", "b3264"),
    "bfind[.shiftamt].i3264": lambda choice, x: f"bfind_{choice['i3264']}({x[0]}, {int('shiftamt' in choice)})",
    "bfe.i3264": _function("bfe", "i3264"),
    "bfi.b3264": _function("bfi", "b3264"),
    "prmt.b32[.pmode]": _permute,
    "bmsk.clampwrap.b32": lambda choice, x: f"bmsk({_bounded(choice, x[0])}, {_bounded(choice, x[1])})",
    "szext.clampwrap.i32": _sign_extend,
}
