"""Every computing row of the opcode table, in every spelling, against exact arithmetic on integers and fractions."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from exact_opcodes import About, matches, parts_of, rule
from opcode_lab import LANES, Line, computes, given_to, lab, lines_of, operands, size, some_spellings, spellings

from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import Form
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE


@pytest.mark.parametrize("form", [f for f in TABLE.forms if computes(f)], ids=lambda form: form.syntax)
def test_a_row_computes_what_the_isa_says(form: Form) -> None:
    by_kind: dict[str, list[Line]] = defaultdict(list)
    for opcode in spellings(form):
        by_kind[rule(opcode).sources[0]] += lines_of(opcode)
    assert by_kind
    whole = {*some_spellings(form)}
    for kind, lines in by_kind.items():
        text, words = lab(lines)
        out = np.zeros((LANES, words), np.uint64)
        program = ptx.Program(ptx.PtxModule(text, "none", "sm_90"))
        execution = ptx.execute(program, "k", (LANES // 128,), (128,), (out, operands(kind).copy()))
        assert not execution.faults
        columns = iter(out.T.tolist())
        for line in lines:
            # Of spellings that differ in what others differ in as well, every fifth lane has to do.
            check(line, [next(columns) for _ in line.results], kind, 1 if line.opcode in whole else 5)


def near_limits(opcode: str, given: tuple[int, ...]) -> bool:
    """Say whether a directed rounding of binary64 may be off by a place: a product or remainder under- or overflows."""
    base, *words = opcode.split(".")
    if words[-1] != "f64" or base in ("add", "sub") or not {"rz", "rm", "rp"} & set(words) or base == "cvt":
        return False
    return not all(600 < bits >> 52 & 0x7FF < 1400 for bits in given)


def check(line: Line, found: list[list[int]], kind: str, step: int) -> None:
    expected = rule(line.opcode)
    for ours, theirs in ((expected.sources, line.sources), (expected.results, line.results)):
        assert [size(kind) for kind in ours[: len(theirs)]] == [size(kind) for kind in theirs]
    normal, lanes = 0, given_to(line.sources, kind)[::step]
    with np.errstate(all="ignore"):
        # An opcode of one operand has each of the special ones in many lanes.
        results = {x: expected.compute(*x) for x in dict.fromkeys(lanes) if not near_limits(line.opcode, x)}
        for lane, given in enumerate(lanes):
            for to, column, result in zip(expected.results, found, results.get(given, ()), strict=False):
                got = column[step * lane]
                if got == result:
                    continue
                normal += any(isinstance(part, About) and part.is_normal(of) for part, of in parts_of(result, to))
                assert matches(got, result, to), (
                    f"{line.opcode}{[hex(bits) for bits in given]} gave {got:#x}, expected {result}"
                )
    assert normal * step > 100 or not {"approx", "full"} & set(line.opcode.split("."))
