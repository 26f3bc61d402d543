"""Compute what an opcode gives, from integers and fractions rounded once: the PTX manual's text as code.

`rule` reads an opcode by itself. It takes neither types nor meanings from the table that it is compared with.
"""

from __future__ import annotations

import bisect
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import Any

import numpy as np

WIDTH = dict.fromkeys(("u8", "s8", "b8"), 8) | dict.fromkeys(("u16", "s16", "b16", "f16", "bf16"), 16)
WIDTH |= dict.fromkeys(("u32", "s32", "b32", "f32", "f16x2", "bf16x2", "u16x2", "s16x2"), 32)
WIDTH |= dict.fromkeys(("u64", "s64", "b64", "f64", "f32x2"), 64) | {"pred": 1}
# IEEE 754 formats: bits of the significand (with the hidden one), and the exponents of the smallest and largest normal.
FORMATS = {"f16": (11, -14, 15), "bf16": (8, -126, 127), "f32": (24, -126, 127), "f64": (53, -1022, 1023)}
# Bits of the mantissa, the exponent's bias, the code of the largest finite value, and the sign's place.
SMALL = {
    "e4m3x2": (3, 7, 0x7E, 7),
    "e5m2x2": (2, 15, 0x7B, 7),
    "e2m3x2": (3, 1, 0x1F, 5),
    "e3m2x2": (2, 3, 0x1F, 5),
    "e2m1x2": (1, 1, 0x07, 3),
}
# What the codes of ue8m0 stand for; the last one is NaN.
SCALES = [Fraction(2) ** (code - 127) for code in range(255)]
MODES = ("rn", "rz", "rm", "rp")
FLUSHED = ("f32", "f16")

Value = Fraction | float
Bits = int | None


@dataclass(frozen=True)
class About:
    """Expect a number near `exact`. Nothing is expected of results outside the format's normal range.

    error: largest relative error; places: the same in units of the last place; flushed: subnormal results are zeros;
    zeros: bits of the result that are 0.
    """

    exact: float
    error: float = 0.0
    places: float = 0.0
    flushed: bool = False
    zeros: int = 0

    def is_normal(self, kind: str) -> bool:
        return FORMATS[kind][1] <= math.frexp(self.exact)[1] - 1 < FORMATS[kind][2] and math.isfinite(self.exact)


@dataclass(frozen=True)
class Rule:
    """Give an opcode's types, and its results for one lane's operands.

    A result is bits, `About`, None for any NaN, or a pair of those for the halves of a word. A carry that comes in is
    the last operand, one that goes out the last result.
    """

    results: tuple[str, ...]
    sources: tuple[str, ...]
    compute: Callable[..., Sequence[Any]]


# ---- numbers ---------------------------------------------------------------------------------------------------------


def integer(bits: int, kind: str) -> int:
    """Read the low bits as a number of the kind's width and sign."""
    width = WIDTH[kind]
    bits &= (1 << width) - 1
    return bits - (1 << width) if kind[0] == "s" and bits >> (width - 1) else bits


@cache
def exact_value(bits: int, kind: str) -> Value:
    """Return a finite value as a Fraction, otherwise inf or nan as a float."""
    digits, lowest, _ = FORMATS[kind]
    width = WIDTH[kind]
    sign = -1 if bits >> (width - 1) else 1
    mantissa = bits & ((1 << (digits - 1)) - 1)
    exponent = (bits >> (digits - 1)) & ((1 << (width - digits)) - 1)
    if exponent == (1 << (width - digits)) - 1:
        return math.nan if mantissa else sign * math.inf
    if exponent:
        mantissa |= 1 << (digits - 1)
    return sign * Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - 1 + lowest - digits + 1)


def is_nan(value: Value) -> bool:
    return isinstance(value, float) and math.isnan(value)


def sign_bit(bits: int, kind: str) -> int:
    return bits >> (WIDTH[kind] - 1)


def infinity_bits(kind: str, negative: bool) -> int:
    digits, width = FORMATS[kind][0], WIDTH[kind]
    return negative << (width - 1) | ((1 << (width - digits)) - 1) << (digits - 1)


