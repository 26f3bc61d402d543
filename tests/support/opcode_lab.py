"""Run single opcodes through the whole chain (text, decoder, interpreter), and round exact results as IEEE 754 does."""

from __future__ import annotations

import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np

from pytest_bandwidth.features.traffic import ptx

_BITS = dict.fromkeys(("pred", "b8", "u8", "s8"), 8) | dict.fromkeys(("b16", "u16", "s16", "f16", "bf16"), 16)
_BITS |= dict.fromkeys(("b32", "u32", "s32", "f32", "f16x2", "bf16x2"), 32)
_BITS |= dict.fromkeys(("b64", "u64", "s64", "f64"), 64)


# The tests of single opcodes, all that the opcode table is held to, and the one that looks back on them.
LAB = {
    path.stem for path in (Path(__file__).parents[1] / "features" / "traffic" / "ptx").glob("test_ptx_*_opcodes.py")
} | {
    "test_ptx_actions",
    "test_ptx_vector_atomics",
}
LAST = "test_ptx_table_coverage"


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
    return ptx.execute(ptx.load(ptx.PtxModule(text, "none", arch)), "k", (1,), (threads,), args)


def without_faults(execution: ptx.Execution) -> ptx.Execution:
    assert not execution.faults, [fault.text for fault in execution.faults]
    return execution


class Lab:
    """Collect what ran. executed: opcodes of the basic blocks that any lane entered. ran, all_of_it: names of tests."""

    def __init__(self) -> None:
        self.executed: set[str] = set()
        self.ran: set[str] = set()
        self.all_of_it: set[str] = set()
        self.modules: set[str] = set()

    @property
    def complete(self) -> bool:
        return self.ran == self.all_of_it and self.modules == LAB


def run_opcode(
    opcode: str, result: str, sources: tuple[str, ...], *arrays: np.ndarray[Any, Any]
) -> np.ndarray[Any, Any]:
    """Return opcode(arrays[0][i], …) for each i, as unsigned integers of the result's bits (predicates: uint8 0 or 1).

    Operands are given as unsigned or typed arrays; only their bits count.
    """
    count = len(arrays[0])
    bits = [_BITS[name] for name in sources]
    out = np.zeros(count, f"u{_BITS[result] // 8}")
    pointers = "".join(f",\n .param .u64 p{i}" for i in range(len(sources) + 1))[1:]
    lines = [" ld.param.u64 %out, [p0];", f" mul.wide.u32 %off, %i, {out.itemsize};", " add.s64 %out, %out, %off;"]
    for number, (name, width) in enumerate(zip(sources, bits, strict=True)):
        lines += [
            f" ld.param.u64 %at, [p{number + 1}];",
            f" mul.wide.u32 %off, %i, {width // 8};",
            " add.s64 %at, %at, %off;",
        ]
        if name == "pred":
            lines += [" ld.global.u8 %byte, [%at];", f" setp.ne.u16 %s{number}, %byte, 0;"]
        else:
            lines.append(f" ld.global.b{width} %s{number}, [%at];")
    declared = "".join(f" .reg .{_register(name)} %s{number};\n" for number, name in enumerate(sources))
    lines.append(f" {opcode} %d, {', '.join(f'%s{n}' for n in range(len(sources)))};")
    if result == "pred":
        lines += [" selp.u16 %byte, 1, 0, %d;", " st.global.u8 [%out], %byte;"]
    else:
        lines.append(f" st.global.b{_BITS[result]} [%out], %d;")
    text = (
        f".version 8.0\n.target sm_90\n.address_size 64\n.visible .entry k(\n{pointers}\n)\n{{\n"
        " .reg .u32 %i, %b, %n;\n .reg .u64 %out, %at, %off;\n .reg .b16 %byte;\n"
        f" .reg .{_register(result)} %d;\n{declared}"
        " mov.u32 %i, %tid.x;\n mov.u32 %b, %ctaid.x;\n mov.u32 %n, %ntid.x;\n mad.lo.s32 %i, %b, %n, %i;\n"
        + "\n".join(lines)
        + "\n ret;\n}\n"
    )
    program = ptx.load(ptx.PtxModule(text, "none", "sm_90"))
    given = [np.ascontiguousarray(array).view(f"u{width // 8}") for array, width in zip(arrays, bits, strict=True)]
    execution = ptx.execute(program, "k", (count,), (1,), (out, *given)) if count < 32 else _spread(program, out, given)
    assert not execution.faults
    return out


