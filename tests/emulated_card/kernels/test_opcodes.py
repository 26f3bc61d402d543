"""Every computing row of the opcode table, by the interpreter and as built code, on values that are apt to differ."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import pytest

if not all(map(importlib.util.find_spec, ("cuda", "numba", "lark"))):
    pytest.skip("translating kernels needs: pip install 'pytest-bandwidth[traffic]'", allow_module_level=True)

from opcode_lab import interesting_floats, interesting_integers

from emulated_card.kernels.code import RULES
from emulated_card.kernels.comparing import launch_both, needs_compiler
from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import DTYPES, SETS, Form, Match
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE

pytestmark = needs_compiler

LANES = 1024
A_KERNEL = 48
OPERANDS = 4
# Rows that two libraries compute, to within a place: their results are compared as values.
APPROXIMATE = ("ex2", "sin", "cos", "tanh", "lg2", "rsqrt")
PLACES = 4


def is_computation(form: Form) -> bool:
    return callable(form.meaning)


def variants(form: Form) -> Iterator[str]:
    """Yield opcodes of a row, in which every modifier of every set occurs, and each optional one with and without."""
    slots = form.slots
    longest = max([len(SETS.get(name, (name,))) for name, _ in slots], default=1)
    for turn in range(2 * longest):
        parts = [form.base]
        for place, (name, optional) in enumerate(slots):
            members = SETS.get(name, (name,))
            if optional and (turn + place) % 2 and turn < longest:
                continue
            parts.append(members[(turn * (1 + place % 2) + place) % len(members)])
        yield ".".join(parts)


def conversions() -> Iterator[str]:
    """Yield cvt between every two types, in one of the ways that the ISA has for the pair."""
    floats = ("f16", "bf16", "f32", "f64")
    kinds = SETS["dst"]
    for turn, (to, of) in enumerate(itertools.product(kinds, kinds)):
        rounding, integral = (SETS[name][turn % 4] for name in ("rnd", "irnd"))
        if to in floats:
            narrows = of not in floats or DTYPES[to].itemsize < DTYPES[of].itemsize
            yield f"cvt.{rounding}.{to}.{of}" if narrows else f"cvt.{to}.{of}"
            if of == to:
                yield f"cvt.{integral}.{to}.{of}"
        else:
            yield f"cvt.{integral}.{to}.{of}" if of in floats else f"cvt.{to}.{of}"
            yield f"cvt.rzi.sat.{to}.{of}" if of in floats else f"cvt.sat.{to}.{of}"


@cache
def opcodes() -> Sequence[tuple[str, Match]]:
    found = {}
    for form in filter(is_computation, TABLE.forms):
        for opcode in [*variants(form), *(conversions() if form.base == "cvt" and "dst" in form.syntax else ())]:
            match = TABLE.find(opcode)
            if match is not None and match.form is form:
                found[opcode] = match
    return tuple(found.items())


@dataclass(frozen=True)
class Lab:
    """A kernel of some opcodes: `text` is its PTX, `results` opcode and type of each word that a thread writes."""

    text: str
    results: tuple[tuple[str, str], ...]


def bits_of(kind: str) -> int:
    return 1 if kind in ("pred", "cc") else 8 * DTYPES[kind].itemsize


def lab(chosen: Sequence[tuple[str, Match]]) -> Lab:
    """Write a kernel. %a0 … %a3 are operands of 64 bits, %w of 32, %h of 16, %q predicates."""
    lines, results = [], []
    for opcode, match in chosen:
        given = [kind.rstrip("?") for kind in match.sources if kind != "cc"]
        names = [f"%{_register(kind)}{n}" for n, kind in enumerate(given)]
        if "cc" in match.sources:
            lines.append("add.cc.u32 %x, %w0, %w1;")
        produced = [kind.rstrip("?") for kind in match.results if kind != "cc"]
        targets = "|".join(f"%o{_register(kind)}{n}" for n, kind in enumerate(produced))
        lines.append(f"{opcode} {', '.join([targets, *names])};")
        for n, kind in enumerate(produced):
            lines += _stored(kind, n, len(results))
            results.append((opcode, kind))
        if "cc" in match.results:
            lines += ["addc.u32 %x, 0, 0;", f"st.global.u32 [%out+{8 * len(results)}], %x;"]
            results.append((opcode, "cc"))
    loads = "".join(
        f"ld.global.b{width} %{name}{n}, [%in+{place + n * width // 8}];\n"
        for name, width, place in (("a", 64, 0), ("w", 32, 32), ("h", 16, 48))
        for n in range(OPERANDS)
    )
    text = (
        ".version 8.7\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 out, .param .u64 in)\n{\n"
        ".reg .b64 %a<4>, %oa<2>, %out, %in, %step; .reg .b32 %w<4>, %ow<2>, %x, %i, %b, %n;\n"
        ".reg .b16 %h<4>, %oh<2>; .reg .pred %q<3>, %oq<2>;\n"
        "mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %b, %n, %i;\n"
        f"ld.param.u64 %out, [out]; mul.wide.u32 %step, %i, {8 * len(results)}; add.u64 %out, %out, %step;\n"
        "ld.param.u64 %in, [in]; mul.wide.u32 %step, %i, 56; add.u64 %in, %in, %step;\n"
        f"{loads}and.b32 %x, %w0, 1; setp.eq.u32 %q0, %x, 1; and.b32 %x, %w1, 2; setp.ne.u32 %q1, %x, 0;\n"
        "setp.lt.s32 %q2, %w2, 0;\n" + "\n".join(lines) + "\nret;\n}\n"
    )
    return Lab(text, tuple(results))


def _register(kind: str) -> str:
    return {1: "q", 8: "h", 16: "h", 32: "w", 64: "a"}[bits_of(kind)]


def _stored(kind: str, number: int, place: int) -> list[str]:
    register, at = f"%o{_register(kind)}{number}", f"[%out+{8 * place}]"
    if kind == "pred":
        return [f"selp.u32 %x, 1, 0, {register};", f"st.global.u32 {at}, %x;"]
    return [f"st.global.b{max(16, bits_of(kind))} {at}, {register};"]


@cache
def operands() -> Any:
    """Return 56 bytes a lane: four words each of 64, 32 and 16 bits, interesting as floats or as integers."""
    given = np.zeros((LANES, 56), np.uint8)
    columns = [(0, 64, "f64"), (32, 32, "f32"), (48, 16, "f16")]
    for start, width, kind in columns:
        for n in range(OPERANDS):
            seed = 10 * width + n
            pool = [interesting_floats(kind, 300, seed), interesting_integers(width, 300, seed)]
            if width == 16:
                pool.append(interesting_floats("bf16", 300, seed))
            if width == 64:  # as the operands of conversions between widths
                pool.append(interesting_floats("f32", 100, seed).astype(np.uint64))
            values = np.concatenate([np.asarray(part).view(f"u{width // 8}") for part in pool])
            picked = np.random.default_rng(seed).choice(values, LANES)
            place = start + n * width // 8
            given[:, place : place + width // 8] = picked.view(np.uint8).reshape(LANES, -1)
    return given


def differing(made: Lab, ours: Any, theirs: Any) -> list[str]:
    """Return a line for each result that differs in more than a NaN's payload."""
    wrong = []
    for n, (name, kind) in enumerate(made.results):
        a, b = (array.reshape(LANES, -1, 8)[:, n, : max(2, DTYPES[kind].itemsize)] for array in (ours, theirs))
        for part in _parts(kind, a, b):
            if not _alike(*part, approximate=name.split(".")[0] in APPROXIMATE):
                wrong.append(f"{name} ({kind})")
                break
    return wrong


