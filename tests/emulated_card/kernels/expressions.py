"""Write a computing step as expressions of C: by its opcode's rule, or as a move of bits or of an address."""

from __future__ import annotations

from collections.abc import Sequence

from emulated_card.kernels.registers import is_copy, match_of, not_translated
from emulated_card.kernels.rules import RULES
from pytest_bandwidth.features.traffic.ptx.memory import (
    LOCAL_REGION,
    PARAM_REGION,
    REGION_SHIFT,
    SHARED_REGION,
    region_base,
)
from pytest_bandwidth.features.traffic.ptx.program import Compute, Kernel


def expressions_of(kernel: Kernel, step: Compute, x: list[str]) -> Sequence[str]:
    """Return an expression for each target, from the operands' expressions. Raises NotSupported."""
    match = match_of(kernel, step)
    base, choice = match.form.base, match.choice
    if is_copy(match, step):
        return (x[0],)
    if base == "mov":
        return _moved(step, x)
    if base == "cvta":
        return (_converted(choice["holding"], "to" in choice, x[0]),)
    if base == "isspacep":
        return (_in_space(choice["window"], x[0]),)
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


_REGIONS = {
    "shared": SHARED_REGION,
    "shared::cta": SHARED_REGION,
    "local": LOCAL_REGION,
}


def _converted(space: str, back: bool, address: str) -> str:
    base = region_base(_REGIONS[space]) if space in _REGIONS else 0
    return f"({address} {'-' if back else '+'} {base:#x}ull)"


def _in_space(space: str, address: str) -> str:
    region = f"({address} >> {REGION_SHIFT})"
    return f"({region} == {_REGIONS[space]})" if space in _REGIONS else f"({region} > {PARAM_REGION})"
