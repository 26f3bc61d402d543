"""Write kernels of the table's opcodes, and operands that are apt to show errors."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from exact_opcodes import FORMATS, MODES, WIDTH, product, rounded

from pytest_bandwidth.features.traffic import ptx
from pytest_bandwidth.features.traffic.ptx.opcodes.conversions import fp8_values
from pytest_bandwidth.features.traffic.ptx.opcodes.forms import SETS, Form
from pytest_bandwidth.features.traffic.ptx.opcodes.table import TABLE

Array = np.ndarray[Any, Any]


def run_body(
    body: str,
    args: tuple[object, ...],
    threads: int,
    *,
    functions: str = "",
    version: str = "8.0",
    arch: str = "sm_90",
) -> ptx.Execution:
    """Run a body of PTX in which %p0, %p1 … are the arguments' pointers, also readable as a0, a1 …, %t is the thread's
    number, and %x and %off are for addresses.
    """
    numbers = range(len(args))
    text = (
        f".version {version}\n.target {arch}\n.address_size 64\n"
        f"{functions}.visible .entry k({', '.join(f'.param .u64 a{n}' for n in numbers)})\n{{\n"
        f" .reg .u64 {', '.join(f'%p{n}' for n in numbers)}, %off, %x;\n .reg .u32 %t;\n mov.u32 %t, %tid.x;\n"
        + "".join(f" ld.param.u64 %p{n}, [a{n}];\n" for n in numbers)
        + f"{body} ret;\n}}\n"
    )
    return ptx.execute(ptx.Program(ptx.PtxModule(text, "none", arch)), "k", (1,), (threads,), args)


def without_faults(execution: ptx.Execution) -> ptx.Execution:
    assert not execution.faults, [fault.text for fault in execution.faults]
    return execution


def encoded(values: Array, kind: str) -> Array:
    """Put small whole numbers as a type's bits; the halves of a packed type are alike."""
    if kind.endswith("x2"):
        return np.repeat(encoded(values, kind.removesuffix("x2")), 2).view(np.uint32).reshape(values.shape)
    if kind == "bf16":
        return (values.astype(np.float32).view(np.uint32) >> np.uint32(16)).astype(np.uint16)
    if kind == "tf32":  # the lowest bits are not read
        return values.astype(np.float32).view(np.uint32) | np.uint32(0x123)
    if kind in ("e4m3", "e5m2"):
        of_codes = fp8_values(kind)
        return np.array([np.flatnonzero(of_codes == n)[0] for n in values.ravel()], np.uint8).reshape(values.shape)
    width = WIDTH[kind] // 8
    typed = values.astype(f"f{width}" if kind[0] == "f" else f"i{width}")
    return np.ascontiguousarray(typed).view(f"u{width}")


# ---- opcodes of a row ------------------------------------------------------------------------------------------------


def computes(form: Form) -> bool:
    """Return whether the ISA says what the opcode returns: not for addresses in a cluster and an mbarrier's word."""
    return (callable(form.meaning) and form.base not in ("mapa", "mbarrier")) or form.base == "mov"


def spellings(form: Form) -> Iterator[str]:
    """Yield a row's opcodes: each choice of modifiers; of cvt each that the ISA has for two types."""
    if form.syntax.startswith("cvt[.irnd]"):
        yield from conversions()
        return
    choices = [(*SETS.get(name, (name,)), *([""] if optional else ())) for name, optional in form.slots]
    for words in itertools.product(*choices):
        opcode = ".".join([form.base, *filter(None, words)])
        found = TABLE.find(opcode)
        if (
            found is not None
            and found.form is form
            and not (".ftz" in opcode and opcode.endswith("64") and "set" in opcode)
        ):
            yield opcode


def some_spellings(form: Form) -> Iterator[str]:
    """Yield opcodes of a row in which each modifier occurs, and each pair of the last two: as a rule types."""
    seen: set[Any] = set()
    for opcode in spellings(form):
        choice = TABLE.find(opcode).choice
        words = [(name, choice.get(name)) for name, _ in form.slots]
        if not seen.issuperset(keys := [*words, tuple(words[-2:])]):
            seen.update(keys)
            yield opcode