def _spread(program: ptx.Program, out: np.ndarray[Any, Any], given: list[np.ndarray[Any, Any]]) -> ptx.Execution:
    threads = next(size for size in (256, 128, 64, 32, 16, 8, 4, 2, 1) if len(out) % size == 0)
    return ptx.execute(program, "k", (len(out) // threads,), (threads,), (out, *given))


def _register(name: str) -> str:
    return "pred" if name == "pred" else f"b{max(16, _BITS[name])}"


# IEEE 754 formats: bits of the significand (with the hidden one), and the exponents of the smallest and largest normal.
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}


def exact_value(bits: int, kind: str) -> Fraction | float:
    """Return a finite value as a Fraction, otherwise inf or nan as a float."""
    digits, lowest, _ = FORMATS[kind]
    width = _BITS[kind]
    sign = -1 if bits >> (width - 1) else 1
    mantissa = bits & ((1 << (digits - 1)) - 1)
    exponent = (bits >> (digits - 1)) & ((1 << (width - digits)) - 1)
    if exponent == (1 << (width - digits)) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent == 0:
        return sign * Fraction(mantissa) * Fraction(2) ** (lowest - digits + 1)
    return sign * Fraction(mantissa | 1 << (digits - 1)) * Fraction(2) ** (exponent - 1 + lowest - digits + 1)


def rounded_bits(value: Fraction, kind: str, mode: str, zero_sign: int) -> int:
    """Return the bits of an exact value rounded into a format; `zero_sign` is the sign bit of an exact zero."""
    digits, lowest, highest = FORMATS[kind]
    width = _BITS[kind]
    if value == 0:
        return zero_sign << (width - 1)
    negative, magnitude = value < 0, abs(value)
    exponent = magnitude.numerator.bit_length() - magnitude.denominator.bit_length()
    if Fraction(2) ** exponent > magnitude:
        exponent -= 1
    unit = Fraction(2) ** (max(exponent, lowest) - digits + 1)
    whole, rest = divmod(magnitude, unit)
    whole = int(whole)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole & 1 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    whole += up
    largest = Fraction((1 << digits) - 1) * Fraction(2) ** (highest - digits + 1)
    if whole * unit > largest:
        to_infinity = mode == "rn" or (mode == "rp" and not negative) or (mode == "rm" and negative)
        infinity = ((1 << (width - digits)) - 1) << (digits - 1)
        return (negative << (width - 1)) | (infinity if to_infinity else infinity - 1)
    if whole == 0:
        return negative << (width - 1)
    scaled = whole * unit / Fraction(2) ** (lowest - digits + 1)
    number, place = int(scaled), 0
    while number >= 1 << digits:
        number >>= 1
        place += 1
    biased = 0 if number < 1 << (digits - 1) else place + 1
    return (negative << (width - 1)) | (biased << (digits - 1)) | (number & ((1 << (digits - 1)) - 1))


def is_nan_bits(bits: int, kind: str) -> bool:
    value = exact_value(bits, kind)
    return isinstance(value, float) and math.isnan(value)


def interesting_floats(kind: str, count: int, seed: int) -> np.ndarray[Any, Any]:
    """List bits of a format's values: zeros, ones, subnormals, limits, infinities, NaN, neighbours, and random ones of
    all sizes.
    """
    digits, lowest, _ = FORMATS[kind]
    width = _BITS[kind]
    infinity = ((1 << (width - digits)) - 1) << (digits - 1)
    one = -lowest + 1 << (digits - 1)
    special = [0, 1, 2, (1 << (digits - 1)) - 1, 1 << (digits - 1), (1 << (digits - 1)) + 1, infinity - 1, infinity]
    special += [
        infinity | 1 << (digits - 2),
        one,
        one - 1,
        one + 1,
        one + (1 << (digits - 2)),
        one + (3 << (digits - 1)),
    ]
    both = [bits | sign << (width - 1) for bits in special for sign in (0, 1)]
    generator = np.random.default_rng(seed)
    anything = generator.integers(0, 1 << width, count, dtype=np.uint64, endpoint=False) if width < 64 else None
    if anything is None:
        anything = generator.integers(0, 2**64 - 1, count, dtype=np.uint64, endpoint=True)
    near_one = (one + generator.integers(-(8 << (digits - 1)), 8 << (digits - 1), count)).astype(np.uint64)
    near_one |= generator.integers(0, 2, count).astype(np.uint64) << np.uint64(width - 1)
    found = np.concatenate([np.array(both, np.uint64), anything, near_one])
    return found[: len(both) + count].astype(f"u{width // 8}") if count else np.array(both, f"u{width // 8}")


def interesting_integers(bits: int, count: int, seed: int) -> np.ndarray[Any, Any]:
    """List unsigned bits: limits and their neighbours, powers of two, then random ones."""
    top = 1 << bits
    special = [0, 1, 2, 3, top - 1, top - 2, top // 2, top // 2 - 1, top // 2 + 1, 0x55 % top, top // 3]
    special += [1 << place for place in range(0, bits, 5)]
    generator = np.random.default_rng(seed)
    anything = generator.integers(0, 2**64 - 1, count, dtype=np.uint64, endpoint=True) & np.uint64(top - 1)
    small = generator.integers(0, 70, count).astype(np.uint64) & np.uint64(top - 1)
    pick = generator.random(count) < 0.8
    return np.concatenate([np.array(special, np.uint64), np.where(pick, anything, small)]).astype(f"u{bits // 8}")


def all_pairs(a: np.ndarray[Any, Any], b: np.ndarray[Any, Any], count: int, seed: int) -> tuple[Any, Any]:
    """Return `count` pairs: each special value (the first ones) with every other, then random ones."""
    generator = np.random.default_rng(seed)
    i, j = np.meshgrid(np.arange(min(len(a), 28)), np.arange(min(len(b), 28)), indexing="ij")
    i = np.concatenate([i.ravel(), generator.integers(0, len(a), count)])
    j = np.concatenate([j.ravel(), generator.integers(0, len(b), count)])
    return a[i], b[j]