def rounded(value: Value, zero_sign: int, kind: str, mode: str = "rn") -> Bits:
    """Round an exact value into a format. zero_sign: the sign bit of an exact zero."""
    if isinstance(value, float):
        return None if math.isnan(value) else infinity_bits(kind, value < 0)
    digits, lowest, highest = FORMATS[kind]
    top = WIDTH[kind] - 1
    over, under = abs(value.numerator), value.denominator
    if over == 0:
        return zero_sign << top
    negative, exponent = value < 0, over.bit_length() - under.bit_length()
    if under << max(exponent, 0) > over << max(-exponent, 0):
        exponent -= 1
    place = max(exponent, lowest) - digits + 1
    unit = under << max(place, 0)
    whole, rest = divmod(over << max(-place, 0), unit)
    up = {
        "rn": rest * 2 > unit or (rest * 2 == unit and whole & 1 == 1),
        "rz": False,
        "rm": negative and rest > 0,
        "rp": not negative and rest > 0,
    }[mode]
    whole += up
    if whole.bit_length() + place > highest + 1:
        infinity = infinity_bits(kind, negative)
        return infinity if mode == "rn" or mode == ("rm" if negative else "rp") else infinity - 1
    # A carry into the next binade, or out of the subnormal ones, is one into the exponent's bits.
    return negative << top | (whole + ((place - lowest + digits - 1) << (digits - 1)))


@cache
def flushed(bits: int, kind: str) -> int:
    """Flush a subnormal to a zero of its sign (.ftz)."""
    value = exact_value(bits, kind)
    if isinstance(value, float) or abs(value) >= Fraction(2) ** FORMATS[kind][1]:
        return bits
    return sign_bit(bits, kind) << (WIDTH[kind] - 1)


def finished(bits: Bits, kind: str, words: Sequence[str]) -> Bits:
    """Apply .ftz, .relu and .sat (in which NaN and −0 become +0) to a result."""
    if bits is not None and "ftz" in words and kind in FLUSHED:
        bits = flushed(bits, kind)
    if bits is not None and "relu" in words and sign_bit(bits, kind):
        bits = 0
    if "sat" not in words:
        return bits
    value = math.nan if bits is None else exact_value(bits, kind)
    return 0 if is_nan(value) or value <= 0 else rounded(Fraction(1), 0, kind) if value >= 1 else bits


# ---- floats ----------------------------------------------------------------------------------------------------------


def product(a: int, b: int, kind: str) -> tuple[Value, int]:
    """Return the exact a·b, and the sign bit it would have as a zero."""
    x, y = exact_value(a, kind), exact_value(b, kind)
    sign = sign_bit(a, kind) ^ sign_bit(b, kind)
    if isinstance(x, float) or isinstance(y, float):
        return (math.nan if is_nan(x) or is_nan(y) or x == 0 or y == 0 else -math.inf if sign else math.inf), sign
    return x * y, sign


def total(x: Value, x_sign: int, y: Value, y_sign: int, mode: str) -> tuple[Value, int]:
    """Return the exact x + y, and the sign bit it would have as a zero (IEEE 754 §6.3)."""
    if isinstance(x, float) or isinstance(y, float):
        if is_nan(x) or is_nan(y) or (isinstance(x, float) and isinstance(y, float) and x != y):
            return math.nan, 0
        return (x if isinstance(x, float) else y), 0
    return x + y, x_sign if x_sign == y_sign and x == y == 0 else int(mode == "rm")


def quotient(a: int, b: int, kind: str) -> tuple[Value, int]:
    x, y = exact_value(a, kind), exact_value(b, kind)
    sign = sign_bit(a, kind) ^ sign_bit(b, kind)
    infinite = [isinstance(v, float) and math.isinf(v) for v in (x, y)]
    if is_nan(x) or is_nan(y) or all(infinite) or (x == 0 and y == 0):
        return math.nan, sign
    if infinite[0] or y == 0:
        return (-math.inf if sign else math.inf), sign
    return (Fraction(0) if infinite[1] else Fraction(x) / Fraction(y)), sign