def conversions() -> Iterator[str]:
    floats, whole = FORMATS, SETS["irnd"]
    for to, of in itertools.product(SETS["dst"], SETS["src"]):
        kinds = f"{to}.{of}"
        flush = ("", ".ftz") if "f32" in (to, of) else ("",)
        if of not in floats:
            yield from (f"cvt{mode}{sat}.{kinds}" for mode in _modes(to) for sat in ("", ".sat"))
        elif to not in floats:
            yield from (f"cvt.{mode}{ftz}.{kinds}" for mode in whole for ftz in flush if ftz == "" or of == "f32")
            yield f"cvt.rzi.sat.{kinds}"
        else:
            modes = ("", *(f".{mode}" for mode in whole)) if to == of else _modes(to, FORMATS[to][0] < FORMATS[of][0])
            endings = [f"{ftz}{sat}.{kinds}" for ftz in flush for sat in ("", ".sat")]
            yield from (f"cvt{mode}{ending}" for mode in modes for ending in endings)


def _modes(to: str, rounds: bool = True) -> tuple[str, ...]:
    return tuple(f".{mode}" for mode in MODES) if to in FORMATS and rounds else ("",)


# ---- operands --------------------------------------------------------------------------------------------------------

OPERANDS = 4
SPECIAL_FLOATS, SPECIAL_INTEGERS = 28, 22


def interesting_floats(kind: str, count: int, seed: int) -> Array:
    """List bits of a format's values: zeros, ones, subnormals, limits, infinities, NaN and their neighbours; then
    random ones, of all sizes and near 1, and ties of narrower formats with their neighbours.
    """
    digits, lowest, _ = FORMATS[kind]
    width = WIDTH[kind]
    infinity = ((1 << (width - digits)) - 1) << (digits - 1)
    one = -lowest + 1 << (digits - 1)
    hidden = 1 << (digits - 1)
    special = [0, 1, 2, hidden - 1, hidden, hidden + 1, infinity - 1, infinity, infinity | hidden >> 1]
    special += [one, one - 1, one + 1, one + (hidden >> 1), one + 3 * hidden]
    both = np.array([bits | sign << (width - 1) for bits in special for sign in (0, 1)], np.uint64)
    generator = np.random.default_rng(seed)
    anything = generator.integers(0, 2**64 - 1, count, np.uint64, endpoint=True) >> np.uint64(64 - width)
    sign = generator.integers(0, 2, count).astype(np.uint64) << np.uint64(width - 1)
    near_one = sign | (one + generator.integers(-8 * hidden, 8 * hidden, count)).astype(np.uint64)
    wider = sign | (one + generator.integers(-(min(30, -lowest) * hidden), min(30, -lowest) * hidden, count)).astype(
        np.uint64
    )
    kinds = np.stack([anything, near_one, _ties(wider, digits - 1, generator)], axis=1).ravel()
    return np.concatenate([both, kinds])[: len(both) + count].astype(f"u{width // 8}")


def _ties(values: Array, digits: int, generator: np.random.Generator) -> Array:
    """Put values halfway between two of a format with fewer digits, or one place to a side: mostly of a real format."""
    real = [digits + 1 - narrower for narrower in (24, 11, 8, 4, 3) if narrower <= digits]
    cuts = [generator.integers(1, digits, len(values)), *(np.full(len(values), cut) for cut in real)]
    cut = generator.permuted(np.stack(cuts), axis=0)[0].astype(np.uint64)
    step = generator.integers(-1, 2, len(values))
    return ((values >> cut << cut) | np.uint64(1) << (cut - np.uint64(1))) + step.astype(np.uint64)


