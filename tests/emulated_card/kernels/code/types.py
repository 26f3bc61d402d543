"""Name PTX's types in C, and what a rule is."""

from __future__ import annotations

from collections.abc import Callable, Mapping

# Takes the opcode's chosen modifiers and its operands as C expressions without side effects, each of its own C type;
# gives an expression for each result.
Rule = Callable[[Mapping[str, str], list[str]], "str | tuple[str, ...]"]

C_TYPES: Mapping[str, str] = {
    **{f"{letter}{bits}": f"uint{bits}_t" for letter in "ub" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    "f16": "uint16_t",
    "bf16": "uint16_t",
    "f16x2": "uint32_t",
    "bf16x2": "uint32_t",
    "f32x2": "uint64_t",
    "f32": "float",
    "f64": "double",
    "pred": "uint32_t",
    "cc": "uint32_t",
}
MODES: Mapping[str, str] = {"rn": "NEAREST", "rz": "ZERO", "rm": "DOWN", "rp": "UP"}


def unsigned(kind: str) -> str:
    return f"uint{kind[1:]}_t"


def wider(kind: str) -> str:
    """Return the PTX type of twice the width."""
    return f"{kind[0]}{int(kind[1:]) * 2}"