def root(bits: int, kind: str, mode: str) -> Bits:
    value = exact_value(bits, kind)
    if value == 0 or value == math.inf:
        return bits
    if is_nan(value) or value < 0:
        return None
    # A root with far more digits than the format has, and a sticky last one where it is not exact.
    assert isinstance(value, Fraction)
    scale = 4**700
    whole = math.isqrt(value.numerator * scale // value.denominator)
    exact = Fraction(whole * whole, scale) == value
    return rounded(Fraction(whole * 2 + (not exact), 2 * 2**700), 0, kind, mode)


def picked(name: str, x: int, y: int, kind: str, words: Sequence[str]) -> Bits:
    """Return min or max of bits: −0 below +0, a number before NaN unless .NaN; .abs and .xorsign as in the opcode."""
    top = 1 << (WIDTH[kind] - 1)
    sign = (x ^ y) & top
    if "abs" in words:
        x, y = x & ~top, y & ~top
    nan = is_nan(exact_value(x, kind)), is_nan(exact_value(y, kind))
    if all(nan) or (any(nan) and "NaN" in words):
        return None
    choose = min if name == "min" else max
    result = y if nan[0] else x if nan[1] else choose(x, y, key=lambda v: (exact_value(v, kind), -sign_bit(v, kind)))
    return (result & ~top) | sign if "xorsign" in words else result


def picked_of(name: str, kind: str, words: Sequence[str], first: int, *others: int) -> Bits:
    result: Bits = first
    for other in others:
        if result is not None:
            result = picked(name, result, other, kind, words)
        elif "NaN" not in words:
            result = picked(name, other, other, kind, words)
    return result


# Of one float type, by the opcode's first word: operands are bits, as is the result.
def float_operations(kind: str, words: Sequence[str]) -> dict[str, Callable[..., Bits]]:
    mode = next((word for word in words if word in MODES), "rn")
    top = 1 << (WIDTH[kind] - 1)

    def added(x: int, y: int) -> Bits:
        exact = total(exact_value(x, kind), sign_bit(x, kind), exact_value(y, kind), sign_bit(y, kind), mode)
        return rounded(*exact, kind, mode)

    def fused(x: int, y: int, z: int) -> Bits:
        return rounded(*total(*product(x, y, kind), exact_value(z, kind), sign_bit(z, kind), mode), kind, mode)

    def unless_nan(x: int, result: int) -> Bits:
        return None if is_nan(exact_value(x, kind)) else result

    one = rounded(Fraction(1), 0, kind) or 0
    return {
        "add": added,
        "sub": lambda x, y: added(x, y ^ top),
        "mul": lambda x, y: rounded(*product(x, y, kind), kind, mode),
        "fma": fused,
        "mad": fused,  # one operation since sm_20
        "div": lambda x, y: rounded(*quotient(x, y, kind), kind, mode),
        "rcp": lambda x: rounded(*quotient(one, x, kind), kind, mode),
        "sqrt": lambda x: root(x, kind, mode),
        "neg": lambda x: unless_nan(x, x ^ top),
        "abs": lambda x: unless_nan(x, x & ~top),
        "min": lambda *given: picked_of("min", kind, words, *given),
        "max": lambda *given: picked_of("max", kind, words, *given),
    }


APPROXIMATIONS: dict[str, Callable[..., Any]] = {
    "ex2": np.exp2,
    "lg2": np.log2,
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "rcp": lambda x: 1 / x,
    "div": lambda x, y: x / y,
}
# Largest relative errors that the PTX ISA states for halves, and a place of the result.
STATED = {
    ("ex2", "f16"): 2.0**-9.9 + 2.0**-13,
    ("ex2", "bf16"): 2.0**-7 + 2.0**-13,
    ("tanh", "f16"): 2.0**-10.987 + 2.0**-13,
    ("tanh", "bf16"): 2.0**-8 + 2.0**-13,
}
UPPER_WORD = 0xFFFFFFFF << 32


def approximation(base: str, kind: str, words: Sequence[str]) -> Callable[..., About]:
    ftz = "ftz" in words and kind != "bf16"

    def double(bits: int) -> Any:
        if ftz:
            bits = flushed(bits & UPPER_WORD if kind == "f64" else bits, kind)
        value = exact_value(bits, kind)
        return np.float64(value) if value != 0 else np.copysign(np.float64(0), -1 if sign_bit(bits, kind) else 1)

    def compute(*given: int) -> About:
        exact = float(APPROXIMATIONS[base](*map(double, given)))
        if kind == "f64":  # on the upper word alone
            return About(exact, error=2.0**-19, flushed=True, zeros=0xFFFFFFFF) if ftz else About(exact, 2.0**-50)
        if kind == "f32":
            return About(exact, places=2 if "full" in words and not ftz else 1, flushed=ftz)
        return About(exact, error=STATED[base, kind])

    return compute


# ---- comparisons -----------------------------------------------------------------------------------------------------

COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
# Unsigned numbers have names of their own for the order.
COMPARISONS |= {own: COMPARISONS[name] for own, name in (("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge"))}
JOINED: dict[str, Callable[[int, int], int]] = {"and": int.__and__, "or": int.__or__, "xor": int.__xor__}


def holds(name: str, x: int, y: int, kind: str, words: Sequence[str] = ()) -> bool:
    """Return whether a comparison is true of these bits."""
    if kind not in FORMATS:
        return bool(COMPARISONS[name](integer(x, kind), integer(y, kind)))
    if "ftz" in words:
        x, y = flushed(x, kind), flushed(y, kind)
    a, b = exact_value(x, kind), exact_value(y, kind)
    nan = is_nan(a) or is_nan(b)
    if name in ("num", "nan"):
        return nan == (name == "nan")
    return name.endswith("u") if nan else bool(COMPARISONS[name.removesuffix("u")](a, b))


def comparison(base: str, words: Sequence[str], kinds: Sequence[str]) -> Rule:
    name, of = words[0], kinds[-1]
    single = of.removesuffix("x2")
    parts = range(0, WIDTH[of], WIDTH[single])

    def truths(x: int, y: int) -> list[bool]:
        mask = (1 << WIDTH[single]) - 1
        return [holds(name, x >> part & mask, y >> part & mask, single, words) for part in parts]

    if base == "setp":
        join = next((JOINED[word] for word in words if word in JOINED), None)

        def pair(x: int, y: int, c: int = 0) -> list[int]:
            found = truths(x, y)
            both = found if len(found) == 2 else [found[0], not found[0]]
            return [int(t) if join is None else join(int(t), c) for t in both]

        return Rule(("pred", "pred"), (of, of) if join is None else (of, of, "pred"), pair)
    to = kinds[0]
    one = rounded(Fraction(1), 0, to.removesuffix("x2")) if to[0] in "fb" else (1 << WIDTH[to] // len(parts)) - 1
    return Rule(
        (to,),
        (of, of),
        lambda x, y: [sum((one or 0) << part for part, true in zip(parts, truths(x, y), strict=True) if true)],
    )


# ---- integers and bits -----------------------------------------------------------------------------------------------


def clamp(value: int, kind: str) -> int:
    low = -(1 << (WIDTH[kind] - 1)) if kind[0] == "s" else 0
    return max(low, min(low + (1 << WIDTH[kind]) - 1, value))


def truncated_quotient(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


def lowest24(value: int, kind: str) -> int:
    value &= 0xFFFFFF
    return value - (1 << 24) if kind == "s32" and value >> 23 else value


def extracted(x: int, first: int, count: int, kind: str) -> int:
    """Run the PTX manual's own pseudo-code for bfe."""
    first, count, bits = first & 0xFF, count & 0xFF, WIDTH[kind]
    raw, top = x & ((1 << bits) - 1), bits - 1
    sign = 0 if kind[0] == "u" or count == 0 else raw >> min(first + count - 1, top) & 1
    places = range(bits)
    return sum((raw >> (p + first) & 1 if p < count and p + first <= top else sign) << p for p in places)


def inserted(x: int, y: int, first: int, count: int, bits: int) -> int:
    first, count = first & 0xFF, count & 0xFF
    for place in range(min(count, bits)):
        if place + first < bits:
            y = (y & ~(1 << (place + first))) | ((x >> place & 1) << (place + first))
    return y


PERMUTATIONS: dict[str, Callable[[int, int], int]] = {
    "f4e": lambda k, i: k + i,
    "b4e": lambda k, i: (k - i) % 8,
    "rc8": lambda k, _: k,
    "ecl": max,
    "ecr": min,
    "rc16": lambda k, i: (k & 1) * 2 + (i & 1),
}


def permuted(x: int, y: int, selector: int, words: Sequence[str]) -> int:
    data = (y << 32 | x).to_bytes(8, "little")
    mode = next((word for word in words if word in PERMUTATIONS), None)
    out = []
    for place in range(4):
        if mode is not None:
            out.append(data[PERMUTATIONS[mode](selector & 3, place)])
            continue
        nibble = selector >> (4 * place) & 15
        byte = data[nibble & 7]
        out.append((0xFF if byte & 0x80 else 0) if nibble & 8 else byte)
    return int.from_bytes(bytes(out), "little")


def highest(x: int, words: Sequence[str], bits: int) -> int:
    magnitude = ~x if x < 0 else x
    if magnitude == 0:
        return 0xFFFFFFFF
    return bits - magnitude.bit_length() if "shiftamt" in words else magnitude.bit_length() - 1


def dotted(a: int, b: int, c: int, words: Sequence[str], kinds: Sequence[str]) -> int:
    left, right = (f"{kind[0]}16" if words[0] in ("lo", "hi") else f"{kind[0]}8" for kind in kinds)
    first = 2 if words[0] == "hi" else 0
    right, size = f"{right[0]}8", WIDTH[left]
    return c + sum(integer(a >> size * p, left) * integer(b >> 8 * (first + p), right) for p in range(32 // size))


# By the opcode's first word: the sources' types (None is the opcode's own), and the result of typed numbers.
def integer_operations(words: Sequence[str], kinds: Sequence[str]) -> dict[str, tuple[Any, Callable[..., int]]]:
    kind = kinds[0] if kinds else "pred"
    bits = WIDTH[kind]
    wide = f"{kind[0]}{2 * bits}"
    limit: Callable[[int], int] = (lambda n: n & 31) if "wrap" in words else (lambda n: min(n, 32))
    high, own = "hi" in words, (None, None)

    def part(value: int) -> int:
        return value >> bits if high else value

    def part24(a: int, b: int) -> int:
        return lowest24(a, kind) * lowest24(b, kind) >> (16 if high else 0)

    def differences(a: int, b: int) -> list[int]:
        return [abs((a >> 8 * p & 255) - (b >> 8 * p & 255)) for p in range(4)]

    return {
        "add": (own, lambda a, b: clamp(a + b, kind) if "sat" in words else a + b),
        "sub": (own, lambda a, b: clamp(a - b, kind) if "sat" in words else a - b),
        "mul": (own, lambda a, b: part(a * b)),
        "mad": ((None, None, wide if "wide" in words else None), lambda a, b, c: part(a * b) + c),
        "mul24": (own, part24),
        "mad24": ((*own, None), lambda a, b, c: part24(a, b) + c),
        "sad": ((*own, None), lambda a, b, c: c + abs(a - b)),
        "div": (own, lambda a, b: truncated_quotient(a, b) if b else -1),  # PTX leaves open what GPUs do by zero
        "rem": (own, lambda a, b: a - truncated_quotient(a, b) * b if b else a),
        "abs": ((None,), abs),
        "neg": ((None,), lambda a: -a),
        "min": (own, lambda a, b: max(0, min(a, b)) if "relu" in words else min(a, b)),
        "max": (own, lambda a, b: max(0, a, b) if "relu" in words else max(a, b)),
        "vabsdiff4": (
            (*own, None),
            lambda a, b, c: c + sum(differences(a, b)) if "add" in words else _joined(differences(a, b), 8),
        ),
        "dp2a": ((None, kinds[-1] if kinds else None, None), lambda a, b, c: dotted(a, b, c, words, kinds)),
        "dp4a": ((None, kinds[-1] if kinds else None, None), lambda a, b, c: dotted(a, b, c, words, kinds)),
        "and": (own, lambda a, b: a & b),
        "or": (own, lambda a, b: a | b),
        "xor": (own, lambda a, b: a ^ b),
        "not": ((None,), lambda a: ~a),
        "cnot": ((None,), lambda a: int(a == 0)),
        "shl": ((None, "u32"), lambda a, n: a << min(n, bits)),
        "shr": ((None, "u32"), lambda a, n: a >> min(n, bits)),
        "shf": (
            (None, None, "u32"),
            lambda a, b, n: (b << 32 | a) << limit(n) >> 32 if "l" in words else (b << 32 | a) >> limit(n),
        ),
        "popc": ((None,), lambda a: bin(a).count("1")),
        "clz": ((None,), lambda a: bits - a.bit_length()),
        "brev": ((None,), lambda a: int(f"{a:0{bits}b}"[::-1], 2)),
        "bfind": ((None,), lambda a: highest(a, words, bits)),
        "bfe": ((None, "u32", "u32"), lambda a, first, count: extracted(a, first, count, kind)),
        "bfi": ((None, None, "u32", "u32"), lambda a, b, first, count: inserted(a, b, first, count, bits)),
        "prmt": ((None, None, "u32"), lambda a, b, selector: permuted(a, b, selector, words)),
        "lop3": (
            (None, None, None, "u32"),
            lambda a, b, c, table: _joined(
                [table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1 for i in range(32)], 1
            ),
        ),
        "bmsk": (("u32", "u32"), lambda a, b: ((1 << limit(b)) - 1) << limit(a)),
        "szext": (
            (None, "u32"),
            lambda a, n: extracted(a, 0, limit(n), kind),
        ),
        "mov": ((None,), lambda a: a),
    }


def _joined(parts: Sequence[int], size: int) -> int:
    return sum(part << size * place for place, part in enumerate(parts))


def with_carry(base: str, words: Sequence[str], kind: str) -> Rule:
    """Add on unsigned words, and carry out of the top bit. a - b is a + ~b + 1, which carries unless it borrows."""
    mask, comes_in, goes_out = (1 << WIDTH[kind]) - 1, base.endswith("c"), "cc" in words
    operands = 3 if base.startswith("mad") else 2

    def compute(*given: int) -> list[int]:
        a, b, *rest = given[:operands]
        if rest:
            exact = integer(a, kind) * integer(b, kind)
            a, b = (exact >> WIDTH[kind] if "hi" in words else exact) & mask, rest[0]
        elif base.startswith("sub"):
            b = ~b & mask
        carry = given[operands] if comes_in else int(base == "sub")
        result = a + b + carry
        return [result & mask, result >> WIDTH[kind] if goes_out else carry]

    return Rule((kind, "cc"), (kind,) * operands + ("cc",) * comes_in, compute)


# ---- conversions -----------------------------------------------------------------------------------------------------

WHOLE: dict[str, Callable[[Fraction], int]] = {"rni": round, "rzi": math.trunc, "rmi": math.floor, "rpi": math.ceil}


def converted(bits: int, to: str, of: str, words: Sequence[str]) -> Bits:
    mode = next((word for word in words if word in MODES), "rn")
    whole = next((WHOLE[word] for word in words if word in WHOLE), None)
    if of not in FORMATS:
        number = integer(bits, of)
        if to in FORMATS:
            return rounded(Fraction(min(max(number, 0), 1) if "sat" in words else number), 0, to, mode)
        return (clamp(number, to) if "sat" in words else number) & ((1 << WIDTH[to]) - 1)
    if "ftz" in words and of == "f32":
        bits = flushed(bits, of)
    value, sign = exact_value(bits, of), sign_bit(bits, of)
    if to not in FORMATS:
        if is_nan(value):
            return 1 << (WIDTH[to] - 1) if of == "f64" or WIDTH[to] == 64 else 0
        limit = 1 << WIDTH[to]
        number = (whole or math.trunc)(value) if isinstance(value, Fraction) else -limit if value < 0 else limit
        return clamp(number, to) & (limit - 1)
    if whole is not None and isinstance(value, Fraction):
        value = Fraction(whole(value))
    result = rounded(value, sign, to, mode)
    return finished(result, to, [word for word in words if word != "ftz" or to == "f32"])


def small_value(code: int, kind: str) -> Value:
    bits, bias, largest, top = SMALL[kind]
    sign, code = (-1 if code >> top & 1 else 1), code & (1 << top) - 1
    if code > largest:
        return sign * math.inf if kind == "e5m2x2" and code == 0x7C else math.nan
    exponent, mantissa = code >> bits, code & ((1 << bits) - 1)
    if exponent:
        mantissa |= 1 << bits
    return sign * Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - bias - bits)


@cache
def small_magnitudes(kind: str) -> list[Value]:
    """List the finite values that are not negative by their codes, which is also their order."""
    return [small_value(code, kind) for code in range(SMALL[kind][2] + 1)]


def small_code(bits: int, of: str, kind: str, words: Sequence[str]) -> int:
    """Return the code of the nearest value, ties to the even code, saturated; NaN has all bits but the sign's."""
    value, sign, top = exact_value(bits, of), sign_bit(bits, of), SMALL[kind][3]
    if is_nan(value):
        return (1 << top) - 1
    if sign and "relu" in words:
        return 0
    finite = small_magnitudes(kind)
    above = bisect.bisect_left(finite, abs(value))
    neighbours = [code for code in (above - 1, above) if 0 <= code < len(finite)]
    if len(neighbours) < 2:
        return neighbours[0] | sign << top
    return min(neighbours, key=lambda code: (abs(finite[code] - abs(value)), code & 1)) | sign << top


def scale_code(bits: int, of: str, words: Sequence[str]) -> int:
    """Return the code of the power of two at or below the magnitude (rz), or at or above it (rp); NaN is 255."""
    value = exact_value(bits, of)
    if is_nan(value):
        return 255
    size = abs(value)
    above = bisect.bisect_left(SCALES, size)
    exact = above < len(SCALES) and size == SCALES[above]
    code = above if "rp" in words or exact else max(above - 1, 0) if isinstance(size, Fraction) else 255
    return min(code, 254) if "satfinite" in words else code


def tf32(bits: int) -> Bits:
    """Keep ten bits of the mantissa, ties away from zero. What the lower bits hold is left open."""
    magnitude = bits & 0x7FFFFFFF
    if is_nan(exact_value(bits, "f32")):
        return None
    return bits & 0x80000000 | (magnitude if magnitude == 0x7F800000 else (magnitude + 0x1000) & 0x7FFFE000)


def conversion(words: Sequence[str], kinds: Sequence[str]) -> Rule:
    small = next((word for word in words if word in SMALL), "")
    holder, step = ("b8", 4) if small == "e2m1x2" else ("b16", 8)
    if "tf32" in words:
        return Rule(("tf32",), ("f32",), lambda x: [tf32(x)])
    if small and small == words[-1]:
        top = SMALL[small][3]
        return Rule(
            ("f16x2",),
            (holder,),
            lambda x: [tuple(_half(small_value(x >> s, small), x >> s + top & 1, words) for s in (0, step))],
        )
    if words[-1] == "ue8m0x2":
        return Rule(("bf16x2",), ("b16",), lambda x: [tuple(_scale_half(x >> s & 255) for s in (0, 8))])
    if small or "ue8m0x2" in words:
        of = kinds[-1]

        def code(x: int) -> int:
            return small_code(x, of.removesuffix("x2"), small, words) if small else scale_code(x, of[:4], words)

        if of == "f32":
            return Rule((holder,), (of, of), lambda x, y: [code(x) << step | code(y)])
        return Rule((holder,), (of,), lambda x: [code(x & 0xFFFF) | code(x >> 16) << step])
    to, of = kinds
    if to.endswith("x2"):
        return Rule((to,), (of, of), lambda x, y: [tuple(converted(v, to[:-2], of, words) for v in (y, x))])
    return Rule((to,), (of,), lambda x: [converted(x, to, of, words)])


def _scale_half(code: int) -> Bits:
    return None if code == 255 else rounded(Fraction(2) ** (code - 127), 0, "bf16")


def _half(value: Value, sign: int, words: Sequence[str]) -> Bits:
    return finished(rounded(value, sign, "f16"), "f16", words)


# ---- opcodes ---------------------------------------------------------------------------------------------------------

# Of floats; min and max of binary32 may have one more.
OPERANDS = dict.fromkeys(("add", "sub", "mul", "div", "min", "max"), 2) | {"fma": 3, "mad": 3}


def rule(opcode: str) -> Rule:
    base, *words = opcode.split(".")
    kinds = tuple(word for word in words if word in WIDTH)
    kind = kinds[-1] if kinds else ""
    if base in ("setp", "set"):
        return comparison(base, words, kinds)
    if base == "cvt":
        return conversion(words, kinds)
    if base in ("selp", "slct"):
        return _selection(base, words, kinds)
    if base == "testp":
        return Rule(("pred",), (kind,), lambda x: [int(_has_property(x, words[0], kind))])
    if base == "copysign":
        top = 1 << (WIDTH[kind] - 1)
        return Rule((kind,), (kind, kind), lambda x, y: [x & top | y & ~top])
    if "cc" in words or base in ("addc", "subc", "madc"):
        return with_carry(base, words, kind)
    single = kind.removesuffix("x2")
    if single in FORMATS and base not in ("mov",):
        approximate = "approx" in words or "full" in words
        operation = approximation(base, single, words) if approximate else _modified(base, single, words)
        count = OPERANDS.get(base, 1) + (base in ("min", "max") and kind == "f32")
    elif kind.endswith("x2"):
        count, on_integers = 2, integer_operations(words, (single,))[base][1]
        operation = lambda x, y: on_integers(integer(x, single), integer(y, single)) & 0xFFFF  # noqa: E731
    else:
        return _integer_rule(base, words, kinds)
    if kind == single:
        return Rule((kind,), (kind,) * count, lambda *given: [operation(*given)])
    width = WIDTH[single]
    halves = lambda given, shift: operation(*(x >> shift & (1 << width) - 1 for x in given))  # noqa: E731
    return Rule((kind,), (kind,) * count, lambda *given: [(halves(given, 0), halves(given, width))])


def _modified(base: str, kind: str, words: Sequence[str]) -> Callable[..., Bits]:
    operation = float_operations(kind, words)[base]
    ftz = "ftz" in words and kind in FLUSHED

    def compute(*given: int) -> Bits:
        return finished(operation(*(flushed(x, kind) if ftz else x for x in given)), kind, words)

    return compute


def _integer_rule(base: str, words: Sequence[str], kinds: Sequence[str]) -> Rule:
    sources, compute = integer_operations(words, kinds)[base]
    kind = kinds[0] if kinds else "pred"
    given = tuple(source or kind for source in sources)
    to = f"{kind[0]}{2 * WIDTH[kind]}" if "wide" in words else "u32" if base in ("popc", "clz", "bfind") else kind
    mask = (1 << WIDTH[to]) - 1
    return Rule(
        (to,), given, lambda *bits: [compute(*(integer(x, k) for x, k in zip(bits, given, strict=True))) & mask]
    )


def _selection(base: str, words: Sequence[str], kinds: Sequence[str]) -> Rule:
    kind = kinds[0]
    if base == "selp":
        return Rule((kind,), (kind, kind, "pred"), lambda x, y, chosen: [x if chosen else y])
    of = kinds[1]

    def chosen(x: int, y: int, c: int) -> list[int]:
        value = exact_value(flushed(c, of) if "ftz" in words else c, of) if of == "f32" else integer(c, of)
        return [x if value >= 0 else y]  # also −0; not NaN

    return Rule((kind,), (kind, kind, of), chosen)


def _has_property(bits: int, name: str, kind: str) -> bool:
    value = exact_value(bits, kind)
    finite = isinstance(value, Fraction)
    normal = finite and abs(value) >= Fraction(2) ** FORMATS[kind][1]
    return {
        "finite": finite,
        "infinite": value in (math.inf, -math.inf),
        "number": not is_nan(value),
        "notanumber": is_nan(value),
        "normal": normal,
        "subnormal": finite and not normal and value != 0,
    }[name]


def parts_of(expected: Any, kind: str) -> list[tuple[Any, str]]:
    """Return a result's halves with their type, or the result with its own."""
    return [(part, kind.removesuffix("x2")) for part in expected] if isinstance(expected, tuple) else [(expected, kind)]


def matches(found: int, expected: Any, kind: str) -> bool:
    """Return whether bits of a kind are what is expected."""
    if WIDTH.get(kind) == 8:
        found &= 0xFF
    if isinstance(expected, tuple):
        width = WIDTH[kind] // 2
        parts = enumerate(parts_of(expected, kind))
        return all(matches(found >> width * n & (1 << width) - 1, *part) for n, part in parts)
    if kind == "tf32":
        return matches(found, None, "f32") if expected is None else found & 0xFFFFE000 == expected & 0xFFFFE000
    if expected is None:
        return is_nan(exact_value(found, kind))
    return _is_about(found, expected, kind) if isinstance(expected, About) else found == expected


def _is_about(found: int, expected: About, kind: str) -> bool:
    value, exact = exact_value(found, kind), expected.exact
    digits, lowest, highest = FORMATS[kind]
    if found & expected.zeros or math.isnan(exact) or is_nan(value):
        return not found & expected.zeros and math.isnan(exact) and is_nan(value)
    if math.isinf(exact):
        return value == exact
    least = math.ldexp(1.0, lowest)
    if abs(exact) < least * (1 - 2.0 ** (1 - digits)):
        return not expected.flushed or exact == 0 or (value == 0 and sign_bit(found, kind) == (exact < 0))
    if abs(exact) / 2 > math.ldexp(1.0, highest):
        return value == math.copysign(math.inf, exact)
    if abs(exact) < least * (1 + 2.0 ** (2 - digits)) or abs(exact) >= math.ldexp(1.0, highest):
        return True
    place = math.ldexp(1.0, math.frexp(exact)[1] - digits)
    return abs(float(value) - exact) <= max(expected.error * abs(exact), expected.places * place)
