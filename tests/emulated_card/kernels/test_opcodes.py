"""Every computing row of the opcode table, by the interpreter and as built code, on values that are apt to differ."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Any

import numpy as np
import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

from opcode_lab import LANES, Lab, Line, computes, lab, lines_of, operands, some_spellings

from emulated_card.kernels.code import RULES
from emulated_card.kernels.comparing import launch_both, needs_compiler
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE

pytestmark = needs_compiler

A_KERNEL = 64
# Rows that two libraries compute, to within a place: their results are compared as values.
APPROXIMATE = ("ex2", "sin", "cos", "tanh", "lg2", "rsqrt")
PLACES = 4
FORMS = [form for form in TABLE.forms if callable(form.meaning) and computes(form)]


@cache
def bundles() -> list[Sequence[Line]]:
    lines = [line for form in FORMS for opcode in some_spellings(form) for line in lines_of(opcode)]
    return [lines[n : n + A_KERNEL] for n in range(0, len(lines), A_KERNEL)]


def differing(made: Lab, ours: Any, theirs: Any) -> list[str]:
    """Return a line for each result that differs in more than a NaN's payload."""
    wrong = []
    results = [(line.opcode, kind) for line in made.lines for kind in line.results]
    for n, (name, kind) in enumerate(results):
        a, b = (array.reshape(LANES, -1, 8)[:, n, : max(2, DTYPES[kind].itemsize)] for array in (ours, theirs))
        for part in _parts(kind, a, b):
            if not _alike(*part, approximate=name.split(".")[0] in APPROXIMATE):
                wrong.append(f"{name} ({kind})")
                break
    return wrong


def _parts(kind: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if kind.endswith("x2"):
        size = a.shape[1] // 2
        for half in (0, size):
            yield kind.removesuffix("x2"), a[:, half : half + size].copy(), b[:, half : half + size].copy()
    else:
        yield kind, a, b


def _alike(kind: str, a: Any, b: Any, *, approximate: bool) -> bool:
    bits = np.dtype(f"u{a.shape[1]}")
    x, y = a.view(bits)[:, 0], b.view(bits)[:, 0]
    if kind not in ("f16", "bf16", "f32", "f64"):
        return bool((x == y).all())
    digits = {"f16": 10, "bf16": 7, "f32": 23, "f64": 52}[kind]
    infinity = np.array(((1 << (8 * bits.itemsize - 1 - digits)) - 1) << digits, bits)
    size = np.array((1 << (8 * bits.itemsize - 1)) - 1, bits)
    nan = ((x & size) > infinity) & ((y & size) > infinity)
    near = np.abs(x.astype(object) - y.astype(object)) <= PLACES if approximate else x == y
    return bool((nan | near.astype(bool)).all())


def test_every_row_has_a_rule_and_every_rule_a_row() -> None:
    assert set(RULES) == {form.syntax for form in FORMS}


QUICK = (0,)


@pytest.mark.parametrize(
    "bundle",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in range(len(bundles()))],
)
def test_opcodes_compute_the_same_both_ways(bundle: int) -> None:
    made = lab(bundles()[bundle])
    out = np.zeros((LANES, made.words), np.uint64)
    module = ptx.PtxModule(made.text, "none", "sm_90")
    both = launch_both(module, "k", (LANES // 128,), (128,), (out, operands("").copy()))
    found = both.arrays[0][1].data.view(np.uint64)
    assert not differing(made, out.view(np.uint8), found.view(np.uint8))
