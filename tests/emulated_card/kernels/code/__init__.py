"""Write each computing opcode as an expression of C: one rule a row of the opcode table, by the row's syntax."""

from __future__ import annotations

from collections.abc import Mapping

from emulated_card.kernels.code import bits, comparisons, conversions, floats, halves, integers
from emulated_card.kernels.code.types import Rule

RULES: Mapping[str, Rule] = {
    **integers.RULES,
    **bits.RULES,
    **floats.RULES,
    **halves.RULES,
    **comparisons.RULES,
    **conversions.RULES,
}