def _parts(kind: str, a: Any, b: Any) -> Iterator[tuple[str, Any, Any]]:
    a, b = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if kind.endswith("x2"):
        for half in (0, 2):
            yield kind.removesuffix("x2"), a[:, half : half + 2].copy(), b[:, half : half + 2].copy()
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


def bundles() -> list[Sequence[tuple[str, Match]]]:
    return [opcodes()[n : n + A_KERNEL] for n in range(0, len(opcodes()), A_KERNEL)]


def test_every_row_has_a_rule_and_every_rule_a_row() -> None:
    assert set(RULES) == {form.syntax for form in TABLE.forms if is_computation(form)}


def test_every_row_is_tried() -> None:
    assert {match.form.syntax for _, match in opcodes()} == set(RULES)


QUICK = (0,)


@pytest.mark.parametrize(
    "bundle",
    [pytest.param(n, marks=() if n in QUICK else pytest.mark.slow) for n in range(len(bundles()))],
)
def test_opcodes_compute_the_same_both_ways(bundle: int) -> None:
    made = lab(bundles()[bundle])
    out = np.zeros((LANES, len(made.results)), np.uint64)
    module = ptx.PtxModule(made.text, "none", "sm_90")
    both = launch_both(module, "k", (LANES // 128,), (128,), (out, operands().copy()))
    found = both.arrays[0][1].data.view(np.uint64)
    assert not differing(made, out.view(np.uint8), found.view(np.uint8))