def interesting_integers(bits: int, count: int, seed: int) -> Array:
    """List unsigned bits: limits and their neighbours, powers of two; then small ones, random ones and ties."""
    top = 1 << bits
    special = [0, 1, 2, 3, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1, 0x55 % top, top // 3]
    special += [1 << place for place in range(0, bits, 5)]
    generator = np.random.default_rng(seed)
    anything = generator.integers(0, 2**64 - 1, count, np.uint64, endpoint=True) & np.uint64(top - 1)
    ties = _ties(anything, bits - 1, generator) & np.uint64(top - 1)
    small = generator.integers(0, 70, count).astype(np.uint64) & np.uint64(top - 1)
    pick = generator.integers(0, 5, count)
    found = np.where(pick == 0, small, np.where(pick == 1, ties, anything))
    return np.concatenate([np.array(special, np.uint64), found]).astype(f"u{max(bits, 8) // 8}")


LANES = 1280


@cache
def operands(kind: str) -> Array:
    """Return 56 bytes a lane: four words each of 64, 32 and 16 bits. Those of the kind's width are values of the kind:
    in the first two words each special one with each, in the third half of the lanes have minus their product.
    """
    given = np.zeros((LANES, 56), np.uint8)
    single = kind.removesuffix("x2")
    for start, width in ((0, 64), (32, 32), (48, 16)):
        columns = _columns(single, 2 if kind != single else 1) if width == WIDTH.get(kind) else _mixed(width)
        for n, column in enumerate(columns):
            place = start + n * width // 8
            given[:, place : place + width // 8] = np.ascontiguousarray(column).view(np.uint8).reshape(LANES, -1)
    return given


def _columns(kind: str, packed: int) -> list[Array]:
    count, width = LANES * packed, WIDTH[kind]
    of_kind = interesting_floats if kind in FORMATS else lambda _, *more: interesting_integers(max(width, 8), *more)
    special = SPECIAL_FLOATS if kind in FORMATS else SPECIAL_INTEGERS
    generator = np.random.default_rng(width)
    a, b, c, d = (of_kind(kind, 2 * count, seed) for seed in range(OPERANDS))
    i, j = (axis.ravel() for axis in np.meshgrid(*[np.arange(min(special, len(a)))] * 2, indexing="ij"))
    firsts, seconds = (np.concatenate([a[i], a[len(a) - count :]]), np.concatenate([a[j], b[len(b) - count :]]))
    columns = [firsts[:count], seconds[:count], generator.choice(c, count), generator.choice(d, count)]
    if kind in FORMATS:
        for lane in range(0, count, 2):
            value, _ = product(int(columns[0][lane]), int(columns[1][lane]), kind)
            if not isinstance(value, float):
                columns[2][lane] = rounded(-value, 0, kind)
    return [column.astype(f"u{max(width, 8) // 8}") for column in columns]


@cache
def _mixed(width: int) -> list[Array]:
    """Return columns of a width that are interesting as floats or as integers."""
    columns = []
    for n in range(OPERANDS):
        seed = 10 * width + n
        pool = [interesting_floats(f"f{width}", 300, seed), interesting_integers(width, 300, seed)]
        if width == 16:
            pool.append(interesting_floats("bf16", 300, seed))
        columns.append(np.random.default_rng(seed).choice(np.concatenate(pool), LANES))
    if width == 16:  # two of every code of 8 bits
        codes = np.arange(256, dtype=np.uint16)
        columns[0][:256] = codes | codes[::-1] << np.uint16(8)
    return columns


# ---- kernels ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Line:
    """One opcode of a kernel. results: types of the words of 64 bits that a lane writes for it."""

    opcode: str
    sources: tuple[str, ...]
    results: tuple[str, ...]


def lines_of(opcode: str) -> list[Line]:
    """Return the opcode with and without what it may leave out. A carry that it reads or writes is a result."""
    match = TABLE.find(opcode)
    assert match is not None, opcode
    made = {}
    for chosen in (True, False):
        results, sources = (
            tuple(kind.rstrip("?") for kind in kinds if chosen or not kind.endswith("?"))
            for kinds in (match.results, match.sources)
        )
        if "cc" in sources and "cc" not in results:
            results = (*results, "cc")
        made[results, sources] = Line(opcode, sources, results)
    return list(made.values())


def lab(lines: Sequence[Line]) -> tuple[str, int]:
    """Write a kernel of some opcodes; return its PTX, and how many words a lane writes.

    %a0 … %a3 are operands of 64 bits, %w of 32, %h of 16, %q predicates; %w0 + %w1 carries.
    """
    text: list[str] = []
    place = 0
    for line in lines:
        names = [f"%{_register(kind)}{n}" for n, kind in enumerate(line.sources) if kind != "cc"]
        if "cc" in line.sources:
            text.append("add.cc.u32 %x, %w0, %w1;")
        produced = [kind for kind in line.results if kind != "cc"]
        targets = "|".join(f"%o{_register(kind)}{n}" for n, kind in enumerate(produced))
        text.append(f"{line.opcode} {', '.join([targets, *names])};")
        for n, kind in enumerate(produced):
            text += _stored(kind, n, place + n)
        if "cc" in line.results:
            text += ["addc.u32 %x, 0, 0;", f"st.global.u32 [%out+{8 * (place + len(produced))}], %x;"]
        place += len(line.results)
    loads = "".join(
        f"ld.global.b{width} %{name}{n}, [%in+{start + n * width // 8}];\n"
        for name, width, start in (("a", 64, 0), ("w", 32, 32), ("h", 16, 48))
        for n in range(OPERANDS)
    )
    return (
        ".version 8.7\n.target sm_90\n.address_size 64\n"
        ".visible .entry k(.param .u64 out, .param .u64 in)\n{\n"
        ".reg .b64 %a<4>, %oa<2>, %out, %in, %step; .reg .b32 %w<4>, %ow<2>, %x, %i, %b, %n;\n"
        ".reg .b16 %h<4>, %oh<2>; .reg .pred %q<3>, %oq<2>;\n"
        "mov.u32 %i, %tid.x; mov.u32 %b, %ctaid.x; mov.u32 %n, %ntid.x; mad.lo.u32 %i, %b, %n, %i;\n"
        f"ld.param.u64 %out, [out]; mul.wide.u32 %step, %i, {8 * place}; add.u64 %out, %out, %step;\n"
        "ld.param.u64 %in, [in]; mul.wide.u32 %step, %i, 56; add.u64 %in, %in, %step;\n"
        f"{loads}and.b32 %x, %w0, 1; setp.eq.u32 %q0, %x, 1; and.b32 %x, %w1, 2; setp.ne.u32 %q1, %x, 0;\n"
        "setp.lt.s32 %q2, %w2, 0;\n" + "\n".join(text) + "\nret;\n}\n",
        place,
    )


def size(kind: str) -> int:
    """Return a type's bits; a carry has one."""
    return {"cc": 1, "tf32": 32}.get(kind) or WIDTH[kind]


def _register(kind: str) -> str:
    return {1: "q", 8: "h", 16: "h", 32: "w", 64: "a"}[size(kind)]


def _stored(kind: str, number: int, place: int) -> list[str]:
    register, at = f"%o{_register(kind)}{number}", f"[%out+{8 * place}]"
    if kind == "pred":
        return [f"selp.u32 %x, 1, 0, {register};", f"st.global.u32 {at}, %x;"]
    return [f"st.global.b{max(16, size(kind))} {at}, {register};"]


@cache
def given_to(sources: tuple[str, ...], kind: str) -> list[tuple[int, ...]]:
    """Return what operands of these types are in each lane of `operands(kind)`."""
    data, columns = operands(kind), []
    w = [data[:, 32 + 4 * n : 36 + 4 * n].copy().view(np.uint32)[:, 0] for n in range(OPERANDS)]
    for n, source in enumerate(sources):
        if source == "pred":
            columns.append((w[0] & 1, w[1] >> 1 & 1, w[2] >> 31)[n].tolist())
        elif source == "cc":
            columns.append(((w[0].astype(np.uint64) + w[1]) >> np.uint64(32)).tolist())
        else:
            width = max(16, WIDTH[source]) // 8
            start = {2: 48, 4: 32, 8: 0}[width] + n * width
            bits = data[:, start : start + width].copy().view(f"u{width}")[:, 0]
            columns.append((bits & np.array(0xFF, bits.dtype) if WIDTH[source] == 8 else bits).tolist())
    return list(zip(*columns, strict=True))
